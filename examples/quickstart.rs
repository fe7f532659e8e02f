//! A limit of ten requests per minute for each client address.
//!
//! Run it with `cargo run --example quickstart`.
//! The program prints its address and two commands to try in another terminal:
//! ```text
//! hello: 10 requests per minute for each client address, on http://127.0.0.1:3000
//! Eleven together:   for i in $(seq 11); do curl -s -o /dev/null -w '%{http_code}\n' http://127.0.0.1:3000; done
//! What clients see:  curl -i http://127.0.0.1:3000
//! ```
//!
//! The first command prints 200 ten times and then 429. The second command, if you run it right afterwards, prints:
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
//! Six seconds later, one more request is allowed. To use a port other than 3000, set the environment variable `PORT`;
//! with `PORT=0`, any free port is used.

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
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await.map_err(|error| {
        format!("cannot listen on port {port}: {error}. Set PORT to another port, or to 0 for any free one")
    })?;

    let url = format!("http://{}", listener.local_addr()?);
    println!("{}: 10 requests per minute for each client address, on {url}", HELLO.name());
    println!("Eleven together:   for i in $(seq 11); do curl -s -o /dev/null -w '%{{http_code}}\\n' {url}; done");
    println!("What clients see:  curl -i {url}");

    // Provides the client's address to the limiter; plain `axum::serve(listener, app)` does not.
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
