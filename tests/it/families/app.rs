//! An app with one route behind a layer, and the header lines of its responses.

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::routing::any;
use tollgate::{MemoryBackend, Policy, Quota, RateLimitLayer, RateLimiter, clock::ManualClock, key};
use tower::ServiceExt;

use crate::support::answer::Answer;

/// Returns an in-memory limiter and its clock, which starts at 2026-01-01T00:00:00Z (Unix time 1767225600).
pub(crate) fn limiter() -> (RateLimiter, ManualClock) {
    let clock = ManualClock::new();
    (RateLimiter::new(MemoryBackend::builder().clock(clock.clone()).build()), clock)
}

/// Returns the number in `x-cost`, or 1 if the request does not have this header.
pub(crate) fn cost(req: &Parts) -> u64 {
    req.headers.get("x-cost").map_or(1, |cost| cost.to_str().unwrap().parse().unwrap())
}

/// Returns a layer that has a global key and a new limiter.
pub(crate) fn layer(name: &str, quota: Quota) -> (RateLimitLayer, ManualClock) {
    let (limiter, clock) = limiter();
    let layer = RateLimitLayer::new(Policy::try_new(name, quota).unwrap(), key::global()).cost(cost);
    (layer.limiter(&limiter), clock)
}

pub(crate) fn app(layer: RateLimitLayer) -> Router {
    Router::new().route("/", any(|| async { "hello" })).layer(layer)
}

pub(crate) async fn take(app: &Router, cost: u64) -> Answer {
    let request = Request::builder().uri("/").header("x-cost", cost).body(Body::empty()).unwrap();
    let Ok(response) = app.clone().oneshot(request).await;
    Answer::read(response).await
}

/// Returns the lines of all rate-limit fields and of `retry-after`, sorted by name.
pub(crate) fn lines(answer: &Answer) -> Vec<String> {
    let mut lines: Vec<_> = answer
        .headers
        .iter()
        .filter(|(name, _)| name.as_str().contains("ratelimit") || *name == "retry-after")
        .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
        .collect();
    // The sort is stable, so the lines of one field stay in the order of the layers.
    lines.sort_by(|one, other| one.split(':').next().cmp(&other.split(':').next()));
    lines
}
