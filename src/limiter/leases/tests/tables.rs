//! The tables and plots of the simulation, and small runs with every load and every fault.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use super::faults::Fault;
use super::load::Load;
use super::plot::{Line, Plot};
use super::{Mode, Outcome, Setting, Simulation};
use crate::algorithm::SECOND;

const MODES: [(Mode, &str); 4] =
    [(Mode::Plain, "plain"), (Mode::Leases, "leases"), (Mode::Shards, "shards"), (Mode::Shares, "shares")];

const LOADS: [(Load, &str); 4] = [
    (Load::Even(2.0), "Twice the limit, spread evenly"),
    (Load::Even(0.5), "Half the limit, spread evenly"),
    (Load::Skewed, "Twice the limit, skewed"),
    (Load::Bursty, "Twice the limit, in bursts"),
];

const FAULTS: [(Option<Fault>, &str); 6] = [
    (None, "none"),
    (Some(Fault::Loss), "5% of all messages are lost"),
    (Some(Fault::Crashes), "half of the processes restart every second"),
    (Some(Fault::Partition), "a quarter of the processes are cut off for 3 s"),
    (Some(Fault::Drift), "clocks run up to 1% fast or slow"),
    (Some(Fault::Failover), "a failover loses the last 100 ms"),
];

const PROCESSES: [usize; 5] = [1, 8, 64, 512, 1000];
const LIMITS: [u64; 5] = [10, 100, 1000, 10_000, 100_000];

fn setting(mode: Mode, load: Load, processes: usize, limit: u64) -> Setting {
    Setting { mode, processes, limit, load, round_trip: Duration::from_millis(1), fault: None }
}

#[test]
fn leases_stay_within_the_bound_and_admit_enough_calls_under_every_load() {
    for (load, name) in LOADS {
        for (processes, limit) in [(1, 100), (8, 1000), (64, 10_000)] {
            let outcome = Simulation::run(setting(Mode::Leases, load, processes, limit));
            let Outcome { utilization, calls_per_decision: calls, over, .. } = outcome;
            assert!(over < 1e-6, "{name}, {processes} processes, limit {limit}: {over} calls too many");
            assert!(utilization > 0.9, "{name}, {processes} processes, limit {limit}: utilization {utilization}");
            let most = if processes == 1 { 0.15 } else { 0.1 };
            assert!(calls < most, "{name}, {processes} processes, limit {limit}: {calls} calls per decision");
        }
    }
}

#[test]
fn leases_stay_within_the_bound_under_every_fault_except_a_failover() {
    for (fault, name) in FAULTS {
        for mode in [Mode::Plain, Mode::Leases] {
            let outcome = Simulation::run(Setting { fault, ..setting(mode, Load::Even(2.0), 8, 1000) });
            // A failover loses up to 100 ms of writes, so the tokens spent in that time may be spent again.
            let most = if fault == Some(Fault::Failover) { 500.0 } else { 1e-6 };
            assert!(outcome.over < most, "{name}: {} calls too many", outcome.over);
            assert!(outcome.utilization > 0.5, "{name}: utilization {}", outcome.utilization);
        }
    }
}

#[test]
#[ignore = "takes minutes; prints the tables and writes the plots"]
fn tables() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut page = String::from(HEAD);
    let (mut calls, mut skewed) = (Vec::new(), Vec::new());
    for (load, name) in LOADS {
        let _ = writeln!(page, "\n## {name}\n\n{COLUMNS}");
        let outcomes: Vec<_> = MODES.map(|(mode, name)| (name, all(mode, load))).into();
        for (i, processes) in PROCESSES.into_iter().enumerate() {
            for (j, limit) in LIMITS.into_iter().enumerate() {
                let cells: Vec<_> = outcomes.iter().map(|(_, outcomes)| cell(&outcomes[i][j])).collect();
                let _ = writeln!(page, "| {processes} | {limit} | {} |", cells.join(" | "));
            }
        }
        let line = |name: &str, values: Vec<f64>| Line { name: name.into(), values };
        if load == Load::Even(2.0) {
            let of_eight = |outcomes: &[Vec<Outcome>]| outcomes[1].iter().map(|o| o.calls_per_decision).collect();
            calls = outcomes[..3].iter().map(|(name, outcomes)| line(name, of_eight(outcomes))).collect();
        }
        if load == Load::Skewed {
            let at_ten_thousand = |outcomes: &[Vec<Outcome>]| outcomes.iter().map(|o| o[3].utilization).collect();
            skewed = outcomes.iter().map(|(name, outcomes)| line(name, at_ten_thousand(outcomes))).collect();
        }
    }
    page += &faults();
    let plots = root.join("src/docs/plots");
    let calls = Plot {
        title: "Calls to the server per decision, eight processes at twice the limit",
        description: described("Calls to the server per decision, for limits of 10 to 100,000 per second", &calls),
        below: "limit per second",
        unit: "calls per decision",
        marks: LIMITS.map(|limit| limit.to_string()).into(),
        lines: calls,
    };
    std::fs::write(plots.join("leases.svg"), calls.svg()).unwrap();
    let skewed = Plot {
        title: "The share of the limit that is used under a skewed load",
        description: described("Admitted calls relative to one central bucket, for 1 to 1,000 processes", &skewed),
        below: "processes",
        unit: "admitted calls, relative to a central bucket",
        marks: PROCESSES.map(|processes| processes.to_string()).into(),
        lines: skewed,
    };
    std::fs::write(plots.join("leases_admitted.svg"), skewed.svg()).unwrap();
    eprintln!("{page}");
}

