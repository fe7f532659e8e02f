//! When the backend fails, only requests subject to an enforced limit are refused.

use axum::Router;
use axum::http::request::Parts;
use axum::routing::get;
use tollgate::key::{Extraction, KeyExtractor};
use tollgate::policy::Enforce;
use tollgate::{RateLimitLayer, RateLimitStatus, RateLimiter, RouteLimits, key};

use super::app::{call, policy, user};
use crate::support::backends::FailingBackend;

fn limiter() -> RateLimiter {
    RateLimiter::new(FailingBackend::IMMEDIATE)
}

/// Returns a router whose handler extracts the status, so any layer that wraps it needs `with_status`.
fn hello() -> Router {
    Router::new().route("/", get(|status: RateLimitStatus| async move { status.decisions().is_shadowed().to_string() }))
}

#[tokio::test]
async fn unlimited_requests_do_not_call_the_backend() {
    let later = |req: &Parts| {
        let user = user(req);
        Extraction::later(async move { user })
    };
    for layer in [
        RateLimitLayer::new(policy("user", 1), user.or_skip()),
        RateLimitLayer::new(policy("user", 1), later.or_skip()),
        RouteLimits::new(key::global()).policy(policy("a", 1)).table([("POST /", "a")]),
        RateLimitLayer::new(policy("user", 1), key::global()).skip(|req: &Parts| req.method == "GET"),
    ] {
        let answer = call(&hello().layer(layer.with_status().limiter(&limiter())), "GET /", &[]).await;
        assert_eq!((answer.status, &answer.body[..]), (200, &b"false"[..]));
    }
    let limited = RateLimitLayer::new(policy("user", 1), user.or_skip()).with_status().limiter(&limiter());
    assert_eq!(call(&hello().layer(limited), "GET /", &["x-user: ada"]).await.status, 503);
}

#[tokio::test]
async fn limits_in_shadow_mode_refuse_nothing_if_the_backend_fails() {
    let layer =
        |enforce| RateLimitLayer::new(policy("user", 1).enforce(enforce), user).with_status().limiter(&limiter());
    let app = hello().layer(layer(Enforce::Never).shadow_header("x-would-be"));
    let answer = call(&app, "GET /", &["x-user: ada"]).await;
    assert_eq!(
        (answer.status, answer.headers.get("x-would-be")),
        (200, None),
        "the shadow header must be absent if no decision was made"
    );

    let app = hello().layer(layer(Enforce::Share(0.5)));
    let mut statuses = Vec::new();
    for i in 0..200 {
        statuses.push(call(&app, "GET /", &[&format!("x-user: {i}")]).await.status);
    }
    let (passed, refused) = (count(&statuses, 200), count(&statuses, 503));
    assert_eq!(passed + refused, 200);
    // About half of the 200 requests pass. The tolerance is five standard deviations.
    assert!((65..=135).contains(&passed), "{passed} of 200 requests passed");
}

fn count(statuses: &[u16], status: u16) -> usize {
    statuses.iter().filter(|known| **known == status).count()
}
