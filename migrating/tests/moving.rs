//! Checks the claims of `docs::migrating` about using both layers together.

use std::convert::Infallible;
use std::sync::Arc;

use axum::{Router, routing::get};
use tollgate::{
    HeaderFamily, MINUTE, MemoryBackend, Policy, Quota, RateLimitLayer, RateLimiter,
    key::{self, Secret},
    middleware::ResetUnit,
    policy::Enforce,
};
use tollgate_migrating::{get as request, send};
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;

const SHADOW: Policy = Policy::new("api", Quota::token_bucket(30, MINUTE).capacity(5)).enforce(Enforce::Never);

fn theirs() -> Router {
    let config = GovernorConfigBuilder::default().per_second(2).burst_size(5).finish().unwrap();
    Router::new().route("/", get(|| async { "hello" })).layer(GovernorLayer::new(config))
}

#[tokio::test]
async fn an_outer_shadow_layer_marks_requests_that_the_inner_layer_refuses() {
    let shadow = RateLimitLayer::new(SHADOW, key::client_ip()).shadow_header("x-ratelimit-shadow");
    let app = theirs().layer(shadow);
    let mut responses = Vec::new();
    for _ in 0..6 {
        let response = send(&app, request("/", "203.0.113.9")).await;
        assert_eq!(response.header("ratelimit"), "", "a shadow layer must not send headers");
        responses.push((response.status.as_u16(), response.header("x-ratelimit-shadow").to_owned()));
    }
    assert!(responses[..5].iter().all(|it| *it == (200, String::new())), "{responses:?}");
    assert_eq!(responses[5], (429, "denied".to_owned()));
}

#[tokio::test]
async fn an_inner_shadow_layer_sees_only_requests_that_the_outer_layer_allows() {
    let shadow = RateLimitLayer::new(SHADOW, key::client_ip()).shadow_header("x-ratelimit-shadow");
    let config = GovernorConfigBuilder::default().per_second(2).burst_size(5).finish().unwrap();
    let app = Router::new().route("/", get(|| async { "hello" })).layer(shadow).layer(GovernorLayer::new(config));
    for _ in 0..20 {
        assert_eq!(send(&app, request("/", "203.0.113.9")).await.header("x-ratelimit-shadow"), "");
    }
}

/// On a route that has its own layer, tollgate's layer wraps that layer. The error type between the two must be
/// specified; see the doctest of `tollgate_migrating`.
#[tokio::test]
async fn two_layers_on_one_route_need_an_explicit_error_type() {
    let by = |seconds, burst| {
        let mut config = GovernorConfigBuilder::default().per_second(seconds).burst_size(burst).use_headers();
        Arc::new(config.finish().unwrap())
    };
    let (theirs, theirs_outside) = (by(60, 3), by(2, 5));
    let app = |ours: RateLimitLayer| {
        let login = get(|| async { "welcome" });
        let login = login.layer::<_, Infallible>(GovernorLayer::new(theirs.clone())).layer(ours);
        Router::new().route("/login", login).layer(GovernorLayer::new(theirs_outside.clone()))
    };
    const LOGIN: Policy = Policy::new("login", Quota::token_bucket(1, MINUTE).capacity(3));
    let shadow = RateLimitLayer::new(LOGIN.enforce(Enforce::Never), key::client_ip());
    let shadow = app(shadow.shadow_header("x-shadow-login"));
    for i in 0..5 {
        let response = send(&shadow, request("/login", "203.0.113.9")).await;
        let marked = (response.status.as_u16(), response.header("x-shadow-login"));
        assert_eq!(marked, if i < 3 { (200, "") } else { (429, "denied") });
    }
    // The shadow layer is inside the outer layer of tower_governor, so it sees only requests that this layer allows.
    assert_eq!(send(&shadow, request("/login", "203.0.113.9")).await.header("x-shadow-login"), "");

    // If tollgate enforces its limit, the outer layer overwrites the headers of tollgate's refusals, so one response
    // mixes the headers of two limiters.
    let enforced = RateLimitLayer::new(LOGIN, key::client_ip());
    let enforced = app(enforced.headers(HeaderFamily::XRateLimit(ResetUnit::Seconds)));
    for _ in 0..3 {
        assert_eq!(send(&enforced, request("/login", "198.51.100.1")).await.status, 200);
    }
    let refused = send(&enforced, request("/login", "198.51.100.1")).await;
    assert_eq!(refused.status, 429);
    assert_eq!((refused.header("x-ratelimit-limit"), refused.header("x-ratelimit-reset")), ("5", "60"));
}

#[tokio::test]
async fn a_share_is_enforced_for_the_same_clients_after_a_restart() {
    let limiter = || RateLimiter::builder(MemoryBackend::new()).secret(Secret::new([7; 16])).build();
    let enforced_for = async |limiter: RateLimiter| {
        let policy = Policy::new("api", Quota::token_bucket(1, MINUTE)).enforce(Enforce::Share(0.5));
        let layer = RateLimitLayer::new(policy, key::client_ip()).limiter(&limiter);
        let app = Router::new().route("/", get(|| async { "hello" })).layer(layer);
        let mut refused = Vec::new();
        for i in 0..100 {
            let peer = format!("203.0.113.{i}");
            send(&app, request("/", &peer)).await;
            refused.push(send(&app, request("/", &peer)).await.status == 429);
        }
        refused
    };
    let chosen = enforced_for(limiter()).await;
    assert!((20..80).contains(&chosen.iter().filter(|it| **it).count()));
    assert_eq!(chosen, enforced_for(limiter()).await);
    // With another secret, other clients are chosen.
    assert_ne!(chosen, enforced_for(RateLimiter::default()).await);
}
