//! Tests of the status endpoints over HTTP: methods, headers, and rate limits.

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use tollgate::{MINUTE, Policy, Quota, RateLimitLayer, key, status};

use super::app::{call, limiter, text, user};

static API: Policy = Policy::new("api", Quota::token_bucket(10, MINUTE));

#[tokio::test]
async fn responses_are_json_and_must_not_be_stored() {
    let (limiter, _clock) = limiter();
    let layer = RateLimitLayer::new(&API, user).limiter(&limiter);
    let several = layer.clone().and(Policy::new("all", Quota::token_bucket(9, MINUTE)), key::global());
    let app: Router = Router::new()
        .route("/one", status::of_layer(&layer))
        .route("/several", status::of_layer(&several))
        .route("/time", status::time(&limiter));
    for line in ["GET /one", "GET /several", "GET /time"] {
        let answer = call(&app, line, &["origin: https://elsewhere.example"]).await;
        assert_eq!(answer.status, 200, "{line}");
        assert_eq!(answer.headers["content-type"], "application/json");
        assert_eq!(answer.headers["cache-control"], "private, no-store");
        assert_eq!(answer.headers["content-length"], answer.body.len().to_string());
        // There are no other headers: CORS is left to the application, and limits are reported only in the body.
        assert_eq!(answer.headers.len(), 3, "{:?}", answer.headers);
        assert!(serde_json::from_slice::<serde_json::Value>(&answer.body).unwrap()["now"].is_u64());

        let head = call(&app, &line.replace("GET", "HEAD"), &[]).await;
        assert_eq!((head.status, head.body.len()), (200, 0));
        assert_eq!(head.headers, answer.headers);
    }
}

#[tokio::test]
async fn methods_other_than_get_and_head_are_refused_and_spend_nothing() {
    let (limiter, _clock) = limiter();
    let app =
        Router::new().route("/rate-limit", status::of(&limiter, &API, user)).route("/time", status::time(&limiter));
    for method in ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PURGE"] {
        for path in ["/rate-limit", "/time"] {
            let answer = call(&app, &format!("{method} {path}"), &["x-user: ada"]).await;
            assert_eq!((answer.status, answer.body.len()), (405, 0), "{method}");
            assert_eq!(answer.headers["allow"], "GET,HEAD");
        }
    }
    assert_eq!(limiter.remaining(&API, "ada".to_owned()).await.unwrap(), 10);
}

#[tokio::test]
async fn the_time_endpoint_returns_the_time_of_the_backend() {
    let (limiter, clock) = limiter();
    let app: Router = Router::new().route("/time", status::time(&limiter));
    assert_eq!(text(&call(&app, "GET /time", &[]).await), r#"{"now":1767225600000000}"#);
    clock.advance(std::time::Duration::from_micros(1_234_567));
    assert_eq!(text(&call(&app, "GET /time", &[]).await), r#"{"now":1767225601234567}"#);
    assert_eq!(limiter.stats().rows, Some(0));
}

#[tokio::test]
async fn a_status_endpoint_can_be_rate_limited() {
    let (limiter, clock) = limiter();
    let status_limit =
        RateLimitLayer::new(Policy::new("status", Quota::token_bucket(3, MINUTE)), user).limiter(&limiter);
    let app = Router::new().route("/rate-limit", status::of(&limiter, &API, user)).layer(status_limit);
    for expected in [200, 200, 200, 429] {
        assert_eq!(call(&app, "GET /rate-limit", &["x-user: ada"]).await.status, expected);
    }
    let refused = call(&app, "GET /rate-limit", &["x-user: ada"]).await;
    assert_eq!(refused.retry_after(), Some(20));
    assert_eq!(limiter.remaining(&API, "ada".to_owned()).await.unwrap(), 10);
    clock.advance(20 * tollgate::SECOND);
    assert_eq!(call(&app, "GET /rate-limit", &["x-user: ada"]).await.status, 200);
}

#[tokio::test]
async fn status_endpoints_work_in_nested_routers_with_state() {
    let (limiter, _clock) = limiter();
    let inner: Router<u64> = Router::new()
        .route("/rate-limit", status::of(&limiter, &API, user))
        .route("/state", get(|State(state): State<u64>| async move { state.to_string() }));
    let app: Router = Router::new().nest("/api", inner).with_state(7);
    assert_eq!(text(&call(&app, "GET /api/state", &[]).await), "7");
    assert_eq!(call(&app, "GET /api/rate-limit", &[]).await.status, 200);
}
