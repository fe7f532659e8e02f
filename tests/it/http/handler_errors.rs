//! Optional extractors in handlers, and how errors returned by handlers become responses.

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use tollgate::{
    HOUR, LimitError, Policy, Quota, RateLimitLayer, RateLimitStatus, RateLimiter, Receipt,
    key::{self, KeyError},
};

use crate::support::client::{limiter, serve};

const LOGIN: Policy = Policy::new("login", Quota::token_bucket(2, HOUR));

#[tokio::test]
async fn handlers_can_extract_an_optional_receipt_and_status() {
    async fn show(settlement: Option<Receipt>, status: Option<RateLimitStatus>) -> String {
        format!("{} {}", settlement.is_some(), status.is_some())
    }
    let (limiter, _clock) = limiter();
    let layer = || RateLimitLayer::new(LOGIN, key::global()).limiter(&limiter);
    for (layer, expected) in [(layer(), "false false"), (layer().with_receipt().with_status(), "true true")] {
        let client = serve(Router::new().route("/", get(show)).layer(layer)).await;
        assert_eq!(String::from_utf8(client.get().await.body).unwrap(), expected);
    }
}

#[tokio::test]
async fn a_key_error_returned_by_a_handler_sets_the_status() {
    async fn unnamed(State(limiter): State<RateLimiter>) -> Result<(), LimitError> {
        let name: Result<&str, KeyError> =
            Err(KeyError::new("no name; send x-name").with_status(http::StatusCode::BAD_REQUEST));
        limiter.limit(&LOGIN, name?).await?;
        Ok(())
    }
    let (limiter, _clock) = limiter();
    let client = serve(Router::new().route("/", get(unnamed)).with_state(limiter)).await;
    let answer = client.get().await;
    assert_eq!((answer.status, answer.problem()["detail"].as_str()), (400, Some("no name; send x-name")));
}

#[cfg(feature = "wait")]
#[tokio::test]
async fn waiting_under_a_policy_without_reservations_causes_a_500_that_names_max_reserved() {
    async fn patient(State(limiter): State<RateLimiter>) -> Result<(), LimitError> {
        limiter.acquire(&LOGIN, "ada").wait_up_to(HOUR).await?;
        Ok(())
    }
    let (limiter, _clock) = limiter();
    let client = serve(Router::new().route("/", get(patient)).with_state(limiter)).await;
    let answer = client.get().await;
    let detail = answer.problem()["detail"].as_str().unwrap().to_owned();
    assert_eq!(answer.status, 500);
    assert!(detail.contains("login") && detail.contains("Quota::max_reserved"), "{detail}");
}
