//! Settlement over a network. A response waits until its settlements are confirmed.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use axum::Router;
use axum::http::{Request, StatusCode};
use axum::routing::get;
use tollgate::{OnResponse, RateLimitLayer, RateLimiter, Rule, clock::ManualClock};
use tower::ServiceExt;

use super::app::{CALLS, TEN, ask, left, status_from_path, team, with_receipt_handler};
use crate::support::backends::{DelayedBackend, Log};
use crate::support::client::serve;

fn remote(polls: usize, fails: bool) -> (RateLimiter, Arc<Log>) {
    let backend = DelayedBackend { fails, ..DelayedBackend::new(&ManualClock::new(), polls) };
    let log = Arc::clone(&backend.log);
    (RateLimiter::new(backend), log)
}

#[tokio::test]
async fn a_response_waits_until_its_settlements_are_confirmed() {
    for polls in 0..5 {
        for (action, remaining) in [(OnResponse::Refund, 10), (OnResponse::Settle(7), 3), (OnResponse::Reset, 10)] {
            let (limiter, log) = remote(polls, false);
            let layer = RateLimitLayer::new(TEN, team).rule(Rule::new(CALLS, team).on_response(|_| OnResponse::Refund));
            let service = status_from_path(&layer.on_response(move |_| action).limiter(&limiter));
            let request = Request::builder().uri("/202").body(()).unwrap();
            let mut response = pin!(service.oneshot(request));
            let mut pending_polls = 0;
            loop {
                match response.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                    Poll::Ready(response) => break assert_eq!(response.unwrap().status(), 202),
                    Poll::Pending => pending_polls += 1,
                }
            }
            let (begun, confirmed) = (log.begun.load(Ordering::Relaxed), log.confirmed.load(Ordering::Relaxed));
            // The decision takes `polls` polls. The two settlements run concurrently and take another `polls` polls.
            assert_eq!((pending_polls, begun, confirmed), (2 * polls, 2, 2));
            assert_eq!((left(&limiter, &TEN).await, left(&limiter, &CALLS).await), (remaining, 500));
        }
    }
}

#[tokio::test]
async fn a_response_that_keeps_its_charges_does_not_wait() {
    let (limiter, log) = remote(2, false);
    let layer = RateLimitLayer::new(TEN, team).cost(|_| 4).limiter(&limiter);
    for action in [OnResponse::Keep, OnResponse::Settle(4)] {
        assert_eq!(ask(&status_from_path(&layer.clone().on_response(move |_| action)), "/200").await, 200);
    }
    assert_eq!((log.begun.load(Ordering::Relaxed), left(&limiter, &TEN).await), (0, 2));
}

#[tokio::test]
async fn a_disconnect_before_the_confirmation_does_not_undo_a_refund() {
    let (limiter, log) = remote(3, false);
    let service =
        status_from_path(&RateLimitLayer::new(TEN, team).on_response(|_| OnResponse::Refund).limiter(&limiter));
    let request = Request::builder().uri("/200").body(()).unwrap();
    let mut response = Box::pin(service.oneshot(request));
    while log.begun.load(Ordering::Relaxed) == 0 {
        assert!(response.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    drop(response);
    assert_eq!((log.confirmed.load(Ordering::Relaxed), left(&limiter, &TEN).await), (0, 10));
}

#[tokio::test]
async fn a_failed_settlement_does_not_change_the_response() {
    let mut answers = Vec::new();
    for (polls, fails) in [(0, false), (0, true), (2, true)] {
        for action in [OnResponse::Keep, OnResponse::Refund, OnResponse::Settle(5), OnResponse::Reset] {
            let (limiter, log) = remote(polls, fails);
            let layer = RateLimitLayer::new(TEN, team).on_response(move |_| action).limiter(&limiter);
            let app = Router::new().route("/", get(async || (StatusCode::ACCEPTED, [("x-made", "by hand")], "hello")));
            let mut answer = serve(app.layer(layer)).await.get().await;
            answer.headers.remove("date");
            assert_eq!(log.confirmed.load(Ordering::Relaxed), usize::from(action != OnResponse::Keep));
            assert_eq!(
                left(&limiter, &TEN).await < 10,
                fails || !matches!(action, OnResponse::Refund | OnResponse::Reset)
            );
            answers.push((answer.status, answer.headers, answer.body));
        }
    }
    assert_eq!((answers[0].0, &answers[0].2[..]), (202, &b"hello"[..]));
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
}

#[tokio::test]
async fn a_receipt_returns_backend_errors() {
    for fails in [false, true] {
        let (limiter, _log) = remote(2, fails);
        let layer = RateLimitLayer::new(TEN, team).with_receipt().limiter(&limiter);
        let service = with_receipt_handler(&layer, move |receipt| async move {
            assert_eq!(receipt.settle(3).await.is_err(), fails);
            // A failed settlement is not repeated, because the backend may have applied it.
            assert!(receipt.is_settled() && receipt.settle(3).await.is_ok());
            assert_eq!(receipt.reset().await.is_err(), fails);
            StatusCode::OK
        });
        assert_eq!(ask(&service, "/").await, 200);
    }
}
