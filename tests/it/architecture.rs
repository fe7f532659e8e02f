//! Checks the module order that `tollgate::docs::design` describes: a module may use only modules at lower levels. Also
//! checks that the test targets and modules that scripts and documents name exist.

use std::fs;
use std::path::{Path, PathBuf};

/// The top-level modules of `src/` and their levels. Add new modules here.
const MODULES: [(&str, u8); 15] = [
    ("algorithm", 1),
    ("policy", 2),
    ("clock", 2),
    ("backend", 3),
    ("limiter", 4),
    ("middleware", 5),
    ("config", 6),
    ("observe", 6),
    ("status", 6),
    ("admin", 7),
    ("fuzzing", 6),
    // The following two modules contain only re-exports.
    ("key", 6),
    ("protection", 6),
    // The following module contains the synchronization primitives, which are replaced when models are run.
    ("sync", 0),
    ("docs", 0),
];

#[test]
fn modules_use_only_modules_at_lower_levels() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut faults = Vec::new();
    let mut files = 0;
    for file in rust_files(&source) {
        let inside = file.strip_prefix(&source).expect("expected a path inside src");
        if inside == Path::new("lib.rs") {
            continue; // The crate root re-exports from all modules.
        }
        let top = inside
            .components()
            .next()
            .expect("expected a path with a first component")
            .as_os_str()
            .to_string_lossy()
            .into_owned();
        let module = top.trim_end_matches(".rs");
        let text = fs::read_to_string(&file).expect("expected a readable file");
        faults.extend(upward_names(module, &text).into_iter().map(|fault| format!("{}: {fault}", inside.display())));
        files += 1;
    }
    assert!(files > 20, "only {files} files found");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The two functions that decide, each with the file that defines it and the files that call it. `step` decides a
/// charge to a single row, and `step_all` decides all charges of a call together.
const DECIDING_FUNCTIONS: [(&str, &str, &[&str]); 2] = [
    (
        "step",
        "algorithm/step.rs",
        &[
            "algorithm/lease.rs",
            "backend/conformance.rs",
            "backend/conformance/changed_quotas.rs",
            "backend/conformance/leases.rs",
            "limiter/block_cache.rs",
            "limiter/failure.rs",
            "limiter/leases/holder.rs",
            "limiter/leases/mod.rs",
            "limiter/snapshot.rs",
        ],
    ),
    ("step_all", "algorithm/step.rs", &["backend/conformance.rs", "backend/memory/call.rs", "backend/redis/batch.rs"]),
];

#[test]
fn deciding_functions_have_one_definition_and_known_callers() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for (name, home, callers) in DECIDING_FUNCTIONS {
        let (mut homes, mut calls) = (Vec::new(), Vec::new());
        for file in rust_files(&source) {
            let inside =
                file.strip_prefix(&source).expect("expected a path inside src").to_string_lossy().replace('\\', "/");
            if inside.contains("tests") || inside.contains("models") {
                continue;
            }
            let (defines, uses) =
                definitions_and_calls(&fs::read_to_string(&file).expect("expected a readable file"), name);
            homes.extend(vec![inside.clone(); defines]);
            if uses > 0 && inside != home {
                calls.push(inside);
            }
        }
        calls.sort();
        assert_eq!(
            (homes, calls),
            (vec![home.to_owned()], callers.iter().map(|it| it.to_string()).collect()),
            "{name}"
        );
    }
}

/// The maximum number of items in the crate root, which contains only items that most applications need.
const MAX_ROOT_ITEMS: usize = 40;

#[test]
fn the_crate_root_has_at_most_forty_items() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs");
    let items = root_items(&fs::read_to_string(source).expect("expected a readable file"));
    assert!(items.len() > 20 && items.len() <= MAX_ROOT_ITEMS, "{}: {items:?}", items.len());
}

#[test]
fn root_items_include_modules_and_re_exports() {
    let text = "pub mod a;\n#[doc(hidden)]\npub mod hidden;\nmod b;\npub use a::{C,\n    D};\npub use b::E;\n";
    assert_eq!(root_items(text), ["a", "C", "D", "E"]);
}

/// Returns the public modules and re-exports in `text`, except those that are `#[doc(hidden)]`.
fn root_items(text: &str) -> Vec<String> {
    let mut items = Vec::new();
    for statement in text.replace("#[doc(hidden)]\npub mod", "mod").split_inclusive(';') {
        let code: String = statement.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        if let Some((_, name)) = code.split_once("pub mod ") {
            items.push(name.trim_end_matches(';').to_owned());
        } else if let Some((_, path)) = code.split_once("pub use ") {
            let names = path.rsplit_once('{').map_or(path.rsplit("::").next(), |(_, names)| Some(names));
            let names = names.unwrap_or_default().trim_end_matches([';', '}']);
            items.extend(names.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()));
        }
    }
    items
}

