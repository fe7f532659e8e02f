//! Checks that the tests and headings in `list.txt` exist, and that `THREATS.md` was generated from the list.

use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn every_listed_test_exists() {
    let mut missing = Vec::new();
    let mut tests = 0;
    for line in threats().into_iter().flat_map(|threat| threat.evidence) {
        let (target, name) = line.split_once(' ').unwrap();
        tests += 1;
        let exists = if target == "doc" { has_heading(name) } else { has_test(target, name) };
        if !exists {
            missing.push(line);
        }
    }
    assert!(tests > 100, "only {tests} tests in the list");
    assert!(missing.is_empty(), "list.txt names tests or headings that do not exist:\n{}", missing.join("\n"));
}

#[test]
fn missing_tests_are_detected() {
    assert!(has_test("it", "threats::listed::missing_tests_are_detected"));
    assert!(!has_test("it", "threats::listed::missing_tests_are"));
    assert!(!has_test("it", "threats::lockout::missing_tests_are_detected"));
    assert!(
        !has_test("it", "threats::listed::has_test"),
        "a function without a test attribute must not count as a test"
    );
    assert!(!has_test("nowhere", "threats::listed::missing_tests_are_detected"));
    assert!(has_test("lib", "policy::key::tests::different_keys_have_different_encodings"));
    assert!(!has_test("lib", "policy::name::tests::different_keys_have_different_encodings"));
    assert!(has_test("client", "foreign headers about another policy are ignored"));
    assert!(!has_test("client", "foreign headers about another policy"));
    assert!(!has_test("client", "headers headers about another policy are ignored"));
    assert!(!has_heading("src/docs/redis.md # Memory"));
}

#[test]
fn threats_are_numbered_consecutively_and_have_evidence() {
    let threats = threats();
    let numbers: Vec<u32> = threats.iter().map(|threat| threat.number).collect();
    assert_eq!(numbers, (1..=threats.len() as u32).collect::<Vec<_>>());
    for threat in threats {
        assert!(!threat.evidence.is_empty() && !threat.mitigation.is_empty(), "{}", threat.number);
    }
}

#[test]
fn every_numbered_test_in_this_target_is_listed() {
    let listed: Vec<String> = threats().into_iter().flat_map(|threat| threat.evidence).collect();
    for file in fs::read_dir(root().join("tests/it/threats")).unwrap() {
        let file = file.unwrap().path();
        let text = fs::read_to_string(&file).unwrap();
        let module = file.file_stem().unwrap().to_string_lossy().into_owned();
        for name in text
            .lines()
            .filter_map(function_name)
            .filter(|name| name.starts_with('t') && name[1..3].parse::<u8>().is_ok())
        {
            let line = format!("it threats::{module}::{name}");
            assert!(listed.contains(&line), "{line} is not in list.txt");
        }
    }
}

#[test]
fn threats_md_matches_the_list() {
    let table = fs::read_to_string(root().join("THREATS.md")).unwrap();
    let rows: Vec<&str> = table.lines().filter(|line| line.contains("| PASS ")).collect();
    let threats = threats();
    assert_eq!(rows.len(), threats.len(), "run `make threats`");
    for (threat, row) in threats.into_iter().zip(rows) {
        let begin = format!("| {} | {} | {} |", threat.number, threat.title, threat.mitigation);
        let names = threat.evidence.iter().map(|line| match line.strip_prefix("doc ") {
            Some(doc) => doc.replacen(" # ", "`, ", 1),
            None => line.replacen(' ', "::", 1),
        });
        let missing: Vec<String> = names.filter(|name| !row.contains(name.as_str())).collect();
        assert!(row.starts_with(&begin) && missing.is_empty(), "run `make threats`: {begin} {missing:?}");
        assert_eq!(row.matches("<br>").count() + 1, threat.evidence.len(), "run `make threats`: {begin}");
    }
}

struct Threat {
    number: u32,
    title: String,
    mitigation: String,
    /// Lines of the form `target path` or `doc page # heading`.
    evidence: Vec<String>,
}

fn threats() -> Vec<Threat> {
    let text = fs::read_to_string(root().join("tests/threats/list.txt")).unwrap();
    let mut threats: Vec<Threat> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some((number, title)) = line.strip_prefix('[').and_then(|line| line.split_once("] ")) {
            let number = number.parse().unwrap();
            threats.push(Threat { number, title: title.into(), mitigation: String::new(), evidence: Vec::new() });
            continue;
        }
        let threat = threats.last_mut().expect("list.txt: expected a line such as `[1] threat` before the evidence");
        match line.strip_prefix("> ") {
            Some(mitigation) if threat.mitigation.is_empty() => mitigation.clone_into(&mut threat.mitigation),
            Some(mitigation) => threat.mitigation += &format!(" {mitigation}"),
            None => threat.evidence.push(line.into()),
        }
    }
    threats
}

fn has_heading(doc: &str) -> bool {
    let (page, heading) = doc.split_once(' ').unwrap();
    fs::read_to_string(root().join(page)).is_ok_and(|text| text.lines().any(|line| line == heading))
}

/// Returns whether the target has a test with this path. A test is a function with an attribute such as `#[test]` in
/// the module's file.
fn has_test(target: &str, path: &str) -> bool {
    if target == "client" {
        return has_client_test(path);
    }
    let (modules, name) = path.rsplit_once("::").unwrap_or(("", path));
    let modules = modules.replace("::", "/");
    let inside = modules.strip_suffix("/tests").unwrap_or(&modules);
    let files = match target {
        "lib" => vec![
            format!("src/{modules}.rs"),
            format!("src/{modules}/mod.rs"),
            format!("src/{inside}.rs"),
            format!("src/{inside}/mod.rs"),
        ],
        _ if modules.is_empty() => vec![format!("tests/{target}.rs")],
        _ => vec![format!("tests/{target}/{modules}.rs"), format!("tests/{target}/{modules}/mod.rs")],
    };
    files.iter().filter_map(|file| fs::read_to_string(root().join(file)).ok()).any(|text| {
        let mut is_test = false;
        text.lines().any(|line| {
            let found = is_test && function_name(line) == Some(name);
            let is_attribute = line.trim_start().starts_with("#[");
            is_test = is_attribute && (is_test || line.contains("test]") || line.contains("test("));
            found
        })
    })
}

fn has_client_test(path: &str) -> bool {
    let Some((file, name)) = path.split_once(' ') else { return false };
    fs::read_to_string(root().join(format!("client/tests/{file}.test.ts")))
        .is_ok_and(|text| text.contains(&format!("\ntest('{name}',")))
}

fn function_name(line: &str) -> Option<&str> {
    let line = line.trim_start().strip_prefix("async ").unwrap_or(line.trim_start());
    line.strip_prefix("fn ")?.split('(').next()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}
