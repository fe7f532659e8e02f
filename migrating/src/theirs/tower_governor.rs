//! tower_governor 0.8.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use axum::{Router, routing::get};
use tokio::net::TcpListener;
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;

pub fn app() -> Router {
    let config = GovernorConfigBuilder::default()
        .per_second(2) // one token every two seconds
        .burst_size(5)
        .use_headers()
        .finish()
        .expect("neither is 0");
    let limiter = config.limiter().clone();
    thread::spawn(move || {
        loop {
            thread::sleep(Duration::from_secs(60));
            limiter.retain_recent();
        }
    });
    Router::new().route("/", get(|| async { "hello" })).layer(GovernorLayer::new(config))
}

pub async fn serve(listener: TcpListener) -> std::io::Result<()> {
    axum::serve(listener, app().into_make_service_with_connect_info::<SocketAddr>()).await
}
