//! A limit, and the endpoint that tells a client how it stands: three messages, and one more every three seconds.
//!
//! ```text
//! cargo run --example status
//! ```
//!
//! It prints where it listens and what to try:
//!
//! ```text
//! chat: 3 messages, one more every 3 s, for each user, on http://127.0.0.1:3000
//! Send:           curl -i -X POST -H 'x-user: ada' http://127.0.0.1:3000/chat
//! How it stands:  curl -i -H 'x-user: ada' http://127.0.0.1:3000/limits/chat
//! ```
//!
//! The second answers what a client needs to count down by itself, and consumes nothing:
//!
//! ```text
//! {"policy":"chat","algorithm":"token_bucket","rate":1,"period":3000000,"capacity":3,"start":0,"max_reserved":0,...
//! ```
//!
//! `x-user` stands for whatever your authentication says. `PORT` chooses another port than 3000; 0 takes any that is free.

use std::error::Error;

use axum::{Router, routing::post};
use tokio::net::TcpListener;
use tollgate::{Policy, Quota, RateLimitLayer, RateLimiter, SECOND, key, status};

static CHAT: Policy = Policy::new("chat", Quota::token_bucket(1, SECOND.saturating_mul(3)).capacity(3));

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let limiter = RateLimiter::default();
    // Yours is checked, or set, by the gateway in front: a client could invent a user for each request.
    let user = || key::header("x-user");
    let app = Router::new()
        .route("/chat", post(|| async { "sent\n" }).layer(RateLimitLayer::new(&CHAT, user()).limiter(&limiter)))
        .route("/limits/chat", status::of(&limiter, &CHAT, user()))
        .route("/time", status::time(&limiter));

    let port = std::env::var("PORT").unwrap_or_else(|_| "3000".into());
    let listener = TcpListener::bind(format!("127.0.0.1:{port}"))
        .await
        .map_err(|error| format!("cannot listen on port {port}: {error}. Set PORT to another, or to 0 for any"))?;

    let url = format!("http://{}", listener.local_addr()?);
    println!("{}: 3 messages, one more every 3 s, for each user, on {url}", CHAT.name());
    println!("Send:           curl -i -X POST -H 'x-user: ada' {url}/chat");
    println!("How it stands:  curl -i -H 'x-user: ada' {url}/limits/chat");
    axum::serve(listener, app).await?;
    Ok(())
}
