//! The layer calls the service instance that was polled ready, and only after the decision.

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::request::Parts;
use http::{Request, Response};
use tokio::sync::{Notify, Semaphore};
use tollgate::key::Extraction;
use tollgate::{
    MINUTE, Policy, Quota, RateLimitLayer,
    key::{self, KeyError},
};
use tower::buffer::Buffer;
use tower::limit::ConcurrencyLimit;
use tower::{Layer, Service, ServiceExt};

use super::backends::{gated, limiters};
use super::contract_service::ContractService;

const THREE: Policy = Policy::new("three", Quota::token_bucket(3, MINUTE));

#[tokio::test]
async fn the_instance_that_was_polled_ready_is_called() {
    for limiter in limiters() {
        let later = |_: &Parts| Extraction::later(async { Ok(7) });
        for layer in [RateLimitLayer::new(THREE, key::global()), RateLimitLayer::new(THREE, later)] {
            let inner = ContractService::default();
            let mut service = layer.limiter(&limiter).layer(inner.clone());
            for status in [200, 200, 200, 429, 429] {
                let response = service.ready().await.unwrap().call(Request::new(())).await.unwrap();
                assert_eq!(response.status(), status);
            }
            assert_eq!(inner.calls(), 3);
        }
    }
}

#[tokio::test]
async fn the_inner_service_is_not_called_before_the_decision() {
    let gate = Arc::new(Notify::new());
    let inner = ContractService::default();
    let mut service = RateLimitLayer::new(THREE, key::global()).limiter(&gated(&gate)).layer(inner.clone());
    for (status, calls) in [(200, 1), (200, 2), (200, 3), (429, 3)] {
        let before = inner.calls();
        let mut response = Box::pin(service.ready().await.unwrap().call(Request::new(())));
        for _ in 0..3 {
            let poll = response.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(matches!(poll, Poll::Pending));
        }
        assert_eq!(inner.calls(), before);
        gate.notify_one();
        assert_eq!((response.await.unwrap().status().as_u16(), inner.calls()), (status, calls));
    }
}

/// The service outlives each response, so a leaked permit would block the next request.
#[tokio::test]
async fn no_response_leaks_a_permit() {
    for limiter in limiters() {
        let keyed = |req: &Parts| match req.headers.get("x-key") {
            Some(key) => Ok(key.as_bytes().to_vec()),
            None => Err(KeyError::new("no key")),
        };
        let permits = Arc::new(Semaphore::new(1));
        let limited = ConcurrencyLimit::with_semaphore(ContractService::default(), Arc::clone(&permits));
        let mut service = RateLimitLayer::new(THREE, keyed).limiter(&limiter).layer(limited);
        for (key, status) in [("ada", 200), ("ada", 200), ("ada", 200), ("ada", 429), ("", 500), ("bob", 200)] {
            let mut request = Request::new(());
            if !key.is_empty() {
                request.headers_mut().insert("x-key", key.parse().unwrap());
            }
            let response = service.ready().await.unwrap().call(request).await.unwrap();
            assert_eq!((response.status().as_u16(), permits.available_permits()), (status, 1));
        }
    }
}

#[tokio::test]
async fn the_layer_works_inside_and_around_a_buffer() {
    for limiter in limiters() {
        let layer = RateLimitLayer::new(THREE, key::global()).limiter(&limiter);

        let inside = layer.layer(Buffer::new(ContractService::default(), 1));
        let outside = Buffer::new(layer.layer(ContractService::default()), 1);
        let both = Buffer::new(layer.layer(Buffer::new(ConcurrencyLimit::new(ContractService::default(), 1), 1)), 1);
        let (mut allowed, mut refused) = (0, 0);
        for _ in 0..4 {
            for status in
                [status_of(inside.clone()).await, status_of(outside.clone()).await, status_of(both.clone()).await]
            {
                match status {
                    200 => allowed += 1,
                    429 => refused += 1,
                    status => panic!("unexpected status {status}"),
                }
            }
        }
        assert_eq!((allowed, refused), (3, 9));
    }
}

async fn status_of<S, R>(service: S) -> u16
where
    S: Service<Request<()>, Response = Response<R>>,
    S::Error: std::fmt::Debug,
{
    // If a buffer slot leaked, this call would wait forever.
    let answer = tokio::time::timeout(Duration::from_secs(20), service.oneshot(Request::new(())));
    answer.await.expect("expected a response within 20 s").unwrap().status().as_u16()
}

#[tokio::test]
async fn errors_from_the_inner_service_are_passed_through() {
    let failing = tower::service_fn(|_: Request<()>| async { Err::<Response<()>, _>("inner error") });
    let service = RateLimitLayer::new(THREE, key::global()).layer(failing);
    for _ in 0..3 {
        assert_eq!(service.clone().oneshot(Request::new(())).await.unwrap_err(), "inner error");
    }
    assert_eq!(service.oneshot(Request::new(())).await.unwrap().status(), 429);
}
