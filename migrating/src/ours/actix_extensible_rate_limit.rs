//! The code that replaces actix-extensible-rate-limit.

use std::net::SocketAddr;

use axum::{Router, routing::get};
use tokio::net::TcpListener;
use tollgate::{HeaderFamily, MINUTE, OnResponse, Policy, Quota, RateLimitLayer, key, middleware::ResetUnit};

const API: Policy = Policy::new("api", Quota::fixed_window(5, MINUTE));

pub fn limits() -> RateLimitLayer {
    RateLimitLayer::new(API, key::client_ip())
        .headers(HeaderFamily::XRateLimit(ResetUnit::Seconds))
        .on_response(|response| if response.status.is_server_error() { OnResponse::Refund } else { OnResponse::Keep })
}

pub async fn serve(listener: TcpListener) -> std::io::Result<()> {
    let app = Router::new().route("/", get(|| async { "hello" })).layer(limits());
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await
}
