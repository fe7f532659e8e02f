//! Eight threads that spend one key's tokens in memory.

use std::fmt::Write;
use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use tollgate::{Policy, Quota, RateLimiter, SECOND};
use tollgate_peers::{Line, median, quick, ready, rounds_of};

use crate::{ENDLESS, SHARDS, policies, relative};

pub const ABOUT: &str = "Eight threads call one limiter in memory as fast as they can. \"Allowed\": the quota never denies. \"Saturated\": it\n\
    allows 100,000 calls per second, a small part of the calls. A call that is denied tries two shards. On two cores,\n\
    at most two of the threads run at the same time and rarely wait for one another, so shards only cost time here.";

const THREADS: usize = 8;
const SATURATED: Quota = Quota::token_bucket(100_000, SECOND);

/// Returns the table, and adds its lines to the plot.
pub fn measure(lines: &mut Vec<Line>) -> String {
    let mut table = "| load | shards | decisions/s | to one shard |\n| --- | ---: | ---: | ---: |\n".to_owned();
    let (rounds, round) = if quick() { (3, 20) } else { (21, 100) };
    for (load, quota) in [("allowed", ENDLESS), ("saturated", SATURATED)] {
        let policies = policies(quota);
        let limiters = SHARDS.map(|_| RateLimiter::default());
        let measured =
            rounds_of(rounds, SHARDS.len(), |i| per_second(&limiters[i], &policies[i], Duration::from_millis(round)));
        let mut values = Vec::new();
        for (shards, figures) in SHARDS.iter().zip(&measured) {
            let (ratio, text) = relative(figures, &measured[0]);
            let _ = writeln!(table, "| {load} | {shards} | {:.0} | {text} |", median(figures.clone()));
            values.push(ratio);
        }
        lines.push(Line { name: format!("8 threads, {load}"), values });
    }
    table
}

fn per_second(limiter: &RateLimiter, policy: &Policy, round: Duration) -> f64 {
    let barrier = Barrier::new(THREADS);
    let run = || {
        barrier.wait();
        let (begin, mut calls) = (Instant::now(), 0u64);
        while begin.elapsed() < round {
            for _ in 0..100 {
                let decision = ready(limiter.try_limit(policy, "all")).expect("decided");
                black_box(decision.is_allowed());
            }
            calls += 100;
        }
        calls as f64 / begin.elapsed().as_secs_f64()
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(run)).collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread")).sum()
    })
}
