//! Shadow mode never refuses a request, even if the backend or the key extractor fails.

use http::Request;
use http::Response;
use std::convert::Infallible;
use tollgate::{MINUTE, Policy, Quota, RateLimitLayer, RateLimitStatus, RateLimiter, key};
use tower::{Layer, ServiceExt, service_fn};

use super::contract_service::ContractService;
use crate::support::backends::FailingBackend;

const ONE: Policy = Policy::new("one", Quota::token_bucket(10, MINUTE));

#[tokio::test]
async fn requests_are_not_refused_in_shadow_mode_if_the_backend_fails() {
    for backend in [FailingBackend::IMMEDIATE, FailingBackend::LATE] {
        let limiter = RateLimiter::new(backend);
        let layer = RateLimitLayer::new(ONE, key::global()).limiter(&limiter);
        assert_eq!(status(&layer).await, 503);
        assert_eq!(status(&layer.clone().shadow()).await, 200);
        // The enforced share is too small to include the key.
        assert_eq!(status(&layer.enforce_share(f64::MIN_POSITIVE)).await, 200);
    }
}

#[tokio::test]
async fn requests_are_not_refused_in_shadow_mode_if_the_key_extractor_fails() {
    let layer = RateLimitLayer::new(ONE, key::client_ip());
    assert_eq!(status(&layer).await, 500);
    assert_eq!(status(&layer.shadow()).await, 200);
}

#[tokio::test]
async fn the_status_of_a_request_without_a_key_is_marked_as_shadowed() {
    // Regression test: the header was `denied`, but the status was not marked as shadowed.
    let layer = RateLimitLayer::new(ONE, key::client_ip()).shadow().shadow_header("x-shadow").with_status();
    let inner = service_fn(|request: Request<()>| async move {
        let status = request.extensions().get::<RateLimitStatus>().expect("expected a status");
        Ok::<_, Infallible>(Response::new(status.is_shadowed().to_string()))
    });
    let response = layer.layer(inner).oneshot(Request::new(())).await.unwrap();
    assert_eq!(response.headers()["x-shadow"], "denied");
    let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
    assert_eq!(body, "true");
}

async fn status(layer: &RateLimitLayer) -> u16 {
    layer.layer(ContractService::default()).oneshot(Request::new(())).await.unwrap().status().as_u16()
}
