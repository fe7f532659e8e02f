//! The code that replaces tower-rate-limiter.

use std::net::SocketAddr;

use axum::http::request::Parts;
use axum::{Router, routing::get};
use tokio::net::TcpListener;
use tollgate::{MINUTE, Policy, Quota, RateLimitLayer, key};

const PUBLIC_API: Policy = Policy::new("public-api", Quota::fixed_window(100, MINUTE));

pub fn app() -> Router {
    let limits =
        RateLimitLayer::new(PUBLIC_API, key::client_ip()).skip(|request: &Parts| request.uri.path() == "/health");
    Router::new().route("/", get(|| async { "hello" })).route("/health", get(|| async { "well" })).layer(limits)
}

pub async fn serve(listener: TcpListener) -> std::io::Result<()> {
    axum::serve(listener, app().into_make_service_with_connect_info::<SocketAddr>()).await
}
