//! Limits on failed logins. Each guess is charged before it is checked, so that parallel guesses cannot exceed the
//! limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use tollgate::{HOUR, OnResponse, Policy, Quota, RateLimitLayer, key};

use crate::support::client::{Client, limiter, serve};

const LOGIN: Policy = Policy::new("login", Quota::token_bucket(5, HOUR));
const GUESSES: usize = 200;

/// Creates a login form that counts the passwords it checks. The handler yields so that guesses overlap.
fn form() -> (Router, Arc<AtomicUsize>) {
    let reached = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&reached);
    let login = move |headers: HeaderMap| async move {
        count.fetch_add(1, Ordering::Relaxed);
        tokio::task::yield_now().await;
        if headers["x-password"] == "right" { StatusCode::OK } else { StatusCode::UNAUTHORIZED }
    };
    (Router::new().route("/", post(login)), reached)
}

async fn guess(client: Client, password: &str) -> u16 {
    client.send("POST", &[&format!("x-password: {password}"), "content-length: 0"]).await.status
}

/// Sends wrong guesses in parallel. Returns how many guesses were checked and how many were refused.
async fn guess_all(client: Client) -> (usize, usize) {
    let mut guesses = tokio::task::JoinSet::new();
    for _ in 0..GUESSES {
        guesses.spawn(guess(client, "wrong"));
    }
    let statuses = guesses.join_all().await;
    let count = |status| statuses.iter().filter(|other| **other == status).count();
    (count(401), count(429))
}

async fn assert_limit_holds(layer: RateLimitLayer) {
    let (limiter, clock) = limiter();
    let (form, reached) = form();
    let client = serve(form.layer(layer.limiter(&limiter))).await;
    assert_eq!(guess_all(client).await, (5, GUESSES - 5));
    assert_eq!(reached.load(Ordering::Relaxed), 5);
    assert_eq!(guess(client, "right").await, 429);
    assert_eq!(reached.load(Ordering::Relaxed), 5);

    clock.advance(HOUR / 5);
    assert_eq!(guess(client, "right").await, 200);
    let left = async || limiter.remaining(&LOGIN, std::net::IpAddr::from([127, 0, 0, 1])).await.unwrap();
    assert_eq!(left().await, 5);
    assert_eq!((guess(client, "wrong").await, left().await), (401, 4));
    assert_eq!(guess_all(client).await, (4, GUESSES - 4));
    assert_eq!(reached.load(Ordering::Relaxed), 11);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parallel_guesses_cannot_exceed_the_limit() {
    assert_limit_holds(RateLimitLayer::new(LOGIN, key::client_ip()).on_response(OnResponse::reset_on_success)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parallel_guesses_cannot_exceed_a_limit_that_a_closure_resets() {
    let settle = |response: &axum::http::response::Parts| {
        if response.status == StatusCode::OK { OnResponse::Reset } else { OnResponse::Keep }
    };
    assert_limit_holds(RateLimitLayer::new(LOGIN, key::client_ip()).on_response(settle)).await;
}

#[tokio::test]
async fn only_2xx_responses_reset_the_limit() {
    let (limiter, _clock) = limiter();
    let layer =
        RateLimitLayer::new(LOGIN, super::app::team).on_response(OnResponse::reset_on_success).limiter(&limiter);
    let service = super::app::status_from_path(&layer);
    for (path, left) in [("/204", 5), ("/302", 4), ("/500", 3), ("/299", 5), ("/404", 4), ("/200", 5)] {
        super::app::ask(&service, path).await;
        assert_eq!(super::app::left(&limiter, &LOGIN).await, left, "{path}");
    }
}