/// The outcomes of one mode: a row for each number of processes, with a column for each limit.
fn all(mode: Mode, load: Load) -> Vec<Vec<Outcome>> {
    let of = |processes: usize| LIMITS.map(|limit| Simulation::run(setting(mode, load, processes, limit))).into();
    PROCESSES.into_iter().map(of).collect()
}

fn faults() -> String {
    let mut page = format!("\n## Faults\n\n{FAULTS_HEAD}");
    for (processes, limit) in [(8, 1000), (64, 10_000), (512, 10_000)] {
        for round_trip in [SECOND / 1000, SECOND / 20] {
            for (fault, name) in FAULTS {
                let setting = |mode| {
                    let setting = setting(mode, Load::Even(2.0), processes, limit);
                    Setting { fault, round_trip, ..setting }
                };
                let cells = [Mode::Plain, Mode::Leases].map(|mode| cell(&Simulation::run(setting(mode))));
                let millis = round_trip.as_millis();
                let _ = writeln!(page, "| {processes} | {limit} | {millis} ms | {name} | {} |", cells.join(" | "));
            }
        }
    }
    page
}

fn cell(outcome: &Outcome) -> String {
    let Outcome { utilization, unluckiest, calls_per_decision, over } = outcome;
    let unluckiest = unluckiest.map_or_else(|| "-".to_owned(), |part| format!("{part:.2}"));
    let over = if *over > 1e-6 { format!(" **+{over:.0}**") } else { String::new() };
    format!("{utilization:.2} {unluckiest} {calls_per_decision:.3}{over}")
}

fn described(what: &str, lines: &[Line]) -> String {
    let line = |line: &Line| {
        let values: Vec<_> = line.values.iter().map(|value| format!("{value:.3}")).collect();
        format!("{}: {}", line.name, values.join(", "))
    };
    format!("{what}. {}.", lines.iter().map(line).collect::<Vec<_>>().join("; "))
}

const HEAD: &str = "\
# Leases, simulated

Written by `make simulate`; do not edit. The simulation runs the crate's own algebra and lease code in virtual time. All
processes share the limit of one key. Calls arrive at random (Poisson) times. After a warm-up of two seconds, calls are
counted for eight seconds, or for 80 seconds if the limit is at most 100. A message takes 0.5 ms in each direction,
except in the table of faults. The limit is a token bucket that is refilled in one second.

- **plain**: one row on the server; a process remembers denials.
- **leases**: like plain, but with leases.
- **shards**: like plain, but with up to 16 shards of at least ten tokens each.
- **shares**: each process has its own equal share of the limit, and never contacts the server.

Each cell has three figures. The first is the number of admitted calls, relative to what one central bucket would admit.
The second is the number of admitted calls of the unluckiest process, relative to its fair share, which is proportional
to its demand. It is `-` if every fair share is less than 20 calls. The third is the number of calls to the server per
decision. A bold figure is the number of calls beyond the bound of the quota.

In a skewed load, the demand of process `i` is proportional to `1 / (i + 1)`. In a bursty load, each process makes calls
only during one second out of every four.
";

const COLUMNS: &str = "\
| processes | limit/s | plain | leases | shards | shares |
| ---: | ---: | --- | --- | --- | --- |";

const FAULTS_HEAD: &str = "\
The load is twice the limit. The bound can be exceeded only after a failover, because the replica lacks the last writes.

| processes | limit/s | round trip | fault | plain | leases |
| ---: | ---: | ---: | --- | --- | --- |
";
