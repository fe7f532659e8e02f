//! A tonic server behind the layer, and the refusals that a tonic client receives from it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tollgate::{MINUTE, Policy, Quota, RateLimitLayer, key};
use tonic::Code;

use super::echo::{Client, serve};
use super::retry_info::Details;
use crate::support::connections::limiter;

const THREE: Policy = Policy::new("three", Quota::token_bucket(3, MINUTE));

#[tokio::test]
async fn a_denied_call_gets_resource_exhausted_and_a_retry_delay() {
    let (limiter, clock) = limiter();
    let (address, echo) = serve(RateLimitLayer::new(THREE, key::client_ip()).limiter(&limiter)).await;
    let mut client = Client::connect(address).await;
    for left in [2, 1, 0] {
        let answer = client.say("hello").await.unwrap();
        assert_eq!(answer.get_ref(), "hello");
        let limit = format!("\"three\";r={left};t={}", 20 * left.max(1));
        assert_eq!(answer.metadata().get("ratelimit").unwrap().to_str().unwrap(), limit);
    }
    clock.advance(Duration::from_micros(1_234_567));
    let refused = client.say("hello").await.unwrap_err();
    assert_eq!((refused.code(), echo.calls.load(Ordering::Relaxed)), (Code::ResourceExhausted, 3));
    let message = "rate limit exceeded: \"three\"; retry after 19s";
    assert_eq!(refused.message(), message);
    // The pushback is rounded up to whole milliseconds, because gRPC clients retry after exactly that time.
    assert_eq!(pushback(&refused), Some("18766"));
    let retry_delay = Duration::from_micros(20_000_000 - 1_234_567);
    assert_eq!(Details::decode(refused.details()), Details { code: 8, message: message.into(), retry_delay });
    let metadata = refused.metadata();
    assert_eq!(metadata.get("ratelimit").unwrap(), "\"three\";r=0;t=19");
    assert_eq!(metadata.get("retry-after").unwrap(), "19");
    assert_eq!(metadata.get("content-type").unwrap(), "application/grpc");

    clock.advance(Duration::from_millis(18_765));
    assert_eq!(client.say("too early").await.unwrap_err().code(), Code::ResourceExhausted);
    clock.advance(Duration::from_millis(1));
    assert_eq!(client.say("in time").await.unwrap().into_inner(), "in time");
    let mut other = Client::connect(address).await;
    assert_eq!(other.say("hello").await.unwrap_err().code(), Code::ResourceExhausted);
}

fn pushback(status: &tonic::Status) -> Option<&str> {
    Some(status.metadata().get("grpc-retry-pushback-ms")?.to_str().unwrap())
}

#[tokio::test]
async fn a_cost_above_the_capacity_forbids_retries() {
    let layer = RateLimitLayer::new(THREE, key::client_ip()).cost(|_| 4).limiter(&limiter().0);
    let (address, echo) = serve(layer).await;
    let refused = Client::connect(address).await.say("hello").await.unwrap_err();
    assert_eq!((refused.code(), pushback(&refused)), (Code::ResourceExhausted, Some("-1")));
    assert!(refused.details().is_empty(), "{:?}", refused.details());
    assert!(refused.metadata().get("retry-after").is_none());
    assert_eq!(
        refused.message(),
        "rate limit exceeded: \"three\" cannot grant 4 tokens at once (3 at most); retrying will not help"
    );
    assert_eq!(echo.calls.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn the_retry_pushback_is_capped_at_its_maximum() {
    // The maximum is 2^31 - 1 ms, or about 24.9 days.
    let year = Policy::new("year", Quota::token_bucket(1, 365 * tollgate::DAY));
    let (address, _echo) = serve(RateLimitLayer::new(year, key::client_ip()).limiter(&limiter().0)).await;
    let mut client = Client::connect(address).await;
    client.say("hello").await.unwrap();
    let refused = client.say("hello").await.unwrap_err();
    assert_eq!(pushback(&refused), Some("2147483647"));
    assert_eq!(Details::decode(refused.details()).retry_delay, 365 * tollgate::DAY);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_from_many_clients_admits_exactly_the_limit() {
    let many = Policy::new("many", Quota::token_bucket(25, MINUTE));
    let (address, echo) = serve(RateLimitLayer::new(many, key::client_ip()).limiter(&limiter().0)).await;
    let mut tasks = tokio::task::JoinSet::new();
    for i in 0..100 {
        tasks.spawn(async move {
            let mut client = Client::connect(address).await;
            let mut codes = Vec::new();
            for _ in 0..if i % 10 == 0 { 3 } else { 1 } {
                codes.push(client.say("hello").await.map_or_else(|status| status.code(), |_| Code::Ok));
            }
            codes
        });
    }
    let codes = tasks.join_all().await.concat();
    let passed = codes.iter().filter(|code| **code == Code::Ok).count();
    assert_eq!((passed, echo.calls.load(Ordering::Relaxed)), (25, 25));
    assert!(codes.iter().all(|code| matches!(code, Code::Ok | Code::ResourceExhausted)), "{codes:?}");
}

#[tokio::test]
async fn a_call_without_a_key_is_unauthenticated() {
    use tollgate::key::KeyExtractor;
    let (address, _echo) = serve(RateLimitLayer::new(THREE, key::header("x-api-key").or_reject())).await;
    let refused = Client::connect(address).await.say("hello").await.unwrap_err();
    assert_eq!((refused.code(), pushback(&refused)), (Code::Unauthenticated, None));
    assert!(refused.message().contains("identify its caller") && refused.details().is_empty());
}

#[tokio::test]
async fn an_extractor_error_is_an_internal_error() {
    let faulty = |_: &http::request::Parts| Err::<u64, _>(tollgate::key::KeyError::new("100 % of this\nis \u{e9}tat"));
    let (address, _echo) = serve(RateLimitLayer::new(THREE, faulty)).await;
    let refused = Client::connect(address).await.say("hello").await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::Internal, "100 % of this\nis \u{e9}tat"));
}

#[tokio::test]
async fn without_grpc_a_refusal_is_a_plain_429_and_counts_as_a_mistake() {
    let (limiter, _clock) = limiter();
    let layer = RateLimitLayer::new(THREE, key::client_ip()).cost(|_| 4).limiter(&limiter);
    let (address, _echo) = super::echo::serve_with(layer).await;
    let refused = Client::connect(address).await.say("hello").await.unwrap_err();
    // The tonic client returns this status for a body that is not a gRPC message.
    assert_eq!((refused.code(), pushback(&refused)), (Code::Internal, None));
    assert_eq!(limiter.stats().mistakes.plain_grpc_refusals, 1);
}
