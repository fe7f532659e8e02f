//! `LimitError` for denials and for backend errors.

use std::error::Error as _;

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use tollgate::{LimitError, Quota, RateLimitLayer, RateLimiter, SECOND, backend::ErrorKind};

use super::app::{TEN, team};
use crate::support::answer::Answer;
use crate::support::backends::FailingBackend;
use crate::support::client::{hello, limiter, serve};

/// Spends a token, then holds a charge. The `?` operator converts both kinds of errors.
async fn limit_and_hold(limiter: &RateLimiter) -> Result<u64, LimitError> {
    limiter.try_limit(&TEN, "team").await?.into_result()?;
    let held = limiter.acquire(&TEN, "team").cost(4).hold().await?.into_receipt();
    Ok(held.decisions().iter().next().unwrap().remaining())
}

async fn by_handler(limiter: &RateLimiter) -> Answer {
    async fn limit_error(State(limiter): State<RateLimiter>) -> Result<String, LimitError> {
        Ok(limit_and_hold(&limiter).await?.to_string())
    }
    async fn as_response(State(limiter): State<RateLimiter>) -> Result<String, Response> {
        Ok(limit_and_hold(&limiter).await?.to_string())
    }
    async fn any(State(limiter): State<RateLimiter>) -> axum::response::Result<String> {
        Ok(limit_and_hold(&limiter).await?.to_string())
    }
    let mut answers = Vec::new();
    for handler in [get(limit_error), get(as_response), get(any)] {
        let client = serve(Router::new().route("/", handler).with_state(limiter.clone())).await;
        let mut answer = client.get().await;
        answer.headers.remove("date");
        answers.push(answer);
    }
    let last = answers.pop().unwrap();
    for answer in answers {
        assert_eq!(
            (answer.status, answer.headers, answer.body),
            (last.status, last.headers.clone(), last.body.clone())
        );
    }
    last
}

async fn by_layer(limiter: &RateLimiter) -> Answer {
    let mut answer = serve(hello().layer(RateLimitLayer::new(TEN, team).limiter(limiter))).await.get().await;
    answer.headers.remove("date");
    answer
}

#[tokio::test]
async fn a_handler_and_the_layer_respond_to_a_denial_with_the_same_429() {
    let (limiter, _clock) = limiter();
    limiter.acquire(&TEN, "team").cost(10).await.unwrap();
    let (answer, expected) = (by_handler(&limiter).await, by_layer(&limiter).await);
    assert_eq!((answer.status, answer.retry_after(), answer.violated_policies()), (429, Some(6), vec!["ten".into()]));
    assert_eq!((answer.policies(), answer.limits()), (vec![("ten".into(), 10, 60)], vec![("ten".into(), 0, Some(6))]));
    assert_eq!((answer.headers, answer.body), (expected.headers, expected.body));
}

#[tokio::test]
async fn a_backend_error_is_a_503_without_details() {
    let limiter = RateLimiter::new(FailingBackend::IMMEDIATE);
    let (answer, expected) = (by_handler(&limiter).await, by_layer(&limiter).await);
    assert_eq!((answer.status, answer.retry_after()), (503, Some(1)));
    assert!(answer.problem()["type"].as_str().unwrap().ends_with("#temporary-reduced-capacity"));
    assert!(!String::from_utf8_lossy(&answer.body).contains("10.0.0.7"));
    assert_eq!((answer.headers, answer.body), (expected.headers, expected.body));
}

#[tokio::test]
async fn a_limit_error_delegates_display_and_source_to_the_inner_error() {
    let (limiter, _clock) = limiter();
    assert_eq!(limit_and_hold(&limiter).await.unwrap(), 5);
    assert_eq!(limit_and_hold(&limiter).await.unwrap(), 0);
    let denied = limit_and_hold(&limiter).await.unwrap_err();
    assert_eq!(denied.to_string(), "rate limit exceeded: \"ten\"; retry after 6s");
    assert_eq!(denied.denied().unwrap().retry_after(), Some(6 * SECOND));
    assert!(denied.source().is_none());

    let down = limit_and_hold(&RateLimiter::new(FailingBackend::IMMEDIATE)).await.unwrap_err();
    assert_eq!(down.to_string(), "backend is unavailable: cannot reach 10.0.0.7");
    // `LimitError` is transparent, so `source()` returns the cause of the inner error.
    assert_eq!(down.source().unwrap().to_string(), "connection refused");
    assert!(down.denied().is_none() && down.source().unwrap().source().is_none());
    let LimitError::Backend(error) = down else { panic!("expected a backend error, found {down:?}") };
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_denied_hold_charges_nothing_and_its_error_says_why() {
    let (limiter, _clock) = limiter();
    let never = limiter.acquire(&TEN, "team").cost(11).hold().await.unwrap_err();
    assert!(never.to_string().contains("cannot grant 11 tokens"), "{never}");
    assert_eq!(never.denied().unwrap().retry_after(), None);
    let one = tollgate::Policy::new("one", Quota::token_bucket(1, SECOND));
    let ten = &TEN;
    let charges = || [tollgate::Charge::new(ten, "team"), tollgate::Charge::new(&one, "team")];
    limiter.hold_all(charges()).await.unwrap().into_receipt();
    let refused = limiter.hold_all(charges()).await.unwrap_err();
    assert_eq!(refused.to_string(), "rate limit exceeded: \"one\"; retry after 1s");
    assert_eq!(limiter.remaining(&TEN, "team").await.unwrap(), 9);
}
