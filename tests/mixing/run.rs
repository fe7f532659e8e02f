//! Runs histories: for how long, with which seeds, what is counted, and how a failing history is shortened.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::Write;
use std::time::{Duration, Instant, SystemTime};

use super::known::Finding;

/// What one history did.
#[derive(Debug, Default)]
pub(crate) struct Played {
    /// The names of the operations that were carried out.
    pub(crate) done: Vec<&'static str>,
    pub(crate) findings: Vec<Finding>,
}

/// Plays histories and fails if any of them has a finding that is not tolerated.
///
/// By default, plays `histories` histories with the same seeds in every run. If `TOLLGATE_MIXING` is set, plays new
/// histories for that many seconds. `TOLLGATE_MIXING_SEED` plays only the history with that seed.
pub(crate) fn histories<W: Debug, O: Clone + Debug>(
    name: &str,
    histories: u64,
    generate: impl Fn(u64) -> (W, Vec<O>),
    mut play: impl FnMut(&W, &[O]) -> Played,
) {
    let variable = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("expected a number"));
    let (seconds, only) = (variable("TOLLGATE_MIXING"), variable("TOLLGATE_MIXING_SEED"));
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a time after 1970");
    let first = only.unwrap_or(if seconds.is_some() { now.as_micros() as u64 } else { 1 });
    let (began, mut shown) = (Instant::now(), Instant::now());
    let (mut counts, mut findings) = (BTreeMap::<&str, u64>::new(), BTreeMap::<String, (u64, bool)>::new());
    let (mut played, mut operations) = (0, 0);
    let is_over = |played: u64| match seconds {
        _ if only.is_some() => played > 0,
        Some(seconds) => began.elapsed() >= Duration::from_secs(seconds),
        None => played >= histories,
    };
    while !is_over(played) {
        let seed = first + played;
        let (world, history) = generate(seed);
        let result = play(&world, &history);
        played += 1;
        operations += result.done.len();
        result.done.iter().for_each(|name| *counts.entry(name).or_default() += 1);
        for finding in &result.findings {
            let mut kind = finding.kind();
            let has = |result: &Played| result.findings.iter().find(|other| other.kind() == finding.kind()).cloned();
            let is_tolerated = finding.is_tolerated();
            // The crate draws shards and the places of offenders at random. Two offenders in one place, for example, may
            // be counted less, as documented. What cannot be repeated is listed, but is no failure.
            if !is_tolerated && !findings.contains_key(&kind) && !(0..5).any(|_| has(&play(&world, &history)).is_some())
            {
                kind = format!("seed {seed}, not repeated: {}", finding.text);
            }
            let is_listed_only = is_tolerated || kind.starts_with("seed ");
            let (count, _) = findings.entry(kind.clone()).or_insert((0, is_listed_only));
            *count += 1;
            if *count == 1 && !is_listed_only {
                let short = shortened(&history, |history| has(&play(&world, history)).is_some());
                let text = has(&play(&world, &short)).unwrap_or_else(|| finding.clone()).text;
                let mut report = format!("{name}: seed {seed}: {text}\nworld: {world:?}\n");
                short.iter().for_each(|operation| report += &format!("  {operation:?}\n"));
                print(&report);
            }
        }
        if shown.elapsed() > Duration::from_secs(55) {
            shown = Instant::now();
            print(&format!(
                "{name}: {} s, {played} histories, {operations} operations, findings: {}\n",
                began.elapsed().as_secs(),
                listed(&findings)
            ));
        }
    }
    let counts: Vec<String> = counts.iter().map(|(name, count)| format!("{count} × {name}")).collect();
    print(&format!(
        "{name}: first seed {first}, {played} histories, {operations} operations in {:.1} s: {}; findings: {}\n",
        began.elapsed().as_secs_f64(),
        counts.join(", "),
        listed(&findings)
    ));
    let bad = findings.values().filter(|(_, is_tolerated)| !is_tolerated).count();
    assert_eq!(bad, 0, "{name}: {bad} kinds of findings, shown above");
}

fn listed(findings: &BTreeMap<String, (u64, bool)>) -> String {
    if findings.is_empty() {
        return "none".to_owned();
    }
    let tolerated = |is: &bool| if *is { " (tolerated)" } else { "" };
    let one = |(kind, (count, is)): (&String, &(u64, bool))| format!("{count} × {kind}{}", tolerated(is));
    findings.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// Leaves out operations as long as the rest still fails.
fn shortened<O: Clone>(history: &[O], mut fails: impl FnMut(&[O]) -> bool) -> Vec<O> {
    let (mut short, began) = (history.to_vec(), Instant::now());
    // Shards are drawn at random, so a history may fail only sometimes.
    let mut still_fails = |history: &[O]| (0..3).any(|_| fails(history));
    let mut size = short.len().div_ceil(2);
    loop {
        let (mut begin, mut changed) = (0, false);
        while begin < short.len() && began.elapsed() < Duration::from_secs(20) {
            let end = (begin + size).min(short.len());
            let fewer = [&short[..begin], &short[end..]].concat();
            if still_fails(&fewer) {
                (short, changed) = (fewer, true);
            } else {
                begin = end;
            }
        }
        if size == 1 && !changed || began.elapsed() >= Duration::from_secs(20) {
            return short;
        }
        size = size.div_ceil(2);
    }
}

/// Prints to the terminal, because the test harness captures the output of `println!`.
fn print(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}
