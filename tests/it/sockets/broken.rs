//! If the backend is unavailable, gRPC clients get UNAVAILABLE with a retry delay.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tollgate::{MINUTE, Policy, Quota, RateLimitLayer, RateLimiter, key};
use tonic::Code;

use super::echo::{Client, serve};
use super::retry_info::Details;
use crate::support::backends::FailingBackend;

#[tokio::test]
async fn a_grpc_client_gets_unavailable_without_backend_details() {
    let policy = Policy::new("any", Quota::token_bucket(3, MINUTE));
    let layer = RateLimitLayer::new(policy, key::client_ip()).limiter(&RateLimiter::new(FailingBackend::LATE));
    let (address, echo) = serve(layer).await;
    let refused = Client::connect(address).await.say("hello").await.unwrap_err();
    assert_eq!((refused.code(), echo.calls.load(Ordering::Relaxed)), (Code::Unavailable, 0));
    assert_eq!(refused.metadata().get("grpc-retry-pushback-ms").unwrap(), "1000");
    let details = Details::decode(refused.details());
    assert_eq!((details.code, details.retry_delay), (14, Duration::from_secs(1)));
    assert!(!format!("{refused:?}").contains("10.0.0.7"), "{refused:?}");
    assert!(refused.metadata().get("ratelimit").is_none() && refused.metadata().get("ratelimit-policy").is_none());
}
