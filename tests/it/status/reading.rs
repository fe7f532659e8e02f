//! Reading the status spends no tokens and writes nothing.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tollgate::{MINUTE, Policy, Quota, RateLimitLayer, RateLimiter, clock::ManualClock, limiter::Snapshot, status};

use super::app::{call, user};
use crate::support::test_backend::TestBackend;

const POLICIES: [Policy; 3] = [
    Policy::new("bucket", Quota::token_bucket(10, MINUTE).max_reserved(5)),
    Policy::new("fixed", Quota::fixed_window(10, MINUTE)),
    Policy::new("sliding", Quota::sliding_window(10, MINUTE)),
];

async fn values(limiter: &RateLimiter) -> Vec<Snapshot> {
    let mut values = Vec::new();
    for policy in &POLICIES {
        for user in ["ada", "grace", "stranger"] {
            values.push(limiter.snapshot(policy, user.to_owned()).await.unwrap().remove(0));
        }
    }
    values
}

#[tokio::test]
async fn reading_the_status_leaves_every_row_unchanged() {
    let clock = ManualClock::new();
    let backend = TestBackend::local(&clock);
    let limiter = RateLimiter::new(Arc::clone(&backend));
    let [bucket, fixed, sliding] = POLICIES;
    let layer = RateLimitLayer::new(bucket, user).and(fixed, user).and(sliding, user).limiter(&limiter);
    let app = Router::new().route("/rate-limit", status::of_layer(&layer)).route("/time", status::time(&limiter));

    for policy in &POLICIES {
        let early = limiter.acquire(policy, "ada".to_owned()).cost(9).hold().await.unwrap();
        clock.advance(Duration::from_micros(13_456_789));
        early.cancel().await.unwrap();
        limiter.acquire(policy, "ada".to_owned()).cost(4).await.unwrap();
        limiter.acquire(policy, "grace".to_owned()).cost(10).await.unwrap();
    }
    let (before, writes_before, stats) = (values(&limiter).await, backend.writes(), limiter.stats());
    assert!(writes_before > 0 && stats.rows > Some(0));
    for i in 0..5000 {
        let caller = ["ada".to_owned(), "grace".to_owned(), format!("newcomer-{i}")][i % 3].clone();
        let line = ["GET /rate-limit", "HEAD /rate-limit", "GET /time"][i / 3 % 3];
        assert_eq!(call(&app, line, &[&format!("x-user: {caller}")]).await.status, 200);
    }
    let after = values(&limiter).await;
    assert_eq!(backend.writes(), writes_before);
    // Reading creates no rows, but expired rows may be removed.
    assert!(limiter.stats().rows <= stats.rows, "{:?}", limiter.stats());
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(before, after);
        assert_eq!(before.state().spent.to_bits(), after.state().spent.to_bits());
        assert_eq!(before.state().carry.to_bits(), after.state().carry.to_bits());
    }
}
