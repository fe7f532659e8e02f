//! Measures decisions of tollgate and its peers, interleaved in one process, and then decisions with and without
//! observers. Part of `make bench`.
//!
//! Prints Markdown tables with the median nanoseconds per decision, and the ratio of tollgate to each peer. If the
//! ratio is below 1, tollgate is faster.

use metrics_exporter_prometheus::PrometheusBuilder;
use tollgate::observe::{Metrics, Tracing};
use tollgate::{
    MemoryBackend, Policy, Quota, RateLimiter, SECOND,
    observe::{Decided, Observer},
};
use tollgate_peers::{
    Contestant, Keys, Kind, ROUND, decisions, interleaved, limiters, quick, ratio, ready, refused_to_allowed, rounds,
    rules, spread,
};

pub fn print() {
    let counts = if quick() { [1, 10_000, 50_000, 100_000] } else { [1, 10_000, 1_000_000, 10_000_000] };
    let kinds = [Kind::Allowed, Kind::Denied];
    let measured = counts.map(|keys| decisions(&kinds, keys, &[1, 2], keys == counts[3]));
    let labels = ["one thread, allowed", "two threads, allowed", "one thread, denied", "two threads, denied"];
    for (i, label) in labels.into_iter().enumerate() {
        let columns: Vec<_> = counts.iter().zip(&measured).map(|(keys, of)| (*keys, &of[i])).collect();
        table(label, &columns);
    }
    refusals(&counts);
    charges();
    observers();
}

/// Prints the cost of a denial relative to an allowed call.
fn refusals(counts: &[usize]) {
    // Use only one table of the largest size, because filling it takes longer than everything else.
    let measured: Vec<_> =
        counts.iter().map(|keys| refused_to_allowed(*keys, if *keys > 1_000_000 { 1 } else { 3 })).collect();
    let heads: Vec<_> = counts.iter().map(|keys| counted(*keys)).collect();
    println!("| one thread, denied : allowed (95%) | {} |", heads.join(" | "));
    println!("| --- {}|", "| ---: ".repeat(counts.len()));
    for (i, (name, _)) in measured[0].iter().enumerate() {
        let cells = measured.iter().map(|of| {
            let (middle, low, high) = spread(&of[i].1);
            format!("{middle:.3} ({low:.3} to {high:.3})")
        });
        println!("| {name} | {} |", cells.collect::<Vec<_>>().join(" | "));
    }
    println!();
}

/// Prints a row for each limiter. Some limiters are not measured with the most keys.
fn table(label: &str, columns: &[(usize, &Vec<(&str, f64)>)]) {
    let heads: Vec<_> = columns.iter().map(|(keys, _)| counted(*keys)).collect();
    println!("| {label}: ns (tollgate : peer) | {} |", heads.join(" | "));
    println!("| --- {}|", "| ---: ".repeat(columns.len()));
    for (i, (name, _)) in columns[0].1.iter().enumerate() {
        let cells = columns.iter().map(|(_, column)| match column.get(i) {
            Some((_, ns)) if i == 0 => format!("{ns:.0}"),
            Some((_, ns)) => format!("{ns:.0} ({})", ratio(column[0].1 / ns)),
            None => "–".to_owned(),
        });
        println!("| {name} | {} |", cells.collect::<Vec<_>>().join(" | "));
    }
    println!();
}

fn counted(keys: usize) -> String {
    match keys {
        1 => "hot key".to_owned(),
        keys if keys >= 1_000_000 => format!("{} M keys", keys / 1_000_000),
        keys => format!("{} k keys", keys / 1_000),
    }
}

/// Prints the cost of three charges in one call (all or none), relative to one charge.
fn charges() {
    let keys = Keys::new(10_000);
    let ([one, of_one], [three, of_three]) = (rules(1, 10_000), rules(3, 10_000));
    let single = limiters(Kind::Allowed, 10_000, false).into_iter().find(|it| it.name == "tollgate, awaited");
    let single = single.expect("one of them");
    let times = timed(&[single, one, three, of_one, of_three], &keys);
    println!("| charges in one call, 10 k keys | one, ns | three, ns | three : one |");
    println!("| --- | ---: | ---: | ---: |");
    for (label, one, three) in [
        ("tollgate, `limit` to `limit_all`", times[0], times[2]),
        ("tollgate, `limit_all` to `limit_all`", times[1], times[2]),
        ("governor, one limiter after the other", times[3], times[4]),
    ] {
        println!("| {label} | {one:.0} | {three:.0} | {} |", ratio(three / one));
    }
    println!();
}

fn timed(all: &[Contestant], keys: &Keys) -> Vec<f64> {
    all.iter().for_each(|it| it.fill(keys));
    let mut cursors = vec![0; all.len()];
    interleaved(rounds(), all.len(), |i| all[i].time(Kind::Allowed, keys, &mut cursors[i], ROUND))
}

/// Prints the cost of observers.
fn observers() {
    let keys = Keys::new(10_000);
    let builder = || RateLimiter::builder(MemoryBackend::builder().max_rows(100_000).build());
    let limiters = [
        ("none", builder().build()),
        ("a no-op observer", builder().observer(Nothing).build()),
        ("Tracing, no subscriber", builder().observer(Tracing::new()).build()),
        ("Metrics, no exporter", builder().observer(Metrics::new()).build()),
        ("Metrics, Prometheus", builder().observer(Metrics::new()).build()),
    ];
    let policy = Policy::new("bench", Quota::token_bucket(1, SECOND).capacity(4_000_000_000));
    let all = limiters.map(|(name, limiter)| {
        let policy = policy.clone();
        Contestant::new(name, move |key| ready(limiter.try_limit(&policy, key)).expect("in memory").is_allowed())
    });
    let prometheus = PrometheusBuilder::new().build_recorder();
    for (i, it) in all.iter().enumerate() {
        // The metrics stay with the recorder that is installed at their first use.
        let fill = || it.fill(&keys);
        if i + 1 == all.len() { metrics::with_local_recorder(&prometheus, fill) } else { fill() }
    }
    let mut cursors = vec![0; all.len()];
    let times = interleaved(rounds(), all.len(), |i| {
        prometheus.handle().run_upkeep();
        all[i].time(Kind::Allowed, &keys, &mut cursors[i], ROUND)
    });
    println!("| observer, 10 k keys, allowed | ns | to none |");
    println!("| --- | ---: | ---: |");
    for (it, time) in all.iter().zip(&times) {
        println!("| {} | {time:.0} | {} |", it.name, ratio(time / times[0]));
    }
}

struct Nothing;

impl Observer for Nothing {
    fn decided(&self, _: &Decided<'_>) {}
}
