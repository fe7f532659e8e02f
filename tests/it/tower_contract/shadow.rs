//! Shadow mode never refuses a request, even if the backend or the key extractor fails.

use http::Request;
use tollgate::policy::Enforce;
use tollgate::{MINUTE, Policy, Quota, RateLimitLayer, RateLimiter, key};
use tower::{Layer, ServiceExt};

use super::contract_service::ContractService;
use crate::support::backends::FailingBackend;

const ONE: Policy = Policy::new("one", Quota::token_bucket(10, MINUTE));
const TRIAL: Policy = ONE.enforce(Enforce::Never);

#[tokio::test]
async fn requests_are_not_refused_in_shadow_mode_if_the_backend_fails() {
    for backend in [FailingBackend::IMMEDIATE, FailingBackend::LATE] {
        let limiter = RateLimiter::new(backend);
        let layer = |policy| RateLimitLayer::new(policy, key::global()).limiter(&limiter);
        assert_eq!(status(&layer(ONE)).await, 503);
        assert_eq!(status(&layer(TRIAL)).await, 200);
        // The enforced share is too small to include the key.
        assert_eq!(status(&layer(ONE.enforce(Enforce::Share(f64::MIN_POSITIVE)))).await, 200);
    }
}

#[tokio::test]
async fn requests_are_not_refused_in_shadow_mode_if_the_key_extractor_fails() {
    assert_eq!(status(&RateLimitLayer::new(ONE, key::client_ip())).await, 500);
    assert_eq!(status(&RateLimitLayer::new(TRIAL, key::client_ip())).await, 200);
}

async fn status(layer: &RateLimitLayer) -> u16 {
    layer.layer(ContractService::default()).oneshot(Request::new(())).await.unwrap().status().as_u16()
}
