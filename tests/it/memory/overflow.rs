//! Tests of a full table: several keys share an overflow row, and denied keys keep their rows.

use tollgate::{DAY, MemoryBackend, Policy, Quota, RateLimiter, clock::ManualClock};

use crate::support::now;

/// Returns a limiter whose table is full of rows that deny requests.
fn full(policy: &Policy, rows: usize) -> RateLimiter {
    let limiter = RateLimiter::new(MemoryBackend::builder().max_rows(rows).clock(ManualClock::new()).build());
    for key in 0..20 * rows {
        drop(now(limiter.try_acquire(policy, ("full", key)).cost(policy.quotas()[0].get_capacity())));
    }
    limiter
}

#[test]
fn settlements_above_the_cost_are_charged_to_an_overflow_row() {
    let policy = Policy::new("tokens", Quota::token_bucket(10_000, DAY));
    let limiter = full(&policy, 1000);
    let mut used = 0;
    for _ in 0..10_000 {
        if now(limiter.try_acquire(&policy, "ada").cost(0).check()).is_allowed() {
            now(now(limiter.acquire(&policy, "ada").cost(0).hold()).into_receipt().settle(1000));
            used += 1000;
        }
    }
    assert!(used <= 11_000, "{used} tokens were used under a quota of 10,000 per day");
}

#[test]
fn a_key_denied_for_an_expensive_request_stays_denied_during_a_flood() {
    let policy = Policy::new("tokens", Quota::token_bucket(10_000, DAY));
    let limiter = RateLimiter::new(MemoryBackend::builder().max_rows(1000).clock(ManualClock::new()).build());
    let denied: Vec<u32> = (0..20).collect();
    for key in &denied {
        assert!(now(limiter.try_acquire(&policy, ("known", *key)).cost(9_100)).is_allowed());
        assert!(!now(limiter.try_acquire(&policy, ("known", *key)).cost(1_000)).is_allowed());
    }
    // Each newcomer spends more tokens than any of the known keys. If denials were not recorded, the known keys would
    // be evicted first.
    for key in 0..50_000 {
        drop(now(limiter.try_acquire(&policy, ("flood", key)).cost(9_500)));
    }
    let freed =
        denied.iter().filter(|key| now(limiter.try_acquire(&policy, ("known", **key)).cost(1_000)).is_allowed());
    assert_eq!(freed.count(), 0);
}
