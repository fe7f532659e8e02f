//! Checks the claims of `docs::migrating::upstash` about tollgate. `typescript/tests` checks those about the peer.

mod down;

use std::time::Duration;

use down::Down;
use tollgate::algorithm::Micros;
use tollgate::{FailureMode, MemoryBackend, Policy, Quota, RateLimiter, SECOND, clock::ManualClock};
use tollgate_migrating::{get as request, ours, send};

fn manual(clock: &ManualClock) -> RateLimiter {
    RateLimiter::new(MemoryBackend::builder().clock(clock.clone()).build())
}

fn ten_in_three_seconds() -> Policy {
    Policy::new("ten", Quota::sliding_window(10, 3 * SECOND))
}

async fn granted(limiter: &RateLimiter, policy: &Policy, tries: u32) -> u32 {
    let mut granted = 0;
    for _ in 0..tries {
        granted += u32::from(limiter.try_limit(policy, "ada").await.unwrap().is_allowed());
    }
    granted
}

#[tokio::test]
async fn the_eleventh_request_is_refused_with_a_retry_time() {
    let app = ours::upstash::app(RateLimiter::default());
    for _ in 0..10 {
        assert_eq!(send(&app, request("/search/ada", "203.0.113.9")).await.body, "found");
    }
    let denied = send(&app, request("/search/ada", "203.0.113.9")).await;
    assert_eq!(denied.status, 429);
    assert!(denied.retry_after() >= 1);
    assert_eq!(denied.header("content-type"), "application/problem+json");
    assert_eq!(send(&app, request("/search/eve", "203.0.113.9")).await.status, 200);
}

#[tokio::test]
async fn a_denied_caller_passes_as_soon_as_tokens_are_available() {
    let clock = ManualClock::at(Micros::EPOCH + 300_000 * SECOND + Duration::from_millis(2100));
    let (limiter, policy) = (manual(&clock), ten_in_three_seconds());
    assert_eq!(granted(&limiter, &policy, 10).await, 10);
    clock.advance(Duration::from_millis(960)); // to the start of the next window
    assert_eq!(granted(&limiter, &policy, 5).await, 0);
    clock.advance(Duration::from_millis(2340)); // to four fifths of this window
    assert_eq!(granted(&limiter, &policy, 20).await, 8);
}

#[tokio::test]
async fn a_request_at_the_retry_time_is_allowed() {
    let clock = ManualClock::at(Micros::EPOCH + 300_000 * SECOND + Duration::from_millis(2100));
    let (limiter, policy) = (manual(&clock), ten_in_three_seconds());
    granted(&limiter, &policy, 10).await;
    let denied = limiter.try_limit(&policy, "ada").await.unwrap().into_result().unwrap_err();
    clock.advance(denied.retry_after().unwrap());
    assert_eq!(granted(&limiter, &policy, 5).await, 1);
}

#[tokio::test]
async fn a_refused_request_is_not_charged() {
    let (limiter, policy) = (manual(&ManualClock::new()), ten_in_three_seconds());
    assert_eq!(granted(&limiter, &policy, 8).await, 8);
    assert!(!limiter.try_acquire(&policy, "ada").cost(5).await.unwrap().is_allowed());
    assert!(limiter.try_acquire(&policy, "ada").cost(2).await.unwrap().is_allowed());
}

#[tokio::test]
async fn a_token_bucket_refills_smoothly() {
    let clock = ManualClock::new();
    let (limiter, policy) = (manual(&clock), Policy::new("smooth", Quota::token_bucket(10, 2 * SECOND)));
    assert_eq!(granted(&limiter, &policy, 20).await, 10);
    clock.advance(Duration::from_millis(1500));
    assert_eq!(granted(&limiter, &policy, 20).await, 7);
}

#[tokio::test]
async fn requests_are_refused_by_default_while_the_server_is_down() {
    let app = |mode| ours::upstash::app(RateLimiter::builder(Down).on_failure(mode).build());
    let refused = send(&app(FailureMode::default()), request("/search/ada", "203.0.113.9")).await;
    assert_eq!(refused.status, 503);
    assert!(refused.retry_after() >= 1);
    let open = app(FailureMode::Allow);
    for _ in 0..20 {
        assert_eq!(send(&open, request("/search/ada", "203.0.113.9")).await.status, 200);
    }
    let alone = app(FailureMode::fallback(0.5));
    let mut passed = 0;
    for _ in 0..20 {
        passed += u32::from(send(&alone, request("/search/ada", "203.0.113.9")).await.status == 200);
    }
    assert_eq!(passed, 5);
}
