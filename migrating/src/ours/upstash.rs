//! The code that replaces @upstash/ratelimit.

use std::time::Duration;

use axum::extract::{Path, State};
use axum::{Router, routing::get};
use tollgate::{Policy, Quota, RateLimiter};

static SEARCH: Policy = Policy::new("search", Quota::sliding_window(10, Duration::from_secs(10)));

async fn search(State(limiter): State<RateLimiter>, Path(user): Path<String>) -> axum::response::Result<&'static str> {
    limiter.limit(&SEARCH, user).await?;
    Ok("found")
}

pub fn app(limiter: RateLimiter) -> Router {
    Router::new().route("/search/{user}", get(search)).with_state(limiter)
}
