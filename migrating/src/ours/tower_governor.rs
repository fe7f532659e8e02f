//! Instead of tower_governor.

use std::net::SocketAddr;

use axum::{Router, routing::get};
use tokio::net::TcpListener;
use tollgate::{MINUTE, Policy, Quota, RateLimitLayer, key};

const API: Policy = Policy::new("api", Quota::token_bucket(30, MINUTE).capacity(5)); // one token every two seconds

pub fn app() -> Router {
    Router::new().route("/", get(|| async { "hello" })).layer(RateLimitLayer::new(API, key::client_ip()))
}

pub async fn serve(listener: TcpListener) -> std::io::Result<()> {
    axum::serve(listener, app().into_make_service_with_connect_info::<SocketAddr>()).await
}
