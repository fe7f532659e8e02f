//! Copies the figures of the comparison in PROOF.md from `RESULTS.md`.

use std::fs;
use std::path::Path;

/// Writes the figures between the two marks.
pub(crate) fn write() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let results = fs::read_to_string(here.join("RESULTS.md")).expect("the results");
    let path = here.join("../../PROOF.md");
    let page = fs::read_to_string(&path).expect("PROOF.md");
    let (before, rest) = page.split_once(BEGIN).expect("the mark where figures begin");
    let (_, after) = rest.split_once(END).expect("the mark where they end");
    fs::write(path, format!("{before}{BEGIN}\n{}{END}{after}", table(&results))).expect("a file to write to");
}

fn table(results: &str) -> String {
    let columns: Vec<&str> = COLUMNS.iter().map(|(title, _)| *title).collect();
    let mut out =
        format!("| | {} | table |\n| --- |{}\n", columns.join(" | "), " ---: |".repeat(COLUMNS.len()) + " --- |");
    for figure in FIGURES {
        let section = results.split_once(&format!("\n## {}\n", figure.title)).expect("the section").1;
        let section = section.split("\n## ").next().unwrap_or_default();
        let cells: Vec<String> = COLUMNS.iter().map(|(_, peer)| cell(section, &figure, peer)).collect();
        out += &format!("| {} | {} | \"{}\" |\n", figure.label, cells.join(" | "), figure.title);
    }
    out
}

/// Returns the figure from the table's first row whose name is that of the peer and whose second cell matches.
fn cell(section: &str, figure: &Figure, peer: &str) -> String {
    let name = format!("{peer}{}", figure.suffix);
    let name = [name.replace(" GCRA", ", GCRA"), name];
    let rows = section.lines().skip_while(|line| !line.starts_with(figure.table)).skip(2);
    let rows = rows.take_while(|line| line.starts_with('|'));
    let row = rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>());
    let mut fitting = row
        .filter(|row| name.iter().any(|name| row[0] == name) && (figure.second.is_empty() || row[1] == figure.second));
    // The number in brackets is a ratio.
    fitting.next().map_or("–".into(), |row| row[figure.column].split(' ').next().unwrap_or_default().into())
}

struct Figure {
    label: &'static str,
    title: &'static str,
    /// The beginning of the table's heading.
    table: &'static str,
    /// The text after the limiter's name in its row.
    suffix: &'static str,
    /// The second cell of the row, if it is part of the name.
    second: &'static str,
    column: usize,
}

const FIGURES: [Figure; 9] = [
    Figure {
        label: "a decision with one hot key, ns",
        title: "Decisions",
        table: "| one thread, allowed",
        suffix: "",
        second: "",
        column: 1,
    },
    Figure {
        label: "a decision with a million keys, ns",
        title: "Decisions",
        table: "| one thread, allowed",
        suffix: "",
        second: "",
        column: 3,
    },
    Figure {
        label: "bytes per key, with a million keys",
        title: MEMORY,
        table: "| limiter",
        suffix: "",
        second: "1000000",
        column: 2,
    },
    Figure {
        label: "longest call while the table grows, ms",
        title: MEMORY,
        table: "| limiter",
        suffix: "",
        second: "1000000",
        column: 7,
    },
    Figure {
        label: "the layer without headers, ns per request",
        title: "Layers",
        table: "| through",
        suffix: ", no headers",
        second: "allowed",
        column: 3,
    },
    Figure {
        label: "the layer with headers",
        title: "Layers",
        table: "| through",
        suffix: ", headers",
        second: "allowed",
        column: 3,
    },
    Figure {
        label: "a denial, without headers",
        title: "Layers",
        table: "| through",
        suffix: ", no headers",
        second: "denied",
        column: 3,
    },
    Figure {
        label: "a denial, with headers",
        title: "Layers",
        table: "| through",
        suffix: ", headers",
        second: "denied",
        column: 3,
    },
    Figure {
        label: "denials per second over HTTP, with headers",
        title: "Loopback HTTP",
        table: "| denial storm",
        suffix: ", headers",
        second: "",
        column: 1,
    },
];

const MEMORY: &str = "Memory and the longest call";

/// Titles, and their names in the results.
const COLUMNS: [(&str, &str); 6] = [
    ("tollgate", "tollgate"),
    ("governor", "governor"),
    ("tower_governor", "tower_governor"),
    ("axum_gcra", "axum_gcra"),
    ("tower-rate-limiter, GCRA", "tower-rate-limiter GCRA"),
    ("actix-extensible-rate-limit", "actix-extensible-rate-limit"),
];

const BEGIN: &str = "<!-- figures: written by `make bench` -->";
const END: &str = "<!-- /figures -->";
