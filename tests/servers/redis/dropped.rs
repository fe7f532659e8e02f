//! Calls whose futures are dropped.

use tollgate::{DAY, MemoryBackend, Policy, Quota, RateLimiter};

use crate::support::server::Server;

static API: Policy = Policy::new("api", Quota::token_bucket(1, DAY).capacity(1000));

#[tokio::test]
async fn calls_whose_futures_are_dropped_are_charged_by_both_backends() {
    let server = Server::start();
    for limiter in [RateLimiter::new(MemoryBackend::new()), RateLimiter::new(server.backend().await)] {
        // No task of this runtime runs before the first await, so all futures are dropped before the calls are sent.
        (0..50).for_each(|_| drop(limiter.try_limit(&API, "ada")));
        assert_eq!(limiter.remaining(&API, "ada").await.unwrap(), 950, "{limiter:?}");
    }
}

#[test]
fn a_call_outside_of_a_runtime_is_charged_and_does_not_panic() {
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let limiter = RateLimiter::new(runtime.block_on(server.backend()));
    drop(limiter.try_limit(&API, "ada"));
    let answer = limiter.try_limit(&API, "ada");
    assert_eq!(runtime.block_on(answer).unwrap().remaining(), 998);
}