#[test]
fn second_definitions_and_new_callers_are_detected() {
    let counted = |text: &str| definitions_and_calls(text, "step");
    assert_eq!(counted("pub fn step(quota: &Quota) {}\nfn steps() {}"), (1, 0));
    assert_eq!(counted("fn step<R>(row: R) {}\n    let x = step(q, s);\n// step(q)"), (1, 1));
    assert_eq!(counted("self.step(); decision.step(); one_step(); step.state"), (0, 0));
    assert_eq!(counted("algorithm::step(a)\nmod tests {\n step(a)"), (0, 1));
}

/// Counts the definitions of a function and the calls to it in `text`, except in tests and comments.
fn definitions_and_calls(text: &str, name: &str) -> (usize, usize) {
    let (mut defines, mut calls) = (0, 0);
    for line in text.lines().take_while(|line| !line.contains("mod tests {")) {
        if line.trim_start().starts_with("//") {
            continue;
        }
        for (at, _) in line.match_indices(name) {
            let (before, after) = (&line[..at], &line[at + name.len()..]);
            let is_word = !before.ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '.');
            // Indented definitions are methods.
            if before.ends_with("fn ") && !before.starts_with(' ') && after.starts_with(['(', '<']) {
                defines += 1;
            } else if is_word && !before.ends_with("fn ") && after.starts_with('(') {
                calls += 1;
            }
        }
    }
    (defines, calls)
}

#[test]
fn upward_imports_are_detected() {
    assert!(upward_names("algorithm", "use std::fmt;\nuse crate::policy::Key;").len() == 1);
    assert!(upward_names("backend", "use crate::{algorithm::Quota, limiter::RateLimiter};").len() == 1);
    assert!(upward_names("policy", "fn f() -> crate::backend::Error {}").len() == 1);
    assert!(
        upward_names("policy", "use crate::clock::Clock;").len() == 1,
        "a module must not name another module at the same level"
    );
    assert!(upward_names("policy", "use crate::Quota;").len() == 1, "a module must not name the crate root");
    assert!(!upward_names("algorithm", "use super::super::backend::Error;").is_empty());
    assert!(upward_names("nowhere", "").len() == 1, "a module without a level must be detected");
    assert!(upward_names("limiter", "use crate::backend::{Error, Take};\n// crate::middleware").is_empty());
    assert!(upward_names("middleware", "use super::key;\nuse crate::middleware::x;").is_empty());
}

/// Returns a message for each name in `text` that the module order forbids. `text` is the source of a file in `module`.
fn upward_names(module: &str, text: &str) -> Vec<String> {
    let Some(own) = level(module) else {
        return vec![format!("add the module {module:?} to MODULES in tests/it/architecture.rs")];
    };
    let code: String = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    let mut faults = Vec::new();
    // Only the name after the chain of `super` matters, not the length of the chain.
    for (at, _) in code.match_indices("super::super::") {
        let rest = code[at..].trim_start_matches("super::");
        let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        if let Some(other) = level(&name).filter(|other| name != module && *other >= own) {
            faults.push(format!("{module} (level {own}) uses {name} (level {other}) through `super`"));
        }
    }
    for name in crate_names(&code) {
        match level(&name) {
            _ if name == module => {}
            Some(other) if other < own => {}
            Some(other) => faults.push(format!("{module} (level {own}) uses {name} (level {other})")),
            None => faults.push(format!("{module} uses crate::{name}: import it from its module instead")),
        }
    }
    faults
}

/// Returns the name, or the names in braces, after each `crate::`.
fn crate_names(code: &str) -> Vec<String> {
    let word = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let mut names = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        if !rest.starts_with('{') {
            names.push(word(rest));
            continue;
        }
        // Take only the names directly within the outer braces.
        let mut depth = 0;
        let mut expecting = false;
        for (i, c) in rest.char_indices() {
            match c {
                '{' => {
                    depth += 1;
                    expecting = depth == 1;
                }
                '}' => depth -= 1,
                ',' => expecting = depth == 1,
                c if c.is_whitespace() => {}
                _ if expecting => {
                    names.push(word(&rest[i..]));
                    expecting = false;
                }
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
    }
    names
}

fn level(module: &str) -> Option<u8> {
    MODULES.iter().find(|(name, _)| *name == module).map(|(_, level)| *level)
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    all_files(folder).into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "rs")).collect()
}

/// Files and folders that name test targets.
const NAME_TARGETS: [&str; 13] = [
    ".github/workflows",
    "CONTRIBUTING.md",
    "Makefile",
    "PROOF.md",
    "README.md",
    "proof/README.md",
    "scripts",
    "src/docs",
    "tests/coverage.sh",
    "tests/it",
    "tests/mutants/run.sh",
    "tests/servers",
    "tests/threats",
];

