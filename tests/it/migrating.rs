//! Checks that the migration guides show only code that is compiled in `migrating/`, and that the tests they name
//! exist. Also checks that the tests named in PROOF.md exist.

use std::fs;
use std::path::{Path, PathBuf};

const IN_RUST: [&str; 5] =
    ["actix_extensible_rate_limit", "axum_gcra", "governor", "tower_governor", "tower_rate_limiter"];
const IN_TYPESCRIPT: [&str; 3] = ["convex", "express_rate_limit", "upstash"];

#[test]
fn every_code_block_in_the_guides_is_in_the_sources() {
    for peer in IN_RUST.into_iter().chain(IN_TYPESCRIPT) {
        let page = read(&page(peer));
        let theirs = match IN_RUST.contains(&peer) {
            true => format!("migrating/src/theirs/{peer}.rs"),
            false => format!("migrating/typescript/src/{peer}.ts"),
        };
        for (heading, source) in [("Before", theirs), ("After", format!("migrating/src/ours/{peer}.rs"))] {
            let mut sources = read(&source);
            if (peer, heading) == ("tower_rate_limiter", "Before") {
                sources += &read("migrating/src/theirs/tower_rate_limiter_01.rs");
            }
            let blocks = blocks(&page, heading);
            assert!(!blocks.is_empty(), "{peer}.md: no code block under {heading}");
            for block in blocks.iter().filter(|block| !block.starts_with("# #[cfg(")) {
                let shown = without_hidden(block);
                assert!(sources.contains(shown.trim()), "{peer}.md shows code that is not in {source}:\n{shown}");
            }
        }
    }
}

#[test]
fn every_guide_is_checked_against_its_sources() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/docs/migrating");
    let pages =
        fs::read_dir(folder).expect("expected the guides' folder").map(|it| it.expect("expected a file").path());
    for path in pages.filter(|path| path.extension().is_some_and(|it| it == "md") && !path.ends_with("index.md")) {
        let name = path.file_stem().and_then(|it| it.to_str()).expect("expected a name");
        assert!(IN_RUST.contains(&name) || IN_TYPESCRIPT.contains(&name), "{name}.md is not checked");
    }
}

#[test]
fn every_test_named_in_a_guide_exists() {
    for peer in IN_RUST.into_iter().chain(IN_TYPESCRIPT) {
        let mut tests = read(&format!("migrating/tests/{peer}.rs"));
        if IN_TYPESCRIPT.contains(&peer) {
            tests += &read(&format!("migrating/typescript/tests/{peer}.test.ts"));
        }
        let page = read(&page(peer));
        let changes =
            page.split_once("# What changes\n").unwrap_or_else(|| panic!("{peer}.md: no section \"What changes\"")).1;
        let rows: Vec<&str> = changes.lines().filter(|line| line.starts_with('|')).skip(2).collect();
        assert!(rows.len() > 4, "{peer}.md");
        // Check all quoted names in the last column of the table. Elsewhere, check only those that look like test
        // names.
        let mut named: Vec<String> = quoted(changes).filter(|it| it.matches('_').count() > 4).collect();
        for row in rows {
            let shown = row.trim_end_matches('|').rsplit('|').next().unwrap_or_default();
            assert!(shown.contains('`'), "{peer}.md: no test is listed for {row:?}");
            named.extend(quoted(shown).filter(|name| !name.contains('/')));
        }
        for name in named {
            let there = [format!("fn {name}("), format!("test(\"{name}\"")].iter().any(|it| tests.contains(it));
            assert!(there, "{peer}.md names `{name}`, which is not a test");
        }
    }
}

#[test]
fn every_test_named_in_the_index_exists() {
    let page = read("src/docs/migrating/index.md");
    let page: String = page.split("```").step_by(2).collect(); // without code blocks
    let named: Vec<String> = quoted(&page).filter(|it| it.matches('_').count() > 4).collect();
    assert!(named.len() >= 3, "{named:?}");
    let all: String = ["governor", "moving", "tower_rate_limiter"]
        .iter()
        .map(|it| read(&format!("migrating/tests/{it}.rs")))
        .collect();
    for name in named {
        assert!(all.contains(&format!("fn {name}(")), "the index names `{name}`, which is not a test");
    }
}

#[test]
fn every_test_named_in_the_comparison_exists() {
    let page = read("PROOF.md");
    let (_, table) = page.split_once("\n## Comparison with other crates\n").expect("expected the comparison");
    let (table, _) = table.split_once("\n\nThe figures below").expect("expected figures after the comparison");
    let tests: String =
        IN_RUST.iter().chain(&IN_TYPESCRIPT).map(|it| read(&format!("migrating/tests/{it}.rs"))).collect();
    let is_row = |line: &&str| line.starts_with('|') && !line.starts_with("| |") && !line.starts_with("| ---");
    let rows: Vec<&str> = table.lines().filter(is_row).collect();
    assert!(rows.len() > 5);
    for row in rows {
        let shown = row.trim_end_matches('|').rsplit('|').next().unwrap_or_default();
        assert!(shown.contains('`'), "PROOF.md: no test is listed for {row:?}");
        for name in quoted(shown) {
            assert!(tests.contains(&format!("fn {name}(")), "PROOF.md names `{name}`, which is not a test");
        }
    }
}

fn blocks(page: &str, heading: &str) -> Vec<String> {
    let Some((_, section)) = page.split_once(&format!("\n# {heading}\n")) else { return Vec::new() };
    // Look for the next heading only outside code blocks, because a line inside one may look like a heading.
    let mut blocks = Vec::new();
    for (i, part) in section.split("\n```").enumerate() {
        match i % 2 {
            0 if part.contains("\n# ") => break,
            0 => {}
            _ => blocks.push(part.split_once('\n').map_or(String::new(), |(_, code)| code.to_owned())),
        }
    }
    blocks
}

/// Returns the visible lines of a block. Rustdoc hides lines that begin with `# `.
fn without_hidden(block: &str) -> String {
    block.lines().filter(|line| *line != "#" && !line.starts_with("# ")).map(|line| format!("{line}\n")).collect()
}

fn quoted(text: &str) -> impl Iterator<Item = String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned)
}

fn page(peer: &str) -> String {
    format!("src/docs/migrating/{peer}.md")
}

fn read(path: &str) -> String {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
