//! Regression tests: a row identified its quota by only ten bits, so after 1,024 quotas, rows seemed to belong to other
//! quotas.

use std::time::Duration;

use tollgate::{HOUR, MINUTE, MemoryBackend, Policy, Quota, RateLimiter, clock::ManualClock};

use crate::support::now;

/// Returns a limiter whose table contains rows of 1,100 quotas.
fn limiter_with_1100_quotas() -> RateLimiter {
    let limiter = RateLimiter::new(MemoryBackend::builder().clock(ManualClock::new()).build());
    for rate in 1..=1100 {
        let policy = Policy::new("many", Quota::token_bucket(10_000 + rate, HOUR));
        assert!(now(limiter.try_limit(&policy, rate)).is_allowed());
    }
    limiter
}

#[test]
fn after_1100_quotas_reservations_stay_within_their_bound() {
    let limiter = limiter_with_1100_quotas();
    let policy = Policy::new("reservations", Quota::token_bucket(1, MINUTE).max_reserved(2));
    let granted = (0..50)
        .filter(|_| ready(limiter.acquire(&policy, "ada").reserve()).map(|held| held.into_receipt()).is_ok())
        .count();
    assert_eq!(granted, 3, "expected one token and two reservations");
}

#[test]
fn after_1100_quotas_a_surcharge_delays_the_next_call() {
    let limiter = limiter_with_1100_quotas();
    let policy = Policy::new("debt", Quota::token_bucket(9, MINUTE));
    let usage = now(limiter.acquire(&policy, "ada").hold()).into_receipt();
    now(usage.settle(900));
    let denied = now(limiter.try_limit(&policy, "ada"));
    let wait = denied.retry_after().expect("expected a retry time");
    assert!(wait > Duration::from_secs(5940), "expected the time to refill 892 tokens at 9 per minute, found {wait:?}");
}

#[test]
fn after_1100_quotas_a_refund_returns_the_tokens() {
    let limiter = limiter_with_1100_quotas();
    let policy = Policy::new("refund", Quota::token_bucket(10, HOUR));
    let usage = now(limiter.acquire(&policy, "ada").cost(10).hold()).into_receipt();
    now(usage.refund());
    assert_eq!(now(limiter.remaining(&policy, "ada")), 10);
}

#[test]
fn after_1100_quotas_large_reservations_stay_within_their_bound() {
    let limiter = limiter_with_1100_quotas();
    let policy = Policy::new("tokens", Quota::token_bucket(1000, MINUTE).max_reserved(9000));
    let granted = (0..50)
        .filter(|_| ready(limiter.acquire(&policy, "ada").cost(1000).reserve()).map(|held| held.into_receipt()).is_ok())
        .count();
    assert_eq!(granted, 10, "expected grants for 10,000 tokens");
}

#[test]
fn after_1100_quota_changes_the_next_change_takes_effect() {
    let limiter = RateLimiter::new(MemoryBackend::builder().clock(ManualClock::new()).build());
    let policy = Policy::new("changing", Quota::token_bucket(1, HOUR));
    for rate in 1..=1100 {
        now(limiter.set_quota(&policy, Quota::token_bucket(10_000 + rate, HOUR)));
        assert!(now(limiter.try_limit(&policy, "ada")).is_allowed());
    }
    now(limiter.set_quota(&policy, Quota::token_bucket(5, HOUR).max_reserved(2)));
    let granted = (0..50)
        .filter(|_| ready(limiter.acquire(&policy, "eve").reserve()).map(|held| held.into_receipt()).is_ok())
        .count();
    assert_eq!(granted, 7);
}

/// Returns the output of a future that is ready immediately.
fn ready<T>(future: impl IntoFuture<Output = T>) -> T {
    crate::support::now(async { Ok::<_, std::convert::Infallible>(future.await) })
}