/// A filter that matches no test passes silently, so a wrong name would go unnoticed.
#[test]
fn every_test_target_and_module_that_is_named_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for path in NAME_TARGETS.map(|name| root.join(name)) {
        if path.is_dir() { files.extend(all_files(&path)) } else { files.push(path) }
    }
    let (mut missing, mut found) = (Vec::new(), 0);
    for file in files.iter().filter(|file| !file.ends_with("architecture.rs")) {
        let bytes = fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        for line in String::from_utf8_lossy(&bytes).lines() {
            let targets = named_targets(line);
            found += targets.len();
            let faults = missing_targets(root, line, &targets);
            missing.extend(faults.into_iter().map(|fault| format!("{}: {fault}", file.display())));
        }
    }
    // The targets of the list of threats. `threats::listed` checks that the tests exist.
    let list = fs::read_to_string(root.join("tests/threats/list.txt")).expect("expected the list of threats");
    for target in list.lines().filter_map(|line| line.split_once(' ')).map(|(target, _)| target) {
        if target.starts_with(|c: char| c.is_ascii_lowercase()) && !["client", "doc", "lib"].contains(&target) {
            found += 1;
            missing.extend(target_path(root, target).is_none().then(|| format!("tests/threats/list.txt: {target}")));
        }
    }
    assert!(found > 100, "only {found} targets found");
    assert!(missing.is_empty(), "no such tests:\n{}", missing.join("\n"));
}

#[test]
fn names_of_missing_targets_and_modules_are_detected() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let missing = |line: &str| missing_targets(root, line, &named_targets(line)).len();
    assert_eq!(missing("cargo test --all-features --test it config:: errors::`"), 0);
    assert_eq!(missing("cargo test --lib --test=it --test=laws -- saved::million vectors::"), 0);
    assert_eq!(missing("cargo test --test its"), 1);
    assert_eq!(missing("cargo test --test=laws --test=law"), 1);
    assert_eq!(missing("cargo test --test it -- http:: htp::"), 1);
    assert_eq!(missing("cargo test --test it saved::milion"), 1);
    assert_eq!(named_targets("node --test --test-reporter=tap; --test \"$name\" --test $target").len(), 0);
}

/// Returns the names after `--test ` and `--test=`, except variables.
fn named_targets(line: &str) -> Vec<&str> {
    let words = line.split("--test").skip(1).filter_map(|rest| rest.strip_prefix([' ', '=']));
    let names = words.map(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default());
    names.filter(|name| !name.is_empty()).collect()
}

/// Returns the targets that do not exist, and the modules on the same line that are in none of the targets. With
/// `--lib`, the filter `tests::` selects the unit tests.
fn missing_targets(root: &Path, line: &str, targets: &[&str]) -> Vec<String> {
    let mut missing = Vec::new();
    let mut folders = Vec::new();
    for target in targets {
        match target_path(root, target) {
            Some(path) => folders.extend(path.parent().map(Path::to_owned)),
            None => missing.push(format!("--test {target}")),
        }
    }
    let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    for module in line.split(|c: char| !is_path(c)).filter(|word| word.contains("::") && !folders.is_empty()) {
        if module == "tests::" && line.contains("--lib") {
            continue;
        }
        let inside = module.trim_end_matches(':').replace("::", "/");
        let exists = |folder: &PathBuf| {
            [format!("{inside}.rs"), format!("{inside}/mod.rs")].iter().any(|file| folder.join(file).exists())
        };
        if !folders.iter().any(exists) {
            missing.push(format!("{module} in {targets:?}"));
        }
    }
    missing
}

fn target_path(root: &Path, target: &str) -> Option<PathBuf> {
    let paths = [root.join(format!("tests/{target}.rs")), root.join(format!("tests/{target}/main.rs"))];
    paths.into_iter().find(|path| path.exists())
}

fn all_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).expect("expected a folder") {
        let path = entry.expect("expected an entry").path();
        if path.is_dir() { files.extend(all_files(&path)) } else { files.push(path) }
    }
    files
}

/// The maximum number of `inline(always)` in `src/`.
const MAX_FORCED_INLINES: usize = 20;

#[test]
fn few_functions_are_always_inlined() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let texts = rust_files(&source).into_iter().map(|file| fs::read_to_string(file).expect("expected a readable file"));
    let found: usize = texts.map(|text| forced_inlines(&text)).sum();
    println!("{found} functions are always inlined; 12 after the core is rebuilt");
    assert!(found <= MAX_FORCED_INLINES, "found {found}, expected at most {MAX_FORCED_INLINES}");
}

#[test]
fn forced_inlines_are_counted_outside_comments() {
    assert_eq!(forced_inlines("#[inline(always)]\nfn a() {}\n// inline(always)\n#[inline]\nfn b() {}"), 1);
    assert_eq!(forced_inlines("#[cfg_attr(not(test), inline(always))]"), 1);
}

/// Counts the `inline(always)` in `text`, except in comments.
fn forced_inlines(text: &str) -> usize {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.map(|line| line.matches("inline(always)").count()).sum()
}
