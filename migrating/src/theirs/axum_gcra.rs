//! axum_gcra 0.1.

// The guide shows this version of axum as `axum`.
use axum07 as axum;

use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::time::Duration;

use axum::Router;
use axum::http::Method;
use axum::routing::get;
use axum_gcra::RateLimitLayer;
use axum_gcra::gcra::Quota;
use axum_gcra::real_ip::RealIp;
use tokio::net::TcpListener;

pub fn app() -> Router {
    let every = |millis, burst| Quota::new(Duration::from_millis(millis), NonZeroU64::new(burst).expect("not 0"));
    let limits = RateLimitLayer::<RealIp>::builder()
        .with_route((Method::POST, "/todos"), every(6000, 5))
        .with_route((Method::GET, "/search"), every(600, 10))
        .with_default_quota(every(1000, 20))
        .with_global_fallback(true);
    Router::new()
        .route("/todos", get(|| async { "todos" }).post(|| async { "created" }))
        .route("/search", get(|| async { "found" }))
        .route_layer(limits.default_handle_error())
}

pub async fn serve(listener: TcpListener) -> std::io::Result<()> {
    axum::serve(listener, app().into_make_service_with_connect_info::<SocketAddr>()).await
}
