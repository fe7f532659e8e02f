//! What `docs::migrating` says of both layers at once.

use axum::{Router, routing::get};
use tollgate::{MINUTE, Policy, Quota, RateLimitLayer, key};
use tollgate_migrating::{ask, get as request};
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;

const API: Policy = Policy::new("api", Quota::token_bucket(30, MINUTE).capacity(5));

fn theirs() -> Router {
    let config = GovernorConfigBuilder::default().per_second(2).burst_size(5).finish().unwrap();
    Router::new().route("/", get(|| async { "hello" })).layer(GovernorLayer::new(config))
}

#[tokio::test]
async fn outside_of_theirs_a_shadow_marks_what_theirs_refuses() {
    let shadow = RateLimitLayer::new(API, key::client_ip()).shadow().shadow_header("x-ratelimit-shadow");
    let app = theirs().layer(shadow);
    let mut answers = Vec::new();
    for _ in 0..6 {
        let answer = ask(&app, request("/", "203.0.113.9")).await;
        assert_eq!(answer.header("ratelimit"), "", "clients are told nothing");
        answers.push((answer.status.as_u16(), answer.header("x-ratelimit-shadow").to_owned()));
    }
    assert!(answers[..5].iter().all(|it| *it == (200, String::new())), "{answers:?}");
    assert_eq!(answers[5], (429, "denied".to_owned()));
}

#[tokio::test]
async fn inside_of_theirs_it_sees_only_what_theirs_lets_through() {
    let shadow = RateLimitLayer::new(API, key::client_ip()).shadow().shadow_header("x-ratelimit-shadow");
    let config = GovernorConfigBuilder::default().per_second(2).burst_size(5).finish().unwrap();
    let app = Router::new().route("/", get(|| async { "hello" })).layer(shadow).layer(GovernorLayer::new(config));
    for _ in 0..20 {
        assert_eq!(ask(&app, request("/", "203.0.113.9")).await.header("x-ratelimit-shadow"), "");
    }
}
