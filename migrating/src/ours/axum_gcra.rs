//! The code that replaces axum_gcra.

use std::net::SocketAddr;

use axum::Router;
use axum::routing::get;
use tokio::net::TcpListener;
use tollgate::{MINUTE, Policy, Quota, RouteLimits, key};

pub fn app() -> Router {
    let limits = RouteLimits::new(key::client_ip())
        .policy(Policy::new("create", Quota::token_bucket(10, MINUTE).capacity(5)))
        .policy(Policy::new("search", Quota::token_bucket(100, MINUTE).capacity(10)))
        .default_policy(Policy::new("other", Quota::token_bucket(60, MINUTE).capacity(20)));
    Router::new()
        .route("/todos", get(|| async { "todos" }).post(|| async { "created" }))
        .route("/search", get(|| async { "found" }))
        .route_layer(limits.table([("POST /todos", "create"), ("GET /search", "search")]))
}

pub async fn serve(listener: TcpListener) -> std::io::Result<()> {
    axum::serve(listener, app().into_make_service_with_connect_info::<SocketAddr>()).await
}
