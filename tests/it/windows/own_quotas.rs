//! Quotas that are passed with the subject of a call, for example quotas read from a database.

use axum::http::request::Parts;
use tollgate::key::KeyExtractor;
use tollgate::policy::Quotas;
use tollgate::{DAY, HOUR, MINUTE, Policy, Quota, RateLimitLayer, SECOND, Subject, key};

use crate::support::client::{hello, limiter, serve};
use crate::support::now;

const API: Policy = Policy::new("api", Quota::per_minute(10));

#[test]
fn a_callers_own_quotas_replace_the_policys_quotas() {
    let (limiter, _clock) = limiter();
    let ada = || Subject::new("ada").quota("3/s; 100/d".parse::<Quotas>().unwrap());
    assert_eq!(now(limiter.limit(&API, ada())).remaining(), 2);
    assert_eq!(limiter.quotas(&API, ada()).to_string(), "3/s; 100/d");
    assert_eq!(now(limiter.limit(&API, "eve")).remaining(), 9);
    // The caller's own quotas take precedence over a quota that is set for the policy, but not over a quota that is set
    // for the key.
    now(limiter.set_quota(&API, Quota::per_minute(1)));
    assert_eq!(limiter.quotas(&API, ada()).len(), 2);
    now(limiter.set_key_quota(&API, "ada", Quota::per_minute(2)));
    assert_eq!(limiter.quotas(&API, ada()).to_string(), "2/min");
}

#[tokio::test]
async fn extractors_can_return_the_quota_of_a_caller() {
    let (limiter, _clock) = limiter();
    let caller = |parts: &Parts| {
        let user = parts.headers["x-user"].to_str().unwrap().to_owned();
        // The extractor simulates a database query for each request.
        key::Extraction::later(async move {
            tokio::task::yield_now().await;
            let quota = Quota::per_hour(user.len() as u64);
            Subject::new(user).quota(quota)
        })
    };
    let layer = RateLimitLayer::new(API, caller).limiter(&limiter);
    let client = serve(hello().layer(layer)).await;
    for (user, limit) in [("ada", 3), ("grace", 5)] {
        let answer = client.get_as(user).await;
        assert_eq!(answer.policies(), [("api".to_owned(), limit, 3600)]);
        assert_eq!(answer.limits()[0].1, limit - 1);
    }
}

/// Regression test: a pair of keys lost the caller's own quota, so the policy's quota applied.
#[tokio::test]
async fn a_pair_of_keys_keeps_the_quota_of_the_caller() {
    let (limiter, _clock) = limiter();
    let user = |_: &Parts| Subject::new("ada").quota(Quota::per_hour(3));
    for pair in [RateLimitLayer::new(API, user.and(key::global())), RateLimitLayer::new(API, key::global().and(user))] {
        let client = serve(hello().layer(pair.limiter(&limiter))).await;
        assert_eq!(client.get_as("ada").await.policies(), [("api".to_owned(), 3, 3600)]);
    }
}

/// A caller whose quotas change with each call can exceed the largest quota by at most the capacity of that quota.
#[test]
fn alternating_quotas_exceed_the_largest_by_at_most_its_capacity() {
    let lists = ["10/s; 50/min", "20/s; 100/min", "5/s", "30/min", "100/min; 7/s", "2/s; 3000/h; 90/min"];
    let lists = lists.map(|text| text.parse::<Quotas>().unwrap());
    for policy in [API, Policy::new("api", Quota::per_second(10)).and(Quota::per_minute(60))] {
        let (limiter, clock) = limiter();
        let (mut admitted, mut next) = (0u32, 0);
        for _ in 0..600 {
            for _ in 0..30 {
                next = (next * 5 + 3) % lists.len();
                let subject = Subject::new("ada").quota(lists[next]);
                admitted += u32::from(now(limiter.try_limit(&policy, subject)).is_allowed());
                next += 1;
            }
            clock.advance(SECOND / 10);
        }
        // The quota "5/s" allows the most requests in a minute: 5 + 300.
        assert!(admitted <= 305 + 5, "{admitted} admitted under {policy:?}");
    }
}

#[test]
fn a_hundred_thousand_different_quotas_are_enforced_separately() {
    let (limiter, _clock) = limiter();
    let quota = |number: u64| -> Quotas {
        match number % 3 {
            0 => Quota::token_bucket(1 + number, DAY).into(),
            1 => Quota::fixed_window(1 + number, HOUR).and(Quota::token_bucket(2 + number, DAY)),
            _ => Quota::sliding_window(1 + number, 2 * MINUTE).into(),
        }
    };
    for number in 0..100_000u64 {
        let subject = Subject::new(number).quota(quota(number));
        assert_eq!(now(limiter.limit(&API, subject)).remaining(), number, "{number}");
    }
    for number in (0..100_000u64).step_by(997) {
        let subject = Subject::new(number).quota(quota(number));
        let expected = number.checked_sub(1);
        let decision = now(limiter.try_limit(&API, subject));
        assert_eq!(decision.is_allowed().then(|| decision.remaining()), expected, "{number}");
    }
    assert_eq!(limiter.stats().rows, Some(100_000 + 33_333));
}
