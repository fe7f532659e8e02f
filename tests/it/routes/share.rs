//! Limits that are enforced only for a share of the keys. The tests check how large the share is and which keys it
//! contains.

use std::collections::BTreeSet;

use axum::Router;
use axum::routing::get;
use tollgate::key::KeyExtractor;
use tollgate::{MemoryBackend, RateLimitLayer, RateLimiter, clock::ManualClock, key::Secret, policy::Enforce};

use super::app::{call, limiter, policy, user};

const KEYS: usize = 2000;

/// Returns a limiter with a fixed secret. The secret determines for which keys a limit is enforced.
fn shared_secret() -> RateLimiter {
    let backend = MemoryBackend::builder().clock(ManualClock::new()).build();
    RateLimiter::builder(backend).secret(Secret::new([7; 16])).build()
}

/// Sends two requests from each of [`KEYS`] users, who have one token each. Returns the users whose second request is
/// refused.
async fn enforced(limiter: &RateLimiter, share: f64) -> BTreeSet<usize> {
    let policy = policy("one", 1).try_enforce(Enforce::Share(share)).unwrap();
    let layer = RateLimitLayer::new(policy, user).limiter(limiter);
    let app = Router::new().route("/", get(|| async {})).layer(layer);
    let mut refused = BTreeSet::new();
    for i in 0..KEYS {
        let line = format!("x-user: user {i}");
        let first = call(&app, "GET /", &[&line]).await;
        let second = call(&app, "GET /", &[&line]).await;
        // Only responses to users in the enforced share have rate limit headers.
        assert!(matches!(second.status, 200 | 429));
        assert_eq!(first.headers.contains_key("ratelimit"), second.status == 429);
        assert_eq!(second.headers.contains_key("ratelimit"), second.status == 429);
        if second.status == 429 {
            refused.insert(i);
        }
    }
    refused
}

#[tokio::test]
async fn a_larger_share_includes_the_keys_of_a_smaller_share() {
    let mut before = BTreeSet::new();
    for share in [0.0, 0.01, 0.1, 0.25, 0.5, 0.9, 1.0] {
        let now = enforced(&shared_secret(), share).await;
        let found = now.len() as f64 / KEYS as f64;
        // The slack is five standard deviations of a random selection.
        let slack = 5.0 * (share * (1.0 - share) / KEYS as f64).sqrt();
        assert!((found - share).abs() <= slack, "enforced a share of {found}, expected {share}");
        assert!(before.is_subset(&now), "the share {share} must include all keys of the smaller share");
        if share == 0.25 {
            assert_eq!(enforced(&shared_secret(), share).await, now);
        }
        before = now;
    }
    assert_eq!(before.len(), KEYS);
}

#[tokio::test]
async fn a_share_of_0_applies_to_no_key_and_a_share_of_1_applies_to_every_key() {
    // These limiters have random secrets.
    assert_eq!(enforced(&limiter().0, 0.0).await.len(), 0);
    assert_eq!(enforced(&limiter().0, 1.0).await.len(), KEYS);
}

#[tokio::test]
async fn anonymous_callers_count_as_one_key_and_skipped_requests_are_never_refused() {
    let limiter = shared_secret();
    let by_user = RateLimitLayer::new(policy("one", 1).enforce(Enforce::Share(0.5)), user).limiter(&limiter);
    let app = Router::new().route("/", get(|| async {})).layer(by_user);
    call(&app, "GET /", &[]).await;
    let statuses = [call(&app, "GET /", &[]).await.status, call(&app, "GET /", &[]).await.status];
    assert_eq!(statuses[0], statuses[1], "all anonymous requests must get the same status");
    let skipping =
        RateLimitLayer::new(policy("skip", 1).enforce(Enforce::Share(0.99)), user.or_skip()).limiter(&limiter);
    let app = Router::new().route("/", get(|| async {})).layer(skipping);
    for _ in 0..5 {
        assert_eq!(call(&app, "GET /", &[]).await.status, 200);
    }
}
