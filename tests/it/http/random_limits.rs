//! For random limits, names and costs, the headers can be parsed, and a denied request succeeds once Retry-After has
//! passed.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::request::Parts;
use proptest::prelude::*;
use tollgate::algorithm::Micros;
use tollgate::{
    MemoryBackend, Policy, Quota, RateLimitLayer, RateLimiter,
    clock::{Clock, ManualClock},
    key,
};

use crate::support::answer::Answer;
use crate::support::client::{hello, oneshot};

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn headers_can_be_parsed_and_retrying_after_the_stated_wait_succeeds(
        policies in proptest::collection::vec(("[ -~]{0,127}", quota()), 1..4),
        began in prop_oneof![Just(0), Just(1_767_225_600_000_000), 0..=Micros::MAX.get()],
        asks in proptest::collection::vec((any::<prop::sample::Index>(), 0.0..1.05_f64, 0.0..2.0_f64), 1..8),
    ) {
        // The index makes each name unique.
        let policies: Vec<_> = policies.into_iter().enumerate()
            .map(|(i, (name, quota))| Policy::try_new(format!("{i}{name}"), quota).unwrap()).collect();
        let clock = ManualClock::at(Micros::new(began));
        let app = app(&policies, &clock);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for (chosen, share, pause) in asks {
            let quota = chosen.get(&policies).quotas()[0];
            let cost = (quota.get_capacity() as f64 * share) as u64 + u64::from(share < 0.5);
            let refused = match runtime.block_on(ask(&app, cost, &policies)) {
                answer if answer.status == 429 => answer,
                _ => {
                    clock.advance(quota.period().mul_f64(pause));
                    continue;
                }
            };
            // Skip the rest if a window could end after the latest representable instant, which is in the year 2255.
            let time_left = Micros::MAX.since(clock.now());
            if policies.iter().any(|policy| 4 * policy.quotas()[0].window() > time_left) {
                continue;
            }
            let Some(wait) = refused.retry_after() else {
                prop_assert!(policies.iter().any(|policy| policy.quotas()[0].get_capacity() < cost));
                continue;
            };
            clock.advance(Duration::from_secs(wait));
            prop_assert_eq!(runtime.block_on(ask(&app, cost, &policies)).status, 200);
        }
    }
}

/// Sends a request with the given cost, checks that the response is consistent, and returns it.
async fn ask(app: &Router, cost: u64, policies: &[Policy]) -> Answer {
    let answer = oneshot(app, Request::builder().header("x-cost", cost).body(Body::empty()).unwrap()).await;
    let found: Vec<_> = answer.policies().into_iter().map(|(name, q, _)| (name, q)).collect();
    let expected: Vec<_> =
        policies.iter().map(|policy| (policy.name().to_string(), policy.quotas()[0].get_capacity())).collect();
    assert_eq!(found, expected);
    for ((_, q, w), policy) in answer.policies().into_iter().zip(policies) {
        let window = policy.quotas()[0].window();
        assert!(Duration::from_secs(w) >= window && Duration::from_secs(w) < window + Duration::from_secs(1), "w={w}");
        assert!(answer.limits().iter().all(|(name, r, _)| name != policy.name().as_str() || *r <= q));
    }
    let names: Vec<_> = answer.limits().into_iter().map(|(name, ..)| name).collect();
    let times: Option<Vec<u64>> = answer.limits().into_iter().map(|(.., t)| t).collect();
    assert!(times.iter().flatten().all(|t| *t > 0));
    match answer.status {
        200 => {
            assert_eq!(names.len(), policies.len());
            assert!(times.is_some() && answer.retry_after().is_none());
        }
        429 => {
            assert_eq!(names, answer.violated_policies());
            assert_eq!(answer.retry_after(), times.and_then(|times| times.into_iter().max()));
        }
        status => panic!("{status}"),
    }
    answer
}

fn app(policies: &[Policy], clock: &ManualClock) -> Router {
    let limiter = RateLimiter::new(MemoryBackend::builder().clock(clock.clone()).build());
    let first = RateLimitLayer::new(&policies[0], key::global());
    let layer = policies[1..].iter().fold(first, |layer, policy| layer.and(policy, key::global()));
    let cost = |req: &Parts| req.headers["x-cost"].to_str().unwrap().parse().unwrap();
    hello().layer(layer.cost(cost).limiter(&limiter))
}

fn quota() -> impl Strategy<Value = Quota> {
    let up_to = |few: u64, many: u64, max: u64| prop_oneof![4 => 1..=few, 2 => 1..=many, 1 => 1..=max, 1 => Just(max)];
    let tokens = || up_to(20, 1_000_000, Quota::MAX_TOKENS);
    let micros = up_to(100_000_000, 100_000_000_000, Quota::MAX_PERIOD.as_micros() as u64);
    (0..3, tokens(), micros, proptest::option::of(tokens())).prop_filter_map(
        "a valid quota",
        |(algorithm, rate, period, capacity)| {
            let period = Duration::from_micros(period);
            let quota = match algorithm {
                0 => Quota::try_token_bucket(rate, period),
                1 => Quota::try_fixed_window(rate, period),
                _ => return Quota::try_sliding_window(rate, period).ok(),
            };
            match capacity {
                Some(capacity) => quota.ok()?.try_capacity(capacity).ok(),
                None => quota.ok(),
            }
        },
    )
}
