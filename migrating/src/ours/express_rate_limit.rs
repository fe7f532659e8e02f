//! The code that replaces express-rate-limit.

use axum::http::request::Parts;
use axum::{Router, routing::get};
use tollgate::{MINUTE, Policy, Quota, RateLimitLayer, key};

pub fn app() -> Router {
    let api = Policy::new("api", Quota::fixed_window(100, 15 * MINUTE));
    let client = key::client_ip().trust_hops(1).prefixes(32, 56); // one proxy in front
    Router::new()
        .route("/", get(|| async { "hello" }))
        .route("/health", get(|| async { "well" }))
        .layer(RateLimitLayer::new(api, client).skip(|request: &Parts| request.uri.path() == "/health"))
}
