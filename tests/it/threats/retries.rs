//! Threat 25: clients that retry too early, at the same time, or forever.

use std::time::Duration;

use axum::Router;
use axum::http::request::Parts;
use proptest::prelude::*;
use tollgate::{MINUTE, Policy, Quota, RateLimitLayer, SECOND, clock::ManualClock, key};

use super::client::{Answer, hello, limiter, request, send};

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn t25_waiting_as_long_as_retry_after_says_is_always_enough(
        one in quota(),
        other in quota(),
        jitter in prop_oneof![Just(0), 1..10_000_000_u64, 1..10_000_000_000_u64],
        attempts in proptest::collection::vec((0.0..1.0_f64, 0.0..2.0_f64), 1..6),
    ) {
        let jitter = Duration::from_micros(jitter);
        let (app, clock) = app(one, other, jitter);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let smaller = one.get_capacity().min(other.get_capacity());
        for (share, pause) in attempts {
            let cost = ((smaller as f64 * share) as u64).max(1);
            let answer = runtime.block_on(ask(&app, cost));
            if answer.status == 200 {
                clock.advance(one.period().mul_f64(pause));
                continue;
            }
            prop_assert_eq!(answer.status, 429);
            // The wait in `RateLimit` has no jitter. `Retry-After` is longer by at most the jitter.
            let exact = longest_window(&answer);
            let retry_after = answer.retry_after();
            prop_assert!(retry_after >= exact.max(1), "Retry-After is {retry_after}, less than the exact wait of {exact}");
            let latest = Duration::from_secs(exact + 1) + jitter;
            prop_assert!(Duration::from_secs(retry_after) < latest, "Retry-After is {retry_after}, the exact wait is {exact}, the jitter is {jitter:?}");
            clock.advance(Duration::from_secs(retry_after));
            prop_assert_eq!(runtime.block_on(ask(&app, cost)).status, 200);
        }
    }
}

fn app(one: Quota, other: Quota, jitter: Duration) -> (Router, ManualClock) {
    let (limiter, _backend, clock) = limiter();
    let layer =
        RateLimitLayer::new(Policy::new("one", one), key::global()).and(Policy::new("other", other), key::global());
    let cost = |req: &Parts| req.headers["x-cost"].to_str().unwrap().parse().unwrap();
    (hello().layer(layer.cost(cost).retry_jitter(jitter).grpc().limiter(&limiter)), clock)
}

async fn ask(app: &Router, cost: u64) -> Answer {
    send(app, request("::1", &[("x-cost", cost.to_string())])).await
}

/// Returns the wait without jitter, in whole seconds: the largest `t` in `RateLimit`.
fn longest_window(answer: &Answer) -> u64 {
    let times = answer.headers.get_all("ratelimit").iter().map(|line| {
        let (_, t) = line.to_str().unwrap().rsplit_once(";t=").expect("expected a `t` parameter");
        t.parse().unwrap()
    });
    times.max().expect("expected a `RateLimit` header")
}

fn quota() -> impl Strategy<Value = Quota> {
    (0..3, 1..50_u64, 1..200_000_000_u64, 1..50_u64).prop_map(|(algorithm, rate, period, capacity)| {
        let period = Duration::from_micros(period);
        match algorithm {
            0 => Quota::token_bucket(rate, period).capacity(capacity),
            1 => Quota::fixed_window(rate, period),
            _ => Quota::sliding_window(rate, period),
        }
    })
}

#[tokio::test]
async fn t25_a_wait_below_one_second_is_rounded_up_to_one() {
    let quota = Quota::token_bucket(1000, SECOND).capacity(1);
    let (app, clock) = app(quota, quota, Duration::ZERO);
    assert_eq!(ask(&app, 1).await.status, 200);
    assert_eq!(ask(&app, 1).await.retry_after(), 1);
    clock.advance(Duration::from_millis(1));
    assert_eq!(ask(&app, 1).await.status, 200);
}

#[tokio::test]
async fn t25_jitter_spreads_retries_and_is_bounded() {
    let quota = Quota::token_bucket(1, MINUTE);
    let (app, _clock) = app(quota, quota, Duration::from_secs(30));
    ask(&app, 1).await;
    let mut delays = Vec::new();
    for _ in 0..2000 {
        delays.push(ask(&app, 1).await.retry_after());
    }
    assert!(delays.iter().all(|delay| (60..=90).contains(delay)), "{delays:?}");
    for range in [60..=70, 71..=80, 81..=90] {
        assert!(delays.iter().filter(|delay| range.contains(*delay)).count() > 400, "too few delays in {range:?}");
    }
}

#[tokio::test]
async fn t25_enormous_jitter_does_not_cause_a_panic() {
    let quota = Quota::token_bucket(1, MINUTE);
    let (app, _clock) = app(quota, quota, Duration::MAX);
    ask(&app, 1).await;
    for _ in 0..200 {
        let answer = ask(&app, 1).await;
        assert!(answer.status == 429 && answer.retry_after() >= 60);
    }
}

#[tokio::test]
async fn t25_a_cost_above_the_capacity_gets_no_retry_after() {
    let quota = Quota::token_bucket(1, MINUTE);
    let (app, _clock) = app(quota, quota, Duration::from_secs(30));
    let answer = ask(&app, 2).await;
    assert!(answer.status == 429 && !answer.headers.contains_key("retry-after"), "{:?}", answer.headers);
    let mut grpc = request("::1", &[("x-cost", "2"), ("content-type", "application/grpc")]);
    *grpc.method_mut() = axum::http::Method::POST;
    assert_eq!(send(&app, grpc).await.headers["grpc-retry-pushback-ms"], "-1");
}
