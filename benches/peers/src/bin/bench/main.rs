//! Runs the benchmarks and stores the tables. Run it with `make bench`, or with `make bench TABLES="layer http"`.
//!
//! Each part runs in a separate process, `bench print PART`. Its output is stored in `RESULTS.md`, with the machine, the date
//! and the commit. Parts that were not measured stay unchanged. The figures in PROOF.md are copied from `RESULTS.md`.
//!
//! `TOLLGATE_BENCH=quick` is a smoke test that stores nothing.

mod allocations;
mod decision;
mod deny;
mod figures;
mod http;
mod layer;
mod memory;
mod plots;

use std::path::Path;
use std::process::{Command, Stdio};
use std::{env, fs};

use tollgate_peers::{Counting, described, quick};

#[global_allocator]
static COUNTING: Counting = Counting;

/// The name, title, notes and function of each part.
type Part = (&'static str, &'static str, &'static str, fn());

const PARTS: [Part; 7] = [
    (
        "decision",
        "Decisions",
        "String keys of 18 to 24 bytes, used in turn. Calls are back to back, so that cache misses overlap. Fixed windows\n\
         (actix-extensible-rate-limit, limitador, tower-rate-limiter's default) do less work than a token bucket or GCRA.\n\
         Peers that take ownership of the key get a clone.",
        decision::print,
    ),
    (
        "memory",
        "Memory and the longest call",
        "Tables that grow from empty, with a new key in each call. Bytes are those requested from the allocator. `max_rows`\n\
         exceeds the number of keys.",
        memory::print,
    ),
    (
        "layer",
        "Layers",
        "10,000 addresses from `ConnectInfo`. tower_governor creates a clock for each denial, which is slow on virtual\n\
         machines that trap CPUID.",
        layer::print,
    ),
    (
        "allocations",
        "Allocations",
        "The number of allocations beyond those of the service without a layer.",
        allocations::print,
    ),
    (
        "http",
        "Loopback HTTP",
        "axum servers run on the first core, the client on the second. 64 connections from one address, without pipelining.",
        http::print,
    ),
    ("plots", "Plots", "The data of the plots.", plots::print),
    ("deny", "Deny lists", "Lookups of an address, by the length of the list.", deny::print),
];

fn main() {
    let arguments: Vec<_> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["print", wanted] => PARTS.iter().filter(|(name, ..)| *name == wanted).for_each(|(.., print)| print()),
        ["readme"] => figures::write(),
        ["grow", limiter, keys] => memory::grow(limiter, keys.parse().expect("a number")),
        ["serve", stack, kind] => http::run(stack, kind),
        ref wanted => measure(wanted),
    }
}

fn measure(wanted: &[&str]) {
    let all = wanted.is_empty() || wanted.contains(&"all");
    if let Some(unknown) = wanted.iter().find(|it| **it != "all" && PARTS.iter().all(|(name, ..)| name != *it)) {
        eprintln!("unknown table {unknown:?}; tables: {}", PARTS.map(|(name, ..)| name).join(", "));
        std::process::exit(2);
    }
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("RESULTS.md");
    let program = env::current_exe().expect("this program");
    for (name, title, about, _) in PARTS.into_iter().filter(|(name, ..)| all || wanted.contains(name)) {
        eprintln!("measuring: {title}");
        let output = Command::new(&program).args(["print", name]).stderr(Stdio::inherit()).output();
        let output = output.expect("this program, again");
        assert!(output.status.success(), "{name} failed");
        let tables = String::from_utf8(output.stdout).expect("text");
        let part = format!("## {title}\n{}\n\n{about}\n\n{}\n", described(), tables.trim_end());
        println!("{part}");
        if !quick() {
            let kept = fs::read_to_string(&results).unwrap_or_default();
            fs::write(&results, with_part(&kept, title, &part)).expect("a file to write to");
        }
    }
    if !quick() {
        figures::write();
    }
}

/// Returns the stored results with one part replaced, in the order of [`PARTS`].
fn with_part(kept: &str, title: &str, part: &str) -> String {
    let mut out = String::from(HEAD);
    for (_, other, ..) in PARTS {
        if other == title {
            out.push_str(part);
        } else if let Some(begin) = kept.find(&format!("## {other}\n")) {
            let rest = &kept[begin..];
            let end = rest[2..].find("\n## ").map_or(rest.len(), |end| end + 3);
            out.push_str(&rest[..end]);
        } else {
            continue;
        }
        if !out.ends_with("\n\n") {
            out.push('\n');
        }
    }
    out.truncate(out.trim_end().len());
    out + "\n"
}

const HEAD: &str = "# Beside other crates\n\n\
    Written by `make bench`; do not edit. The contestants of each part were measured in one run, in turns. The figures are medians.\n\
    Compare the ratios: absolute figures depend on the machine.\n\n";
