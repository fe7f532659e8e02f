//! For random quotas and names, the `sfv` crate parses every draft-11 header, and the values match the decisions.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::Response;
use axum::routing::any;
use proptest::prelude::*;
use tollgate::algorithm::Algorithm;
use tollgate::{
    MemoryBackend, Policy, Quota, RateLimitLayer, RateLimitStatus, RateLimiter, Refusal, clock::ManualClock, key,
    policy::Decisions,
};
use tower::ServiceExt;

use super::app::cost;
use crate::support::answer::Answer;

/// Generates names of printable ASCII characters, with many quotes and backslashes.
fn name() -> impl Strategy<Value = String> {
    prop_oneof!["[ -~]{1,128}", "[\"\\\\]{1,128}", "[a-z]{1,8}"]
}

fn quota() -> impl Strategy<Value = Quota> {
    let tokens = || prop_oneof![1..20_u64, 1..=Quota::MAX_TOKENS];
    // The periods are evenly distributed over all orders of magnitude.
    let period = (0.0..1.0_f64).prop_map(|share| {
        let longest = Quota::MAX_PERIOD.as_micros() as f64;
        Duration::from_micros(longest.powf(share).max(1.0) as u64).min(Quota::MAX_PERIOD)
    });
    (0..3, tokens(), period, tokens(), proptest::bool::ANY).prop_filter_map(
        "valid quotas",
        |(kind, rate, period, capacity, has_capacity)| {
            let quota = match kind {
                0 => Quota::try_token_bucket(rate, period),
                1 => Quota::try_fixed_window(rate, period),
                _ => Quota::try_sliding_window(rate, period),
            };
            let quota = quota.ok()?;
            if has_capacity && kind != 2 { quota.try_capacity(capacity).ok() } else { Some(quota) }
        },
    )
}

/// Converts a duration to the seconds in a header: rounded up, at least 1, and at most fifteen digits.
fn seconds(duration: Duration) -> u64 {
    duration.as_nanos().div_ceil(1_000_000_000).clamp(1, 999_999_999_999_999) as u64
}

/// Computes the window `w` from the draft's definition, independently of the crate.
fn window(quota: &Quota) -> Duration {
    let (period, limit, rate) =
        (quota.period().as_micros(), u128::from(quota.get_capacity()), u128::from(quota.rate()));
    let micros = match quota.algorithm() {
        Algorithm::TokenBucket => (limit * period).div_ceil(rate),
        // `w` covers whole windows. For example, 10 per minute with a capacity of 15 takes two windows.
        Algorithm::FixedWindow => limit.div_ceil(rate) * period,
        Algorithm::SlidingWindow => period,
        other => panic!("add the algorithm {other:?} to this function"),
    };
    Duration::from_micros(micros as u64)
}

/// Sends requests and compares each response with the decisions. `requests` contains the cost of each request and the
/// number of microseconds to wait before it. Returns the number of refusals.
fn check(rules: Vec<(String, Quota)>, requests: Vec<(u64, u64)>) -> Result<usize, TestCaseError> {
    let clock = ManualClock::new();
    let limiter = RateLimiter::new(MemoryBackend::builder().clock(clock.clone()).build());
    let decided = Arc::new(Mutex::new(None::<Decisions>));
    let mut policies = rules.into_iter().map(|(name, quota)| Policy::try_new(name, quota).unwrap());
    let mut layer = RateLimitLayer::new(policies.next().unwrap(), key::global());
    for policy in policies {
        layer = layer.and(policy, key::global());
    }
    let refuse = {
        let decided = Arc::clone(&decided);
        move |refusal: &Refusal<'_>| -> Response<Bytes> {
            *decided.lock().unwrap() = refusal.decisions().cloned();
            refusal.default_response()
        }
    };
    let handler = {
        let decided = Arc::clone(&decided);
        move |status: RateLimitStatus| async move { *decided.lock().unwrap() = Some(status.decisions().clone()) }
    };
    let layer = layer.cost(cost).with_status().on_refusal(refuse).limiter(&limiter);
    let app = Router::new().route("/", any(handler)).layer(layer);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut refusals = 0;
    for (cost, wait) in requests {
        clock.advance(Duration::from_micros(wait));
        let request = Request::builder().uri("/").header("x-cost", cost).body(Body::empty()).unwrap();
        let answer = runtime.block_on(async {
            let Ok(response) = app.clone().oneshot(request).await;
            Answer::read(response).await
        });
        let decisions = decided.lock().unwrap().take().expect("expected a decision");
        prop_assert_eq!(answer.status, if decisions.is_allowed() { 200 } else { 429 });
        refusals += usize::from(!decisions.is_allowed());

        let expected: Vec<_> = decisions
            .iter()
            .map(|decision| {
                (decision.policy().as_str().to_owned(), decision.capacity(), seconds(window(&decision.quota())))
            })
            .collect();
        prop_assert_eq!(answer.policies(), expected);

        let listed = decisions.iter().filter(|decision| decisions.is_allowed() || decision.is_violated());
        let expected: Vec<_> = listed
            .map(|decision| {
                let never = decision.is_violated() && decision.retry_after().is_none();
                let t = (!never).then(|| seconds(decision.window()));
                (decision.policy().as_str().to_owned(), decision.remaining(), t)
            })
            .collect();
        prop_assert_eq!(answer.limits(), expected);
        prop_assert_eq!(answer.retry_after(), decisions.retry_after().map(seconds));
        for (name, r, t) in answer.limits() {
            let q = answer
                .policies()
                .into_iter()
                .find(|policy| policy.0 == name)
                .expect("expected a policy with the same name")
                .1;
            prop_assert!(r <= q, "{name:?}: r={r} exceeds q={q}");
            if let (Some(t), Some(retry)) = (t, answer.retry_after()) {
                prop_assert!(t <= retry, "{name:?}: t={t} exceeds Retry-After {retry}");
            }
        }
        if !decisions.is_allowed() {
            let violated: Vec<_> = decisions.violated().map(|decision| decision.policy().as_str().to_owned()).collect();
            prop_assert_eq!(answer.violated_policies(), violated);
        }
    }
    Ok(refusals)
}

fn rules() -> impl Strategy<Value = Vec<(String, Quota)>> {
    proptest::collection::vec((name(), quota()), 1..=4).prop_filter("distinct names", |rules| {
        rules.iter().enumerate().all(|(i, (name, _))| rules[..i].iter().all(|(known, _)| known != name))
    })
}

#[test]
fn every_header_matches_its_decision() {
    let costs = prop_oneof![3 => 0..4_u64, 1 => 1..=Quota::MAX_TOKENS];
    let requests = proptest::collection::vec((costs, prop_oneof![Just(0), 0..100_000_000_u64]), 1..12);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 400,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let (refused, sent) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    let result = runner.run(&(rules(), requests), |(rules, requests)| {
        sent.set(sent.get() + requests.len());
        refused.set(refused.get() + check(rules, requests)?);
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
    let (refused, sent) = (refused.get(), sent.get());
    assert!(refused > sent / 10 && refused < sent * 9 / 10, "{refused} of {sent} requests were refused");
}
