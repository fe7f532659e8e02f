//! tower-rate-limiter 0.1.

// In projects that use only this version, the crate has this name.
use tower_rate_limiter_01 as tower_rate_limiter;

use std::error::Error;
use std::time::Duration;

use axum::{Router, routing::get};
use tower_rate_limiter::{IpKeyExtractor, MemoryStore, RateLimitLayer};

pub fn app() -> Result<Router, Box<dyn Error>> {
    let limits = RateLimitLayer::builder(IpKeyExtractor::new())
        .policy_name("public-api")
        .limit(100)
        .window(Duration::from_secs(60))
        .with_store(MemoryStore::new())
        .skip(|request| request.uri().path() == "/health")
        .build()?;
    Ok(Router::new().route("/", get(|| async { "hello" })).route("/health", get(|| async { "well" })).layer(limits))
}
