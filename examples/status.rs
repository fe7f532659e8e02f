//! A limit of three messages, with one more every three seconds, and an endpoint that reports the limit's status.
//!
//! Run it with `cargo run --example status`.
//! The program prints its address and two commands to try:
//! ```text
//! chat: 3 messages, one more every 3 s, for each user, on http://127.0.0.1:3000
//! Send:           curl -i -X POST -H 'x-user: ada' http://127.0.0.1:3000/chat
//! Status:         curl -i -H 'x-user: ada' http://127.0.0.1:3000/limits/chat
//! ```
//!
//! The status contains all values that a client needs for a countdown, and reading it spends no tokens:
//! ```text
//! {"policy":"chat","algorithm":"token_bucket","rate":1,"period":3000000,"capacity":3,"start":0,"max_reserved":0,...
//! ```
//!
//! `x-user` stands in for your authentication. To use a port other than 3000, set the environment variable `PORT`; with
//! `PORT=0`, any free port is used.

use std::error::Error;

use axum::{Router, routing::post};
use tokio::net::TcpListener;
use tollgate::{Policy, Quota, RateLimitLayer, RateLimiter, SECOND, key, status};

static CHAT: Policy = Policy::new("chat", Quota::token_bucket(1, SECOND.saturating_mul(3)).capacity(3));

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let limiter = RateLimiter::default();
    // In production, this header must be checked or set by a gateway, so that clients cannot invent users.
    let user = || key::header("x-user");
    let app = Router::new()
        .route("/chat", post(|| async { "sent\n" }).layer(RateLimitLayer::new(&CHAT, user()).limiter(&limiter)))
        .route("/limits/chat", status::of(&limiter, &CHAT, user()))
        .route("/time", status::time(&limiter));

    let port = std::env::var("PORT").unwrap_or_else(|_| "3000".into());
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await.map_err(|error| {
        format!("cannot listen on port {port}: {error}. Set PORT to another port, or to 0 for any free one")
    })?;

    let url = format!("http://{}", listener.local_addr()?);
    println!("{}: 3 messages, one more every 3 s, for each user, on {url}", CHAT.name());
    println!("Send:           curl -i -X POST -H 'x-user: ada' {url}/chat");
    println!("Status:         curl -i -H 'x-user: ada' {url}/limits/chat");
    axum::serve(listener, app).await?;
    Ok(())
}
