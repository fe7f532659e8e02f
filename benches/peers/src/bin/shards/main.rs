//! Measures quotas that are divided into shards: `make bench-shards`.
//!
//! Prints Markdown tables, and writes the plots to `src/docs/plots`. Starts a Redis cluster of three nodes on this
//! machine. `TOLLGATE_BENCH=quick` is a smoke test that stores nothing.

#[allow(dead_code)] // Shared with the tests.
#[path = "../../../../../tests/support/cluster_server.rs"]
mod cluster_server;
#[allow(dead_code)]
#[path = "../../../../../tests/support/ports.rs"]
mod ports;
#[allow(dead_code, unexpected_cfgs)]
#[path = "../../../../../tests/support/server.rs"]
mod server;

mod cluster;
mod demand;
mod memory;
mod saturation;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use tollgate::{Policy, Quota};
use tollgate_peers::{Line, Plot, described, quick, spread};

const SHARDS: [u64; 3] = [1, 4, 16];

/// A quota that never denies.
const ENDLESS: Quota = Quota::token_bucket(1_000_000_000_000, tollgate::SECOND);

fn main() {
    let (mut page, mut faster) = (format!("{HEAD}{}\n\n", described()), Vec::new());
    eprintln!("measuring threads");
    page += &section("Eight threads", memory::ABOUT, &memory::measure(&mut faster));
    eprintln!("measuring a cluster");
    let (throughput, cluster_admitted) = cluster::measure(&mut faster);
    page += &section("A cluster", cluster::ABOUT, &throughput);
    eprintln!("measuring saturated quotas");
    let (admitted, lines) = saturation::measure();
    page += &section("The share of a saturated limit", saturation::ABOUT, &admitted);
    page += &section("The share of a saturated limit on the cluster", cluster::ABOUT_SATURATED, &cluster_admitted);
    println!("{page}");
    // A quick run must not overwrite the plots.
    let plots = match quick() {
        true => std::env::temp_dir(),
        false => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../src/docs/plots"),
    };
    let throughput = Plot {
        title: "Throughput of one busy key, relative to one shard",
        description: described_lines("Decisions per second relative to one shard", &faster),
        below: "shards (* of the busiest node)",
        unit: "ratio to one shard",
        marks: marks(),
        lines: faster,
    };
    fs::write(plots.join("shards.svg"), throughput.svg()).expect("a file to write to");
    let admitted = Plot {
        title: "The share of the limit that is admitted at a demand of twice the limit",
        description: described_lines("The share of the limit that is admitted", &lines),
        below: "shards",
        unit: "admitted : limit",
        marks: marks(),
        lines,
    };
    fs::write(plots.join("shards_admitted.svg"), admitted.svg()).expect("a file to write to");
}

fn section(title: &str, about: &str, tables: &str) -> String {
    format!("## {title}\n\n{about}\n\n{}\n\n", tables.trim_end())
}

fn marks() -> Vec<String> {
    SHARDS.iter().map(u64::to_string).collect()
}

fn described_lines(what: &str, lines: &[Line]) -> String {
    let each = lines.iter().map(|line| {
        let values: Vec<_> = line.values.iter().map(|value| format!("{value:.2}")).collect();
        format!("{}: {}", line.name, values.join(", "))
    });
    format!("{what} with 1, 4 and 16 shards. {}.", each.collect::<Vec<_>>().join("; "))
}

/// Returns the busy key's policy for each number of shards.
fn policies(quota: Quota) -> [Arc<Policy>; SHARDS.len()] {
    SHARDS.map(|shards| Arc::new(Policy::new("hot", quota.shards(shards))))
}

/// Returns the median ratio of two figures from the same round, and a text that contains the ratio's 95% interval.
fn relative(figures: &[f64], to: &[f64]) -> (f64, String) {
    let ratios: Vec<f64> = figures.iter().zip(to).map(|(figure, to)| figure / to).collect();
    let (middle, low, high) = spread(&ratios);
    (middle, format!("{middle:.2} ({low:.2} to {high:.2})"))
}

const HEAD: &str = "# Shards\n\n\
    Written by `make bench-shards`; do not edit. All calls use one key. Figures are medians of interleaved rounds. Ratios\n\
    are taken within a round; the interval in brackets contains the median with a probability of 95%.\n\n";
