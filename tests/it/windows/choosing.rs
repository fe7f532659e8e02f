//! Checks the numbers in `docs::choosing`.

use std::time::Duration;

use tollgate::clock::ManualClock;
use tollgate::{DAY, HOUR, MINUTE, MemoryBackend, Policy, Quota, RateLimiter, SECOND};

fn limiter() -> (ManualClock, RateLimiter) {
    let clock = ManualClock::new(); // The first instant is the beginning of a minute.
    let limiter = RateLimiter::new(MemoryBackend::builder().clock(clock.clone()).build());
    (clock, limiter)
}

/// Counts the requests that pass within `period` if an idle caller starts sending one second before a minute ends.
fn worst(period: Duration, quota: Quota) -> usize {
    let (clock, limiter) = limiter();
    clock.advance(59 * SECOND);
    let policy = Policy::new("api", quota);
    let mut passed = 0;
    for _step in 0..1000 {
        while limiter.limit_now(&policy, "ada").is_ok() {
            passed += 1;
        }
        clock.advance(period / 1000);
    }
    passed
}

#[test]
fn the_worst_interval_admits_the_number_stated_in_the_docs() {
    assert_eq!(worst(MINUTE, Quota::fixed_window(10, MINUTE).start(Duration::ZERO)), 20);
    assert_eq!(worst(MINUTE, Quota::sliding_window(10, MINUTE)), 19);
    assert_eq!(worst(MINUTE, Quota::token_bucket(10, MINUTE)), 19);
    assert_eq!(worst(MINUTE, Quota::token_bucket(10, MINUTE).capacity(1)), 10);
    assert_eq!(worst(SECOND, Quota::token_bucket(3, SECOND)), 5);
}

#[test]
fn strict_buckets_admit_exactly_the_limit_in_the_worst_interval() {
    let hundred_a_minute = [(100, 1), (91, 10), (51, 50)];
    let three_a_second = [(3, 1), (2, 2), (1, 3)];
    for (limit, period, quotas) in [(100, MINUTE, hundred_a_minute), (3, SECOND, three_a_second)] {
        for (rate, capacity) in quotas {
            assert_eq!(worst(period, Quota::token_bucket(rate, period).capacity(capacity)), limit);
        }
    }
}

#[tokio::test]
async fn tokens_of_a_fixed_window_roll_over_up_to_the_capacity() {
    let exports = Policy::new("exports", Quota::fixed_window(500, DAY).capacity(1500).start(8 * HOUR));
    let (clock, limiter) = limiter();
    assert!(limiter.acquire(&exports, "ada").cost(1500).await.is_ok());
    assert_eq!(limiter.try_limit(&exports, "ada").await.unwrap().retry_after(), Some(8 * HOUR));
    clock.advance(8 * HOUR);
    assert_eq!(limiter.remaining(&exports, "ada").await.unwrap(), 500);
    clock.advance(DAY);
    assert_eq!(limiter.remaining(&exports, "ada").await.unwrap(), 1000);
}

#[tokio::test]
async fn reservations_are_due_one_after_another_up_to_max_reserved() {
    let mail = Policy::new("mail", Quota::token_bucket(10, SECOND).capacity(1).max_reserved(50));
    let (_clock, limiter) = limiter();
    let mut delays = Vec::new();
    for _ in 0..60 {
        if let Ok(reservation) = limiter.acquire(&mail, "team").reserve_within(5 * SECOND).await {
            delays.push(reservation.delay());
            reservation.into_receipt(); // The tokens stay reserved.
        }
    }
    let expected: Vec<_> = (0..=50).map(|n| Duration::from_millis(100 * n)).collect();
    assert_eq!(delays, expected);
}
