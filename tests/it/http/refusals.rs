//! Refused requests never reach the handler, and errors and panics in closures affect no other requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::request::Parts;
use axum::routing::post;
use tollgate::{
    MINUTE, Policy, Quota, RateLimitLayer,
    key::{self, KeyError},
};

use crate::support::client::{hello, limiter, oneshot, serve};

const THREE: Policy = Policy::new("three", Quota::token_bucket(3, MINUTE));

#[tokio::test]
async fn a_refusal_is_sent_before_the_body_is_read_and_without_calling_the_handler() {
    let (limiter, _clock) = limiter();
    let seen = Arc::new(AtomicUsize::new(0));
    let handler = {
        let seen = Arc::clone(&seen);
        move |_body: Bytes| async move { seen.fetch_add(1, Ordering::Relaxed).to_string() }
    };
    let layer = RateLimitLayer::new(THREE, key::client_ip()).limiter(&limiter);
    let client = serve(Router::new().route("/", post(handler)).layer(layer)).await;
    for _ in 0..3 {
        assert_eq!(client.send("POST", &["content-length: 0"]).await.status, 200);
    }
    // The announced body is never sent. A server that waited for it would hang or reply with 100 Continue.
    for lines in [&["content-length: 1000000"][..], &["content-length: 1000000", "expect: 100-continue"]] {
        let answer = tokio::time::timeout(Duration::from_secs(20), client.send("POST", lines)).await;
        assert_eq!(answer.expect("expected a response before the body").status, 429);
    }
    assert_eq!(seen.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn a_request_without_a_peer_address_gets_a_500_and_counts_as_a_mistake() {
    let (limiter, _clock) = limiter();
    let app = hello().layer(RateLimitLayer::new(THREE, key::client_ip()).limiter(&limiter));
    let answer = oneshot(&app, Request::new(Body::empty())).await;
    let problem = answer.problem();
    assert_eq!((answer.status, answer.retry_after()), (500, None));
    assert_eq!(problem["detail"], "the request has no peer address to limit by");
    assert_eq!(limiter.stats().mistakes.missing_peers, 1);
}

#[tokio::test]
async fn after_a_key_error_nothing_is_charged_and_the_detail_is_the_error_message() {
    let (limiter, _clock) = limiter();
    let tenant = |req: &Parts| match req.headers.get("x-tenant") {
        Some(tenant) => Ok(tenant.as_bytes().to_vec()),
        None => Err(KeyError::new("no tenant: put the tenant layer outside the limiter")),
    };
    let all = Policy::new("all", Quota::token_bucket(100, MINUTE));
    let layer = RateLimitLayer::new(all, key::global()).and(THREE, tenant).limiter(&limiter);
    let client = serve(hello().layer(layer)).await;
    let answer = client.get().await;
    assert_eq!(
        (answer.status, answer.problem()["detail"].as_str()),
        (500, Some("no tenant: put the tenant layer outside the limiter"))
    );
    let answer = client.send("GET", &["x-tenant: acme"]).await;
    assert_eq!((answer.status, answer.limits()[0].1, answer.limits()[1].1), (200, 99, 2));
}

#[tokio::test]
async fn a_panic_in_a_key_or_cost_closure_affects_no_other_request() {
    let (limiter, _clock) = limiter();
    let panic_on = |name: &'static str| {
        move |req: &Parts| match req.headers.contains_key(name) {
            true => panic!("{name}"),
            false => 1_u64,
        }
    };
    let layer = RateLimitLayer::new(THREE, panic_on("x-key")).cost(panic_on("x-cost")).limiter(&limiter);
    let app = hello().layer(layer);
    let request = |header: &str| Request::builder().header(header, "1").body(Body::empty()).unwrap();
    for header in ["x-key", "x-cost"].repeat(50) {
        let (app, request) = (app.clone(), request(header));
        let panicked = tokio::spawn(async move { oneshot(&app, request).await.status }).await.unwrap_err();
        assert!(panicked.is_panic());
    }
    for status in [200, 200, 200, 429] {
        assert_eq!(oneshot(&app, request("x-fine")).await.status, status);
    }
}
