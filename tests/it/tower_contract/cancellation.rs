//! When a client disconnects, its response future is dropped. Nothing leaks, and the request stays charged.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use http::Request;
use http::request::Parts;
use tokio::sync::Semaphore;
use tollgate::key::Extraction;
use tollgate::{MINUTE, Policy, Quota, RateLimitLayer};
use tower::buffer::Buffer;
use tower::limit::ConcurrencyLimit;
use tower::{Layer, Service, ServiceExt};

use super::backends::limiters;
use super::contract_service::ContractService;

const ONE: Policy = Policy::new("one", Quota::token_bucket(1, MINUTE));

fn slow_key(req: &Parts) -> Extraction {
    let key = req.uri.path().to_owned();
    Extraction::later(async move {
        tokio::task::yield_now().await;
        Ok(key)
    })
}

fn quick_key(req: &Parts) -> String {
    req.uri.path().to_owned()
}

#[tokio::test]
async fn a_response_dropped_at_any_await_point_leaks_no_permit() {
    for layer in [RateLimitLayer::new(ONE, slow_key), RateLimitLayer::new(ONE, quick_key)] {
        for limiter in limiters() {
            let permits = Arc::new(Semaphore::new(1));
            let limited = ConcurrencyLimit::with_semaphore(ContractService::default(), Arc::clone(&permits));
            let mut service = layer.clone().limiter(&limiter).layer(limited);
            // Each pass sends one request to each path. The first pass uses up the limits, so requests in the second
            // pass are refused.
            for pass in 0..2 {
                let mut polls = 0;
                while !poll_and_drop(&mut service, &format!("/{polls}"), polls).await {
                    assert_eq!(permits.available_permits(), 1, "pass {pass}, dropped after {polls} polls");
                    polls += 1;
                }
                assert_eq!(permits.available_permits(), 1, "pass {pass}, ready after {polls} polls");
            }
        }
    }
}

/// Polls a response at most `polls` times and then drops it. Returns whether the response was ready.
async fn poll_and_drop(
    service: &mut impl Service<Request<()>, Error = std::convert::Infallible>,
    path: &str,
    polls: usize,
) -> bool {
    let request = Request::builder().uri(path).body(()).unwrap();
    let Ok(service) = service.ready().await;
    let mut response = pin!(service.call(request));
    (0..polls).any(|_| response.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready())
}

#[tokio::test]
async fn a_response_dropped_at_any_await_point_leaks_no_buffer_slot() {
    for layer in [RateLimitLayer::new(ONE, slow_key), RateLimitLayer::new(ONE, quick_key)] {
        for limiter in limiters() {
            let mut service = layer.clone().limiter(&limiter).layer(Buffer::new(ContractService::default(), 1));
            for polls in 0..8 {
                let request = |path: &str| Request::builder().uri(path).body(()).unwrap();
                let path = format!("/{polls}");
                let mut response = Box::pin(service.ready().await.unwrap().call(request(&path)));
                for _ in 0..polls {
                    if response.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                        break;
                    }
                }
                drop(response);
                let next = tokio::time::timeout(Duration::from_secs(20), service.clone().oneshot(request("/next")));
                assert!(next.await.is_ok(), "the slot in the buffer leaked after {polls} polls");
            }
        }
    }
}

#[tokio::test]
async fn a_request_stays_charged_if_its_response_future_is_dropped() {
    for limiter in limiters() {
        let mut service = RateLimitLayer::new(ONE, quick_key).limiter(&limiter).layer(ContractService::default());
        drop(service.ready().await.unwrap().call(Request::new(())));
        assert_eq!(service.ready().await.unwrap().call(Request::new(())).await.unwrap().status(), 429);
    }
}
