//! Threat 20: one request that does the work of many requests, such as a batch, a query with aliases, or a WebSocket.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use http::Request;
use tollgate::{Key, LimitError, MINUTE, Policy, Quota, RateLimitLayer, RateLimiter, key};

use super::client::{Answer, limiter, send};

const TEN: Policy = Policy::new("ten", Quota::token_bucket(10, MINUTE));
const PEER: &str = "198.51.100.1";

#[tokio::test]
async fn t20_a_batch_is_charged_for_each_of_its_operations() {
    // Charge one token for each operation in the body.
    async fn batch(State(limiter): State<RateLimiter>, body: String) -> Result<StatusCode, LimitError> {
        let operations = body.lines().count() as u64;
        limiter.try_acquire(&TEN, "ada").cost(operations).await?.into_result()?;
        Ok(StatusCode::OK)
    }
    let (limiter, _backend, _clock) = limiter();
    let app = Router::new().route("/", post(batch)).with_state(limiter.clone());
    assert_eq!(ask(&app, "one\n".repeat(8)).await.status, 200);
    assert_eq!(limiter.remaining(&TEN, "ada").await.unwrap(), 2);
    assert_eq!(ask(&app, "one\n".repeat(3)).await.status, 429, "a batch must be allowed or denied as a whole");
    assert_eq!(ask(&app, "one\n".repeat(2)).await.status, 200);
    assert_eq!(ask(&app, "one\n".to_owned()).await.status, 429);
    // A cost above the capacity can never be granted, so the refusal has no `retry-after`.
    let never = ask(&app, "one\n".repeat(11)).await;
    assert_eq!((never.status, never.headers.get("retry-after")), (429, None));
}

#[tokio::test]
async fn t20_a_batch_can_be_charged_based_on_a_header_before_its_body_is_read() {
    let (limiter, _backend, _clock) = limiter();
    // A gateway sends the complexity of the query in a header.
    let layer = RateLimitLayer::new(TEN, key::client_ip()).limiter(&limiter).cost(|parts| {
        parts.headers.get("x-complexity").and_then(|value| value.to_str().ok()?.parse().ok()).unwrap_or(1)
    });
    let app = Router::new().route("/", post(|| async {})).layer(layer);
    let mut statuses = Vec::new();
    for cost in ["6", "5", "4", "1"] {
        let mut request = super::client::request(PEER, &[("x-complexity", cost)]);
        *request.method_mut() = http::Method::POST;
        statuses.push(send(&app, request).await.status);
    }
    assert_eq!(statuses, [200, 429, 200, 429]);
}

#[tokio::test]
async fn t20_messages_on_one_connection_are_limited_individually() {
    let (limiter, _backend, clock) = limiter();
    // A WebSocket handler would call `try_limit` once for each message.
    let socket = Key::from(("socket", 7));
    let mut answered = 0;
    for _ in 0..100 {
        answered += u32::from(limiter.try_limit(&TEN, socket.clone()).await.unwrap().is_allowed());
    }
    assert_eq!(answered, 10);
    clock.advance(MINUTE / 10);
    assert!(limiter.try_check(&TEN, socket.clone()).await.unwrap().is_allowed(), "a check must not cost anything");
    assert!(limiter.try_limit(&TEN, socket.clone()).await.unwrap().is_allowed());
    assert!(!limiter.try_limit(&TEN, socket).await.unwrap().is_allowed());
}

async fn ask(app: &Router, body: String) -> Answer {
    send(app, Request::post("/").body(body.into()).unwrap()).await
}
