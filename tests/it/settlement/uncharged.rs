//! If a request was not charged, neither its receipt nor its response settles anything.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::routing::get;
use tollgate::policy::Enforce;
use tollgate::{OnResponse, Policy, RateLimitLayer, RateLimiter, Receipt, clock::ManualClock};

use super::app::{TEN, ask, left, status_from_path, team, with_receipt_handler};
use crate::support::backends::DelayedBackend;
use crate::support::client::{limiter, serve};

/// [`TEN`] in shadow mode.
const TRIAL: Policy = TEN.enforce(Enforce::Never);

async fn use_all(receipt: Receipt) -> StatusCode {
    assert_eq!(receipt.decisions().iter().count(), 0);
    assert!(receipt.is_settled() && receipt.of("ten").is_none());
    receipt.settle(1000).await.unwrap();
    receipt.refund().await.unwrap();
    receipt.reset().await.unwrap();
    StatusCode::OK
}

#[tokio::test]
async fn the_receipt_of_a_request_denied_in_shadow_mode_does_nothing() {
    let (limiter, _clock) = limiter();
    let layer = RateLimitLayer::new(TRIAL, team).with_receipt().limiter(&limiter);
    limiter.acquire(&TEN, "team").cost(10).await.unwrap();
    for _ in 0..3 {
        assert_eq!(ask(&with_receipt_handler(&layer, use_all), "/").await, 200);
    }
    assert_eq!(left(&limiter, &TEN).await, 0);
}

#[tokio::test]
async fn a_request_denied_in_shadow_mode_is_not_settled_by_its_response() {
    for action in [OnResponse::Refund, OnResponse::Settle(5), OnResponse::Reset] {
        let (limiter, _clock) = limiter();
        // Regression test: for a request with a receipt, the closure was called although its result was ignored.
        let layer = RateLimitLayer::new(TRIAL, team).limiter(&limiter).on_response(move |response| {
            assert_ne!(response.status, 202, "the closure was called for a request that was not charged");
            action
        });
        limiter.acquire(&TEN, "team").cost(10).await.unwrap();
        for layer in [layer.clone(), layer.with_receipt()] {
            assert_eq!(ask(&status_from_path(&layer), "/202").await, 202);
            assert_eq!(left(&limiter, &TEN).await, 0, "{action:?}");
        }
    }
}

#[tokio::test]
async fn a_charge_in_shadow_mode_is_settled_as_usual() {
    let (limiter, _clock) = limiter();
    let layer = RateLimitLayer::new(TRIAL, team).limiter(&limiter);
    assert_eq!(ask(&status_from_path(&layer.clone().on_response(|_| OnResponse::Refund)), "/200").await, 200);
    assert_eq!(left(&limiter, &TEN).await, 10);
    let service = with_receipt_handler(&layer.with_receipt(), |receipt| async move {
        receipt.settle(7).await.unwrap();
        StatusCode::OK
    });
    assert_eq!(ask(&service, "/").await, 200);
    assert_eq!(left(&limiter, &TEN).await, 3);
}

#[tokio::test]
async fn a_receipt_can_be_extracted_from_a_skipped_request() {
    let (limiter, _clock) = limiter();
    let layer = RateLimitLayer::new(TEN, team).with_receipt().limiter(&limiter).skip(|_: &Parts| true);
    let client = serve(Router::new().route("/", get(use_all)).layer(layer)).await;
    assert_eq!(client.get().await.status, 200);
    assert_eq!(left(&limiter, &TEN).await, 10);
}

#[tokio::test]
async fn the_error_for_a_missing_receipt_mentions_with_receipt() {
    let (limiter, _clock) = limiter();
    let layer = RateLimitLayer::new(TEN, team).on_response(|_| OnResponse::Keep).limiter(&limiter);
    let client = serve(Router::new().route("/", get(use_all)).layer(layer)).await;
    let answer = client.get().await;
    let detail = answer.problem()["detail"].as_str().unwrap().to_owned();
    assert_eq!(answer.status, 500);
    assert!(detail.contains(".with_receipt()"), "{detail}");
}

#[tokio::test]
async fn a_receipt_without_charges_does_not_call_the_backend() {
    // Regression test: a reset of zero rows was sent to the backend, and failed if the backend was down.
    let backend = DelayedBackend { fails: true, ..DelayedBackend::new(&ManualClock::new(), 2) };
    let log = Arc::clone(&backend.log);
    let limiter = RateLimiter::new(backend);
    let layer = RateLimitLayer::new(TEN, team).with_receipt().skip(|_: &Parts| true).limiter(&limiter);
    assert_eq!(ask(&with_receipt_handler(&layer, use_all), "/").await, 200);
    assert_eq!(log.begun.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn the_on_response_closure_is_called_once_per_response() {
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let (limiter, _clock) = limiter();
    let layer = RateLimitLayer::new(TEN, team).limiter(&limiter).on_response(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        OnResponse::Refund
    });
    for requests in 1..=20 {
        assert_eq!(ask(&status_from_path(&layer), "/200").await, 200);
        assert_eq!(calls.load(Ordering::Relaxed), requests);
    }
}
