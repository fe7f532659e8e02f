//! Ten requests a minute for each client address.
//!
//! ```text
//! cargo run --example quickstart
//! ```
//!
//! It prints where it listens and two lines to try from another terminal:
//!
//! ```text
//! hello: 10 requests per minute for each client address, on http://127.0.0.1:3000
//! Eleven at once:    for i in $(seq 11); do curl -s -o /dev/null -w '%{http_code}\n' http://127.0.0.1:3000; done
//! What clients see:  curl -i http://127.0.0.1:3000
//! ```
//!
//! The first shows 200 ten times and then 429; the second, right after it:
//!
//! ```text
//! HTTP/1.1 429 Too Many Requests
//! content-type: application/problem+json
//! ratelimit-policy: "hello";q=10;w=60
//! ratelimit: "hello";r=0;t=6
//! retry-after: 6
//! cache-control: no-store
//! ...
//! ```
//!
//! Six seconds later there is room for one more. `PORT` chooses another port than 3000; 0 takes any that is free.

use std::error::Error;
use std::net::SocketAddr;

use axum::{Router, routing::get};
use tokio::net::TcpListener;
use tollgate::{MINUTE, Policy, Quota, RateLimitLayer, key};

const HELLO: Policy = Policy::new("hello", Quota::token_bucket(10, MINUTE));

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let app = Router::new().route("/", get(|| async { "hello\n" })).layer(RateLimitLayer::new(HELLO, key::client_ip()));

    let port = std::env::var("PORT").unwrap_or_else(|_| "3000".into());
    let listener = TcpListener::bind(format!("127.0.0.1:{port}"))
        .await
        .map_err(|error| format!("cannot listen on port {port}: {error}. Set PORT to another, or to 0 for any"))?;

    let url = format!("http://{}", listener.local_addr()?);
    println!("{}: 10 requests per minute for each client address, on {url}", HELLO.name());
    println!("Eleven at once:    for i in $(seq 11); do curl -s -o /dev/null -w '%{{http_code}}\\n' {url}; done");
    println!("What clients see:  curl -i {url}");

    // The limiter has the client's address from here. Plain `axum::serve(listener, app)` would not tell it.
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
