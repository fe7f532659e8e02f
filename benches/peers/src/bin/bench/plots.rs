//! Prints the cost of a decision for different numbers of keys, threads and charges as Markdown tables, and draws the
//! first of them in `benches/peers/plots/keys.svg`. Part of `make bench`.

use std::path::Path;

use tollgate_peers::{Keys, Kind, Line, Plot, ROUND, decisions, interleaved, quick, rounds, rules};

pub fn print() {
    let most = if quick() { 5 } else { 7 };
    let keys: Vec<usize> = (3..=most).map(|power| 10usize.pow(power)).collect();
    let measured = keys.iter().map(|keys| decisions(&[Kind::Allowed], *keys, &[1], true).remove(0)).collect();
    let marks: Vec<String> = keys.iter().map(|keys| counted(*keys)).collect();
    let lines = table("keys", &marks, measured);
    draw("keys", "A decision with more and more keys", marks, lines);

    let threads = [1, 2, 4, 8];
    let measured = decisions(&[Kind::Allowed], 10_000, &threads, true);
    let marks: Vec<String> = threads.iter().map(|threads| threads.to_string()).collect();
    table("threads, 10,000 keys", &marks, measured);

    let counts: Vec<usize> = (1..=8).collect();
    let keys = Keys::new(10_000);
    let mut all: Vec<_> = counts.iter().flat_map(|count| rules(*count, 10_000)).collect();
    all.iter_mut().for_each(|it| it.fill(&keys));
    let mut cursors = vec![0; all.len()];
    let times = interleaved(rounds(), all.len(), |i| all[i].time(Kind::Allowed, &keys, &mut cursors[i], ROUND));
    let names = ["tollgate, all or none", "governor, one by one"];
    let measured = times.chunks(2).map(|pair| names.into_iter().zip(pair.iter().copied()).collect()).collect();
    let marks: Vec<String> = counts.iter().map(|count| count.to_string()).collect();
    table("charges, 10,000 keys", &marks, measured);
}

/// Prints a table, and returns its lines. `measured` contains the nanoseconds of each line at each mark.
fn table(below: &str, marks: &[String], measured: Vec<Vec<(&str, f64)>>) -> Vec<Line> {
    println!("| {below} | {} |", marks.join(" | "));
    println!("| --- {}|", "| ---: ".repeat(marks.len()));
    let lines: Vec<Line> = (0..measured[0].len())
        .map(|i| Line { name: measured[0][i].0.to_owned(), values: measured.iter().map(|at| at[i].1).collect() })
        .collect();
    for line in &lines {
        let values: Vec<_> = line.values.iter().map(|value| format!("{value:.0}")).collect();
        println!("| {}, ns | {} |", line.name, values.join(" | "));
    }
    println!();
    lines
}

fn draw(name: &'static str, title: &'static str, marks: Vec<String>, lines: Vec<Line>) {
    println!("![{title}](plots/{name}.svg)\n");
    let first = &lines[0];
    let (from, to) = (first.values[0], first.values[first.values.len() - 1]);
    let description = format!(
        "Nanoseconds per decision; {} goes from {from:.0} at {} to {to:.0} at {}.",
        first.name,
        marks[0],
        marks[marks.len() - 1]
    );
    let svg = Plot { title, description, below: name, unit: "ns per decision", marks, lines }.svg();
    // A quick run must not overwrite the plots.
    let folder = if quick() { std::env::temp_dir() } else { Path::new(env!("CARGO_MANIFEST_DIR")).join("plots") };
    std::fs::create_dir_all(&folder).expect("a folder for plots");
    std::fs::write(folder.join(name).with_extension("svg"), svg).expect("a file to write to");
}

fn counted(keys: usize) -> String {
    match keys {
        keys if keys >= 1_000_000 => format!("{} M", keys / 1_000_000),
        keys => format!("{} k", keys / 1_000),
    }
}
