//! Decisions of tollgate beside governor's, in one process, the two in turn; then with observers beside without: `make
//! bench`.
//!
//! Prints Markdown tables of nanoseconds a decision and their ratio, both medians over the rounds. Machines are noisy: the
//! ratio is what to read.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use metrics_exporter_prometheus::PrometheusBuilder;
use tollgate::observe::{Metrics, Tracing};
use tollgate::{DecisionFuture, MemoryBackend, Observed, Observer, Policy, Quota, RateLimiter, SECOND};

const ROUNDS: usize = 15;
const ROUND: Duration = Duration::from_millis(40);

fn main() {
    println!("| String keys | tollgate ns | governor ns | tollgate : governor |");
    println!("| --- | ---: | ---: | ---: |");
    for (label, keys) in [("1, hot", 1), ("10,000", 10_000), ("1,000,000", 1_000_000)] {
        let keys = Keys::new(keys);
        row(&format!("{label}, allowed"), &keys, Quota::token_bucket(1, SECOND).capacity(4_000_000_000), u32::MAX);
        row(&format!("{label}, denied"), &keys, Quota::token_bucket(1, tollgate::HOUR), 1);
    }
    println!();
    println!("| Observer, 10,000 String keys, allowed | ns | to none |");
    println!("| --- | ---: | ---: |");
    observers(&Keys::new(10_000));
}

/// What it costs to be watched.
fn observers(keys: &Keys) {
    let policy = Policy::new("bench", Quota::token_bucket(1, SECOND).capacity(4_000_000_000));
    let builder = || RateLimiter::builder(MemoryBackend::builder().max_rows(4 * keys.0.len()).build());
    let limiters = [
        ("none", builder().build()),
        ("one that does nothing", builder().observer(Nothing).build()),
        ("Tracing, nobody listens", builder().observer(Tracing::new()).build()),
        ("Metrics, no exporter", builder().observer(Metrics::new()).build()),
        ("Metrics, Prometheus", builder().observer(Metrics::new()).build()),
    ];
    let call = |limiter: &RateLimiter, key: &String| ready(limiter.limit(&policy, key));
    let prometheus = PrometheusBuilder::new().build_recorder();
    for (i, (_, limiter)) in limiters.iter().enumerate() {
        let warm = || assert!(keys.0.iter().all(|key| call(limiter, key)));
        // The series of the last stay with the exporter that is there when they are first written to.
        if i + 1 == limiters.len() { metrics::with_local_recorder(&prometheus, warm) } else { warm() }
    }
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); limiters.len()];
    for round in 0..ROUNDS {
        for i in 0..limiters.len() {
            // Each is first, and last, as often as the others.
            let i = (i + round) % limiters.len();
            times[i].push(time(keys, |key| call(&limiters[i].1, key)));
        }
        prometheus.handle().run_upkeep();
    }
    let times: Vec<f64> = times.into_iter().map(median).collect();
    for ((label, _), time) in limiters.iter().zip(&times) {
        println!("| {label} | {time:.0} | {:.2} |", time / times[0]);
    }
}

struct Nothing;

impl Observer for Nothing {
    fn decided(&self, _: &Observed<'_>) {}
}

fn row(label: &str, keys: &Keys, quota: Quota, burst: u32) {
    let policy = Policy::new("bench", quota);
    let limiter = RateLimiter::new(MemoryBackend::builder().max_rows(4 * keys.0.len()).build());
    let peer = governor::RateLimiter::keyed(
        governor::Quota::with_period(quota.period())
            .expect("a period")
            .allow_burst(NonZeroU32::new(burst).expect("a burst")),
    );
    let ours = |key: &String| ready(limiter.limit(&policy, key));
    let theirs = |key: &String| peer.check_key(key).is_ok();
    for key in &keys.0 {
        ours(key);
        theirs(key);
    }
    let (mut mine, mut other) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        // Whoever goes second finds a warmer machine: take turns.
        if round % 2 == 0 {
            mine.push(time(keys, ours));
            other.push(time(keys, theirs));
        } else {
            other.push(time(keys, theirs));
            mine.push(time(keys, ours));
        }
    }
    let (mine, other) = (median(mine), median(other));
    println!("| {label} | {mine:.0} | {other:.0} | {:.2} |", mine / other);
}

/// Nanoseconds a call, over one round.
fn time<T>(keys: &Keys, mut call: impl FnMut(&String) -> T) -> f64 {
    let begin = Instant::now();
    let mut calls = 0u64;
    while begin.elapsed() < ROUND {
        for _ in 0..1000 {
            black_box(call(black_box(&keys.0[calls as usize % keys.0.len()])));
            calls += 1;
        }
    }
    begin.elapsed().as_nanos() as f64 / calls as f64
}

fn ready(future: DecisionFuture) -> bool {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(decision) => decision.expect("in memory").is_allowed(),
        Poll::Pending => unreachable!("in memory"),
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Keys of 16 to 24 bytes, shuffled so that the table is not walked in the order in which it was filled.
struct Keys(Vec<String>);

impl Keys {
    fn new(count: usize) -> Keys {
        let mut keys: Vec<String> = (0..count).map(|i| format!("user-{:011x}-{i}", i * 7919)).collect();
        let mut dice = 0x9e37_79b9_7f4a_7c15u64;
        for i in (1..count).rev() {
            dice ^= dice >> 12;
            dice ^= dice << 25;
            dice ^= dice >> 27;
            keys.swap(i, (dice.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % (i + 1));
        }
        Keys(keys)
    }
}
