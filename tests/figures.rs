//! Checks that the figures in the docs match `benches/peers/RESULTS.md`, which `make bench` writes.

use std::fs;
use std::path::Path;

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect(path)
}

fn rows(text: &str) -> Vec<Vec<String>> {
    let cells = |row: &str| row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
    text.lines().filter(|line| line.starts_with('|')).map(cells).collect()
}

fn section(results: &str, title: &str) -> String {
    let (_, rest) =
        results.split_once(&format!("\n## {title}\n")).unwrap_or_else(|| panic!("RESULTS.md: no section {title:?}"));
    rest.split("\n## ").next().unwrap_or_default().to_owned()
}

fn figures_of_the_comparison() -> Vec<Vec<String>> {
    let page = read("PROOF.md");
    let (_, block) = page.split_once("<!-- figures").expect("expected a marker before the figures");
    rows(block.split_once("<!-- /figures -->").expect("expected a marker after the figures").0)
}

#[test]
fn the_comparison_shows_the_measured_figures() {
    let results = read("benches/peers/RESULTS.md");
    let figures = figures_of_the_comparison();
    assert!(figures.len() > 8, "{figures:?}");
    for figure in &figures[2..] {
        let (title, numbers) = figure.split_last().expect("expected at least one cell");
        let table = rows(&section(&results, title.trim_matches('"')));
        for number in numbers[1..].iter().filter(|number| *number != "–") {
            let measured = |cell: &String| cell.split(' ').next() == Some(number);
            assert!(table.iter().flatten().any(measured), "PROOF.md: {number} of {figure:?} is not in the results");
        }
    }
}

#[test]
fn the_readme_and_the_comparison_show_the_same_figures() {
    let readme = rows(&read("README.md"));
    let row =
        readme.iter().find(|row| row[0].starts_with("nanoseconds per decision")).expect("expected a row in README.md");
    let figures = figures_of_the_comparison();
    assert_eq!(row[1..], figures[2][1..5], "README.md and PROOF.md show different figures");
}

#[test]
fn the_docs_state_the_measured_size_of_a_row() {
    let results = rows(&section(&read("benches/peers/RESULTS.md"), "Memory and the longest call"));
    let page = read("src/docs/choosing/costs.md").replace('\n', " ");
    for keys in ["1,000,000", "10,000,000"] {
        let count = keys.replace(',', "");
        let measured =
            results.iter().find(|row| row[0] == "tollgate" && row[1] == count).expect("expected a row in the results");
        let (count, each): (f64, f64) =
            (count.parse().expect("expected a number"), measured[2].parse().expect("expected a number of bytes"));
        let expected = format!("{keys} rows take {:.0} MB ({each:.0} bytes each)", count * each / 1e6);
        assert!(page.contains(&expected), "costs.md does not state: {expected}");
    }
}
