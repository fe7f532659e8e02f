//! What the pages show is what is compiled here, and what the other tests run.

use std::fs;
use std::path::Path;

const PEERS: [&str; 5] =
    ["actix_extensible_rate_limit", "axum_gcra", "governor", "tower_governor", "tower_rate_limiter"];

/// The code blocks under the headings that begin with this word, without the lines that rustdoc hides.
fn blocks(page: &str, heading: &str) -> Vec<String> {
    let mut found = Vec::new();
    let (mut under, mut block) = (false, None::<String>);
    for line in page.lines() {
        match &mut block {
            Some(_) if line.starts_with("```") => found.extend(block.take()),
            Some(_) if line == "#" || line.starts_with("# ") => {}
            Some(block) => *block += &format!("{line}\n"),
            None if line.starts_with("# ") => under = line.starts_with(heading),
            None if under && line.starts_with("```") && !line.starts_with("```text") => block = Some(String::new()),
            None => {}
        }
    }
    found
}

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn every_block_of_the_pages_is_in_the_sources() {
    for peer in PEERS {
        let page = read(&format!("../src/docs/migrating/{peer}.md"));
        for (heading, side) in [("# Theirs", "theirs"), ("# Ours", "ours")] {
            let source = read(&format!("src/{side}/{peer}.rs"));
            let blocks = blocks(&page, heading);
            assert!(!blocks.is_empty(), "{peer}.md: no block under {heading:?}");
            for block in blocks {
                assert!(source.contains(block.trim()), "not in src/{side}/{peer}.rs:\n{block}");
            }
        }
    }
}

/// So that no claim names a test that is not there any more.
#[test]
fn every_test_that_a_page_names_is_there() {
    for peer in PEERS {
        let page = read(&format!("../src/docs/migrating/{peer}.md"));
        let tests = read(&format!("tests/{peer}.rs"));
        // In the last column of a row: a name in backticks.
        let named: Vec<&str> = page
            .lines()
            .filter_map(|line| line.trim_end().strip_suffix("` |")?.rsplit_once('`').map(|(_, name)| name))
            .filter(|name| name.matches('_').count() > 3)
            .collect();
        assert!(!named.is_empty(), "{peer}.md names no test");
        for name in named {
            assert!(tests.contains(&format!("fn {name}(")), "{peer}.md names `{name}`");
        }
    }
}
