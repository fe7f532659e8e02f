//! Eight threads spend one key's tokens, using the system clock.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use tollgate::{HOUR, Policy, Quota, RateLimiter, SECOND};

use crate::support::now;

const THREADS: u32 = 8;
const DURATION: Duration = Duration::from_millis(300);

#[test]
fn eight_threads_never_spend_more_than_the_quota() {
    for shards in [1, 2, 7, 64] {
        let list = [
            (Quota::token_bucket(20_000, SECOND).capacity(5000), true),
            (Quota::token_bucket(50_000, HOUR), false),
            (Quota::fixed_window(50_000, HOUR).start(Duration::ZERO), false),
            (Quota::sliding_window(50_000, HOUR), false),
        ];
        for (quota, refills) in list {
            let policy = Policy::new("hot", quota.shards(shards));
            let limiter = RateLimiter::default();
            let barrier = Barrier::new(THREADS as usize);
            let run = || {
                barrier.wait();
                let began = Instant::now();
                let mut admitted = 0u64;
                while began.elapsed() < DURATION {
                    admitted += u64::from(now(limiter.try_limit(&policy, "all")).is_allowed());
                }
                admitted
            };
            let began = Instant::now();
            let admitted: u64 = thread::scope(|scope| {
                let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(run)).collect();
                threads.into_iter().map(|thread| thread.join().expect("a thread panicked")).sum()
            });
            let refilled = quota.rate() as f64 * began.elapsed().as_secs_f64() / quota.period().as_secs_f64();
            let most = quota.get_capacity() as f64 + refilled;
            assert!(admitted as f64 <= most, "{quota}, {shards} shards: {admitted} > {most}");
            // On a slow machine, the threads may not reach the limit, so the lower bound is small.
            assert!(admitted > 1000, "{quota}, {shards} shards: {admitted}");
            assert!(refills || admitted <= 50_000 + 5, "{quota}, {shards} shards: {admitted}");
        }
    }
}
