//! tower_governor 0.8.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, Response, header::CONTENT_TYPE};
use axum::routing::{get, post};
use tokio::net::TcpListener;
use tower_governor::governor::GovernorConfigBuilder;
use tower_governor::key_extractor::SmartIpKeyExtractor;
use tower_governor::{GovernorError, GovernorLayer};

pub fn app() -> Router {
    let mut config = GovernorConfigBuilder::default().key_extractor(SmartIpKeyExtractor).use_headers();
    let api = config.per_second(2).burst_size(5).finish().expect("neither is 0"); // one token every two seconds
    let login = config.per_second(60).burst_size(3).finish().expect("neither is 0");
    for limiter in [api.limiter().clone(), login.limiter().clone()] {
        thread::spawn(move || {
            loop {
                thread::sleep(Duration::from_secs(60));
                limiter.retain_recent();
            }
        });
    }
    Router::new()
        .route("/", get(|| async { "hello" }))
        .route("/login", post(|| async { "welcome" }).layer(GovernorLayer::new(login).error_handler(refuse)))
        .layer(GovernorLayer::new(api).error_handler(refuse))
}

fn refuse(error: GovernorError) -> Response<Body> {
    let GovernorError::TooManyRequests { wait_time, .. } = error else { return error.into() };
    let (mut parts, _) = error.into_response().into_parts(); // keeps the headers
    parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Response::from_parts(parts, Body::from(format!(r#"{{"error":"too_many_requests","retry_in":{wait_time}}}"#)))
}

pub async fn serve(listener: TcpListener) -> std::io::Result<()> {
    axum::serve(listener, app().into_make_service_with_connect_info::<SocketAddr>()).await
}
