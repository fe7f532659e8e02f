//! The code that replaces tower_governor.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Bytes;
use axum::http::Response;
use axum::routing::{get, post};
use tokio::net::TcpListener;
use tollgate::{HeaderFamily, MINUTE, Policy, Quota, RateLimitLayer, RateLimiter, Refusal, key, middleware::ResetUnit};

const API: Policy = Policy::new("api", Quota::token_bucket(30, MINUTE).capacity(5)); // one token every two seconds
const LOGIN: Policy = Policy::new("login", Quota::token_bucket(1, MINUTE).capacity(3));

pub fn app() -> Router {
    let limiter = RateLimiter::default();
    let limit = |policy| {
        RateLimitLayer::new(policy, key::client_ip().trust(["10.0.0.0/8"])) // the networks of your proxies
            .limiter(&limiter)
            .headers(HeaderFamily::XRateLimit(ResetUnit::Seconds))
            .on_refusal(refuse)
    };
    Router::new()
        .route("/", get(|| async { "hello" }))
        .route("/login", post(|| async { "welcome" }).layer(limit(LOGIN)))
        .layer(limit(API))
}

fn refuse(refusal: &Refusal<'_>) -> Response<Bytes> {
    let (Some(_), Some(wait)) = (refusal.decisions(), refusal.retry_after_secs()) else {
        return refusal.default_response(); // 500 or 503: an error, not a denial
    };
    refusal.respond("application/json", format!(r#"{{"error":"too_many_requests","retry_in":{wait}}}"#))
}

pub async fn serve(listener: TcpListener) -> std::io::Result<()> {
    axum::serve(listener, app().into_make_service_with_connect_info::<SocketAddr>()).await
}
