//! Many threads call one limiter whose clock is stopped. The number of admitted calls must equal the limit, and all
//! threads must finish.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use tollgate::{Charge, HOUR, MemoryBackend, Policy, Quota, RateLimiter, clock::ManualClock};

use crate::support::now;

const THREADS: usize = 8;
const TRIES: usize = 100_000;

#[test]
fn calls_with_one_key_are_admitted_exactly_up_to_the_limit() {
    for quota in
        [Quota::token_bucket(250_000, HOUR), Quota::fixed_window(250_000, HOUR), Quota::sliding_window(250_000, HOUR)]
    {
        let policy = Policy::new("exact", quota);
        let limiter = limiter_with_stopped_clock();
        let admitted = on_all_threads(|_| now(limiter.try_limit(&policy, "hot")).is_allowed());
        assert_eq!(admitted, 250_000, "{quota}");
        assert_eq!(now(limiter.remaining(&policy, "hot")), 0);
    }
}

#[test]
fn calls_with_two_keys_in_either_order_are_admitted_exactly_up_to_the_smaller_limit() {
    let (large, small) = (
        Policy::new("large", Quota::token_bucket(500_000, HOUR)),
        Policy::new("small", Quota::token_bucket(300_000, HOUR)),
    );
    let limiter = limiter_with_stopped_clock();
    let admitted = on_all_threads(|thread| {
        let (a, b) = (Charge::new(&large, "a"), Charge::new(&small, "b"));
        let charges = if thread % 2 == 0 { [a, b] } else { [b, a] };
        now(limiter.try_limit_all(charges)).is_allowed()
    });
    assert_eq!(admitted, 300_000);
    assert_eq!(now(limiter.remaining(&small, "b")), 0);
    assert_eq!(now(limiter.remaining(&large, "a")), 200_000, "a denied call charged the larger limit");
}

#[test]
fn calls_with_three_keys_in_any_order_never_deadlock() {
    let policy = Policy::new("ring", Quota::token_bucket(1_000_000, HOUR));
    let limiter = limiter_with_stopped_clock();
    let calls = AtomicU64::new(0);
    on_all_threads(|thread| {
        // Each thread has its own stride through the keys, so that calls overlap in every order.
        let call = calls.fetch_add(1, Ordering::Relaxed);
        let key = |i: u64| (call + i * (thread as u64 + 1) * 7) % 31;
        now(limiter.try_limit_all([0, 1, 2].map(|i| Charge::new(&policy, key(i))))).is_allowed()
    });
    let spent: u64 = (0..31u64).map(|key| 1_000_000 - now(limiter.remaining(&policy, key))).sum();
    assert_eq!(spent, 3 * (THREADS * TRIES) as u64);
}

fn limiter_with_stopped_clock() -> RateLimiter {
    RateLimiter::new(MemoryBackend::builder().clock(ManualClock::new()).build())
}

/// Starts all threads together, runs `attempt` `TRIES` times on each, and counts how often it returns `true`.
fn on_all_threads(attempt: impl Fn(usize) -> bool + Sync) -> usize {
    let barrier = Barrier::new(THREADS);
    thread::scope(|scope| {
        let run = |thread| {
            let (attempt, barrier) = (&attempt, &barrier);
            move || {
                barrier.wait();
                (0..TRIES).filter(|_| attempt(thread)).count()
            }
        };
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(run(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread panicked")).sum()
    })
}
