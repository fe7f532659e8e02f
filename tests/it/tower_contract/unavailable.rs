//! When the backend fails, responses have a `Retry-After` and reveal nothing about the backend.

use axum::body::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{Request, Response};
use http_body_util::BodyExt;
use tollgate::{MINUTE, Policy, Quota, RateLimitLayer, RateLimiter, backend::ErrorKind, key};
use tower::{Layer, ServiceExt};

use super::contract_service::ContractService;
use crate::support::backends::FailingBackend;

#[tokio::test]
async fn requests_are_refused_with_503_if_the_backend_fails() {
    for backend in [FailingBackend::IMMEDIATE, FailingBackend::LATE] {
        let limiter = RateLimiter::new(backend);
        let one = Policy::new("one", Quota::token_bucket(10, MINUTE));
        let two = Policy::new("two", Quota::token_bucket(10, MINUTE));
        let layer = RateLimitLayer::new(one, key::global()).and(two, key::global()).limiter(&limiter);
        let inner = ContractService::default();
        let response = layer.layer(inner.clone()).oneshot(Request::new(())).await.unwrap();

        assert_eq!((response.status().as_u16(), inner.calls()), (503, 0));
        let headers = response.headers().clone();
        assert!(headers[RETRY_AFTER].to_str().unwrap().parse::<u64>().unwrap() > 0);
        assert_eq!(headers[CACHE_CONTROL], "no-store");
        assert_eq!(headers[CONTENT_TYPE], "application/problem+json");
        assert!(!headers.contains_key("ratelimit"));
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(
            serde_json::from_slice::<serde_json::Value>(&body).unwrap(),
            serde_json::json!({
                "type": "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
                "title": "Service Unavailable",
                "status": 503,
            })
        );
    }
}

#[tokio::test]
async fn on_refusal_receives_the_backend_error() {
    let limiter = RateLimiter::new(FailingBackend::IMMEDIATE);
    let one = Policy::new("one", Quota::token_bucket(10, MINUTE));
    let layer = RateLimitLayer::new(one, key::global()).limiter(&limiter).on_refusal(|refusal| {
        let error = refusal.error().expect("expected the backend's error");
        assert!(refusal.decisions().is_none() && refusal.status() == 503);
        assert_eq!(refusal.message(), "the service cannot check its rate limits at the moment");
        Response::new(Bytes::from(format!("{:?}", error.kind())))
    });
    let response = layer.layer(ContractService::default()).oneshot(Request::new(())).await.unwrap();
    assert_eq!(response.headers()[RETRY_AFTER], "1");
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, format!("{:?}", ErrorKind::Unavailable));
}
