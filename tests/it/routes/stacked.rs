//! Stacked layers: one wraps the router, and the other wraps a route. Both layers apply, the outer layer first.

use axum::Router;
use axum::routing::get;
use tollgate::{MINUTE, Quota, RateLimiter, RouteLimits, key};

use super::app::{call, limiter, policy};

/// Allows 5 requests per minute to the whole router, and 2 per minute to `/search`.
fn app(limiter: &RateLimiter) -> Router {
    let limits = RouteLimits::new(key::global())
        .policy(policy("search", 2))
        .default_policy(policy("default", 5))
        .limiter(limiter);
    Router::new()
        .route("/search", get(|| async { "found" }).layer(limits.route("search")))
        .route("/", get(|| async {}))
        .layer(limits.table([]))
}

#[tokio::test]
async fn both_layers_charge_and_send_headers() {
    let app = app(&limiter().0);
    let answer = call(&app, "GET /search", &[]).await;
    // The inner layer writes its headers first, and the outer layer appends to them.
    assert_eq!(answer.policies(), [("search".into(), 2, 60), ("default".into(), 5, 60)]);
    assert_eq!(answer.limits(), [("search".into(), 1, Some(30)), ("default".into(), 4, Some(48))]);
    let answer = call(&app, "GET /", &[]).await;
    assert_eq!(answer.policies(), [("default".into(), 5, 60)]);
    assert_eq!(answer.limits(), [("default".into(), 3, Some(36))]);
}

#[tokio::test]
async fn a_request_refused_by_the_inner_layer_is_charged_by_the_outer_layer() {
    let (limiter, _clock) = limiter();
    let app = app(&limiter);
    for _ in 0..2 {
        assert_eq!(call(&app, "GET /search", &[]).await.status, 200);
    }
    for left in [2, 1] {
        let refused = call(&app, "GET /search", &[]).await;
        assert_eq!((refused.status, refused.violated_policies()), (429, vec!["search".into()]));
        // The headers list both policies, but only the inner layer's limit. The outer layer's reset time would be later
        // than `Retry-After`, which the draft forbids.
        assert_eq!(refused.policies(), [("search".into(), 2, 60), ("default".into(), 5, 60)]);
        assert_eq!(refused.limits(), [("search".into(), 0, Some(30))]);
        assert_eq!(refused.retry_after(), Some(30));
        assert_eq!(limiter.remaining(&policy("default", 5), tollgate::Key::global()).await.unwrap(), left);
    }
}

#[tokio::test]
async fn a_request_refused_by_the_outer_layer_is_not_charged_by_the_inner_layer() {
    let (limiter, clock) = limiter();
    let app = app(&limiter);
    for _ in 0..5 {
        assert_eq!(call(&app, "GET /", &[]).await.status, 200);
    }
    let refused = call(&app, "GET /search", &[]).await;
    assert_eq!((refused.status, refused.violated_policies()), (429, vec!["default".into()]));
    assert_eq!(refused.policies(), [("default".into(), 5, 60)]);
    assert_eq!(refused.limits(), [("default".into(), 0, Some(12))]);
    assert_eq!(limiter.remaining(&policy("search", 2), tollgate::Key::global()).await.unwrap(), 2);
    clock.advance(std::time::Duration::from_secs(refused.retry_after().unwrap()));
    assert_eq!(call(&app, "GET /search", &[]).await.status, 200);
}

#[tokio::test]
async fn a_policy_in_both_layers_is_charged_twice() {
    let (limiter, _clock) = limiter();
    let limits = RouteLimits::new(key::global()).policy(policy("api", 10)).limiter(&limiter);
    let app = Router::new().route("/", get(|| async {}).layer(limits.route("api"))).layer(limits.route("api"));
    let answer = call(&app, "GET /", &[]).await;
    assert_eq!(
        answer.limits().iter().map(|limit| limit.1).collect::<Vec<_>>(),
        [8, 9],
        "the inner layer's values must come first"
    );
    assert_eq!(limiter.remaining(&policy("api", 10), tollgate::Key::global()).await.unwrap(), 8);
}

#[tokio::test]
async fn a_table_line_replaces_the_default_policy() {
    let (limiter, _clock) = limiter();
    let limits = RouteLimits::new(key::global())
        .policy(tollgate::Policy::new("search", Quota::token_bucket(2, MINUTE)))
        .default_policy(policy("default", 5))
        .limiter(&limiter);
    let app = Router::new()
        .route("/search", get(|| async {}))
        .route("/", get(|| async {}))
        .layer(limits.table([("/search", "search")]));
    for status in [200, 200, 429, 429] {
        assert_eq!(call(&app, "GET /search", &[]).await.status, status);
    }
    assert_eq!(limiter.remaining(&policy("default", 5), tollgate::Key::global()).await.unwrap(), 5);
}
