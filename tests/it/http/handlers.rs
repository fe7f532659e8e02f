//! Handlers that read the status of their limits, or apply limits themselves.

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use tollgate::{Charge, HOUR, MINUTE, Policy, Quota, RateLimitLayer, RateLimitStatus, RateLimiter, key};

use crate::support::client::{hello, limiter, serve};

const LOGIN: Policy = Policy::new("login", Quota::token_bucket(2, HOUR));
const ALL: Policy = Policy::new("all", Quota::token_bucket(100, MINUTE));

#[tokio::test]
async fn a_handler_can_read_the_status_of_its_limits() {
    async fn show(status: RateLimitStatus) -> String {
        let tightest = status.tightest().unwrap();
        format!("{} of {}: {} left", status.decisions().iter().count(), tightest.policy(), tightest.remaining())
    }
    let (limiter, _clock) = limiter();
    let layer = RateLimitLayer::new(ALL, key::global()).and(LOGIN, key::client_ip()).with_status();
    let client = serve(Router::new().route("/", get(show)).layer(layer.limiter(&limiter))).await;
    for left in ["2 of login: 1 left", "2 of login: 0 left"] {
        assert_eq!(String::from_utf8(client.get().await.body).unwrap(), left);
    }
}

#[tokio::test]
async fn a_missing_status_extension_causes_a_500_that_suggests_with_status() {
    async fn show(_status: RateLimitStatus) {}
    let (limiter, _clock) = limiter();
    let layer = RateLimitLayer::new(ALL, key::global()).limiter(&limiter);
    let client = serve(Router::new().route("/", get(show)).layer(layer)).await;
    let answer = client.get().await;
    let detail = answer.problem()["detail"].as_str().unwrap().to_owned();
    assert_eq!(answer.status, 500);
    assert!(detail.contains(".with_status()"), "{detail}");
}

#[tokio::test]
async fn a_handler_denies_with_the_same_response_as_the_layer() {
    // One handler returns axum's `Result`, one returns a `Response` as the error, and one passes a list of charges.
    async fn any_error(State(limiter): State<RateLimiter>) -> axum::response::Result<&'static str> {
        limiter.limit(&LOGIN, "ada").await?;
        Ok("hello")
    }
    async fn response_error(State(limiter): State<RateLimiter>) -> Result<&'static str, Response> {
        limiter.try_limit(&LOGIN, "ada").await?.into_result()?;
        Ok("hello")
    }
    async fn several(State(limiter): State<RateLimiter>) -> axum::response::Result<&'static str> {
        limiter.try_limit_all([Charge::new(&LOGIN, "ada")]).await?.into_result()?;
        Ok("hello")
    }
    let by_layer = |limiter: &RateLimiter| hello().layer(RateLimitLayer::new(LOGIN, key::client_ip()).limiter(limiter));
    let mut expected = refusal_of(by_layer).await;
    assert_eq!(
        (expected.status, expected.retry_after(), expected.violated_policies()),
        (429, Some(1800), vec!["login".into()])
    );
    expected.headers.remove("date");

    let by_handler = [get(any_error), get(response_error), get(several)];
    for handler in by_handler {
        let mut refused = refusal_of(|limiter| Router::new().route("/", handler).with_state(limiter.clone())).await;
        refused.headers.remove("date");
        assert_eq!((refused.status, refused.headers), (expected.status, expected.headers.clone()));
        assert_eq!(refused.body, expected.body);
    }
}

/// Returns the response to the third request to an app that allows two.
async fn refusal_of(app: impl FnOnce(&RateLimiter) -> Router) -> crate::support::answer::Answer {
    let (limiter, _clock) = limiter();
    let client = serve(app(&limiter)).await;
    for _ in 0..2 {
        let answer = client.get().await;
        assert_eq!((answer.status, &answer.body[..]), (200, &b"hello"[..]));
    }
    client.get().await
}
