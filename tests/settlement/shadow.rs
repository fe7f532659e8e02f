//! Requests that pass uncharged have a handle too: it is there, and does nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::routing::get;
use tollgate::{OnResponse, RateLimitLayer, RateLimiter, Receipt, clock::ManualClock};

use crate::app::{TEN, ask, behind, left, team, told};
use crate::client::{limiter, serve};
use crate::store::Store;

/// All that a handle can do, for a request of which nothing was charged.
async fn use_all(usage: Receipt) -> StatusCode {
    assert_eq!(usage.decisions().iter().count(), 0);
    assert!(usage.is_settled() && usage.of("ten").is_none());
    usage.settle(1000).await.unwrap();
    usage.refund().await.unwrap();
    usage.reset().await.unwrap();
    StatusCode::OK
}

#[tokio::test]
async fn what_would_have_been_refused_has_nothing_to_settle() {
    let (limiter, _clock) = limiter();
    let layer = RateLimitLayer::new(TEN, team).with_receipt().shadow().limiter(&limiter);
    limiter.acquire(&TEN, "team").cost(10).await.unwrap();
    for _ in 0..3 {
        assert_eq!(ask(&behind(&layer, use_all), "/").await, 200);
    }
    assert_eq!(left(&limiter, &TEN).await, 0);
}

#[tokio::test]
async fn what_would_have_been_refused_is_not_settled_by_its_response_either() {
    for verdict in [OnResponse::Refund, OnResponse::Settle(5), OnResponse::Reset] {
        let (limiter, _clock) = limiter();
        // Found here: with a handle in the request it was asked, and its answer thrown away.
        let layer = RateLimitLayer::new(TEN, team).shadow().limiter(&limiter).on_response(move |response| {
            assert_ne!(response.status, 202, "asked what becomes of nothing");
            verdict
        });
        limiter.acquire(&TEN, "team").cost(10).await.unwrap();
        for layer in [layer.clone(), layer.with_receipt()] {
            assert_eq!(ask(&told(&layer), "/202").await, 202);
            assert_eq!(left(&limiter, &TEN).await, 0, "{verdict:?}");
        }
    }
}

#[tokio::test]
async fn in_shadow_mode_what_was_charged_is_settled_as_ever() {
    let (limiter, _clock) = limiter();
    let layer = RateLimitLayer::new(TEN, team).shadow().limiter(&limiter);
    assert_eq!(ask(&told(&layer.clone().on_response(|_| OnResponse::Refund)), "/200").await, 200);
    assert_eq!(left(&limiter, &TEN).await, 10);
    let service = behind(&layer.with_receipt(), |usage| async move {
        usage.settle(7).await.unwrap();
        StatusCode::OK
    });
    assert_eq!(ask(&service, "/").await, 200);
    assert_eq!(left(&limiter, &TEN).await, 3);
}

#[tokio::test]
async fn a_request_that_is_skipped_has_a_handle_for_its_extractor() {
    let (limiter, _clock) = limiter();
    let layer = RateLimitLayer::new(TEN, team).with_receipt().limiter(&limiter).skip(|_: &Parts| true);
    let client = serve(Router::new().route("/", get(use_all)).layer(layer)).await;
    assert_eq!(client.get().await.status, 200);
    assert_eq!(left(&limiter, &TEN).await, 10);
}

#[tokio::test]
async fn without_a_handle_a_handler_that_wants_one_says_how_to_get_it() {
    let (limiter, _clock) = limiter();
    let layer = RateLimitLayer::new(TEN, team).on_response(|_| OnResponse::Keep).limiter(&limiter);
    let client = serve(Router::new().route("/", get(use_all)).layer(layer)).await;
    let answer = client.get().await;
    let detail = answer.problem()["detail"].as_str().unwrap().to_owned();
    assert_eq!(answer.status, 500);
    assert!(detail.contains(".with_receipt()"), "{detail}");
}

#[tokio::test]
async fn what_was_not_charged_asks_no_backend() {
    // Found here: a reset of no rows went to the backend, and failed where that was down.
    let store = Store { fails: true, ..Store::new(ManualClock::new(), 2) };
    let log = Arc::clone(&store.log);
    let limiter = RateLimiter::new(store);
    let layer = RateLimitLayer::new(TEN, team).with_receipt().skip(|_: &Parts| true).limiter(&limiter);
    assert_eq!(ask(&behind(&layer, use_all), "/").await, 200);
    assert_eq!(log.begun.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_closure_is_asked_once_a_response() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let (limiter, _clock) = limiter();
    let layer = RateLimitLayer::new(TEN, team).limiter(&limiter).on_response(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        OnResponse::Refund
    });
    for requests in 1..=20 {
        assert_eq!(ask(&told(&layer), "/200").await, 200);
        assert_eq!(asked.load(Ordering::Relaxed), requests);
    }
}
