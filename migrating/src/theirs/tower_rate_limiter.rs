//! tower-rate-limiter 0.2.0-alpha.0.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use axum::{Router, routing::get};
use tokio::net::TcpListener;
use tower_rate_limiter::{FixedWindow, IpKeyExtractor, MemoryStore, RateLimitLayer};

pub fn app() -> Result<Router, Box<dyn Error>> {
    let limits = RateLimitLayer::builder(IpKeyExtractor::new())
        .policy_name("public-api")
        .with_policy(FixedWindow::new(MemoryStore::new(), 100, Duration::from_secs(60))?)
        .skip(|request| request.uri().path() == "/health")
        .build()?;
    Ok(Router::new().route("/", get(|| async { "hello" })).route("/health", get(|| async { "well" })).layer(limits))
}

pub async fn serve(listener: TcpListener) -> Result<(), Box<dyn Error>> {
    axum::serve(listener, app()?.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
