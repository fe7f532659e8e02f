//! Quotas that are changed while in use: precedence, spent tokens that carry over, and rejected quotas.

use std::error::Error as _;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tollgate::{HOUR, MINUTE, Policy, Quota, RateLimiter, SECOND, Subject, clock::ManualClock, limiter::SetQuotaError};

use super::app::{API, US, behind};
use crate::support::client::serve;
use crate::support::now;
use crate::support::test_backend::TestBackend;

const fn per_minute(tokens: u64) -> Quota {
    Quota::token_bucket(tokens, MINUTE)
}

fn limiter() -> (RateLimiter, ManualClock) {
    let clock = ManualClock::new();
    (RateLimiter::new(TestBackend::local(&clock)), clock)
}

#[test]
fn a_key_quota_overrides_a_tier_quota_which_overrides_the_policy_quota() {
    let (limiter, _clock) = limiter();
    let api = Policy::new("api", per_minute(100)).tier("free", per_minute(10));
    let limits = || {
        let limit = |subject: Subject| {
            now(limiter.try_check(&api, subject.clone()))
                .capacity()
                .min(limiter.quotas(&api, subject)[0].get_capacity())
        };
        let free = |key: &str| Subject::new(key).tier("free");
        [
            limit("bob".into()),
            limit(free("bob")),
            limit("ada".into()),
            limit(free("ada")),
            limit(Subject::new("bob").tier("gold")),
        ]
    };
    assert_eq!(limits(), [100, 10, 100, 10, 100]);
    now(limiter.set_quota(&api, per_minute(50)));
    assert_eq!(limits(), [50, 50, 50, 50, 50], "a quota set for the policy must apply to every tier");
    now(limiter.set_tier_quota(&api, "free", per_minute(20)));
    assert_eq!(limits(), [50, 20, 50, 20, 50]);
    now(limiter.set_key_quota(&api, "ada", per_minute(7)));
    assert_eq!(limits(), [50, 20, 7, 7, 50]);
    assert_eq!(limiter.stats().changed_quotas, 3);
    now(limiter.set_quota(&api, None));
    assert_eq!(limits(), [100, 20, 7, 7, 100]);
    now(limiter.set_key_quota(&api, "ada", None));
    assert_eq!(limits(), [100, 20, 100, 20, 100]);
    now(limiter.set_tier_quota(&api, "free", None));
    assert_eq!(limits(), [100, 10, 100, 10, 100]);
    now(limiter.set_quota(&api, None));
    now(limiter.set_key_quota(&api, Subject::anonymous(), None));
    assert_eq!(limiter.stats().changed_quotas, 0);
    now(limiter.set_quota(&api, per_minute(3)));
    assert_eq!(limiter.quotas(&API, "ada")[0].get_capacity(), 3);
    assert_eq!(limiter.quotas(&Policy::new("other", per_minute(9)), "ada")[0].get_capacity(), 9);
    // The anonymous key is different from the empty key.
    now(limiter.set_key_quota(&api, Subject::anonymous(), per_minute(1)));
    assert_eq!(
        (limiter.quotas(&api, None::<u64>)[0].get_capacity(), limiter.quotas(&api, "")[0].get_capacity()),
        (1, 3)
    );
}

#[test]
fn spent_tokens_stay_spent_when_a_quota_changes() {
    let (limiter, clock) = limiter();
    drop(now(limiter.try_acquire(&API, "ada").cost(10)));
    // A raised quota applies immediately.
    now(limiter.set_quota(&API, per_minute(100)));
    assert_eq!(now(limiter.remaining(&API, "ada")), 90);
    drop(now(limiter.try_acquire(&API, "ada").cost(90)));
    // After the quota is lowered, the 100 spent tokens are still refilled at the old rate. After 57 s, 5 tokens are
    // still spent, so one more token fits into the capacity of 6.
    now(limiter.set_quota(&API, per_minute(6)));
    assert_eq!(now(limiter.try_limit(&API, "ada")).retry_after(), Some(57 * SECOND));
    clock.advance(57 * SECOND - US);
    assert!(!now(limiter.try_check(&API, "ada")).is_allowed());
    clock.advance(US);
    assert!(now(limiter.try_limit(&API, "ada")).is_allowed());
    now(limiter.set_quota(&API, None));
    assert_eq!(now(limiter.remaining(&API, "ada")), 4);
    clock.advance(36 * SECOND);
    assert_eq!(now(limiter.remaining(&API, "ada")), 10);
}

/// Regression: each change capped the spent tokens at the new capacity, so alternating quotas admitted 56,519 requests
/// in a minute.
#[test]
fn alternating_between_two_quotas_admits_no_more_than_the_larger_quota() {
    let (limiter, clock) = limiter();
    let mut admitted = 0;
    for second in 0..60 {
        now(limiter.set_quota(&API, per_minute(if second % 2 == 0 { 60 } else { 1000 })));
        while now(limiter.try_limit(&API, "ada")).is_allowed() {
            admitted += 1;
        }
        clock.advance(SECOND);
    }
    assert!((1900..=2000 + 1000).contains(&admitted), "{admitted}");
}

#[tokio::test]
async fn response_headers_show_a_quota_set_at_run_time() {
    let (limiter, _clock) = limiter();
    let client = behind(&limiter, &API).await;
    let shown = async |status| {
        let answer = client.get_as("ada").await;
        assert_eq!(answer.status, status);
        let [(_, q, w)] = answer.policies()[..] else { panic!("expected exactly one policy") };
        (q, w, answer.limits()[0].1)
    };
    assert_eq!(shown(200).await, (10, 60, 9));
    now(limiter.set_quota(&API, Quota::token_bucket(5, HOUR).capacity(20)));
    assert_eq!(shown(200).await, (20, 4 * 3600, 18));
    now(limiter.set_key_quota(&API, "ada", per_minute(2)));
    assert_eq!(shown(429).await, (2, 60, 0));
    assert_eq!(client.get_as("bob").await.policies(), [("api".to_owned(), 20, 4 * 3600)]);
    now(limiter.set_key_quota(&API, "ada", None));
    now(limiter.set_quota(&API, None));
    assert_eq!(shown(200).await.0, 10);
}

#[test]
fn an_invalid_replacement_quota_is_rejected_and_changes_nothing() {
    let (limiter, _clock) = limiter();
    let api = Policy::new("api", per_minute(100)).tier("free", per_minute(10));
    now(limiter.set_quota(&api, per_minute(50)));
    let refused = |result: Result<(), SetQuotaError>| {
        let error = result.expect_err("expected an error");
        assert!(matches!(error, SetQuotaError::Quota(_)), "{error:?}");
        error.to_string()
    };
    let wait = |future: std::pin::Pin<Box<dyn Future<Output = Result<(), SetQuotaError>> + '_>>| {
        now(async { Ok::<_, ()>(future.await) })
    };
    let window = Quota::fixed_window(10, MINUTE);
    let nothing = per_minute(10).capacity(0);
    let message = refused(wait(Box::pin(limiter.set_quota(&api, window))));
    assert!(message.starts_with("policy \"api\": ") && message.contains("a different algorithm"), "{message}");
    let message = refused(wait(Box::pin(limiter.set_key_quota(&api, "ada", Quota::sliding_window(1, SECOND)))));
    assert!(message.contains("a different algorithm"), "{message}");
    let message = refused(wait(Box::pin(limiter.set_quota(&api, nothing))));
    assert!(message.contains("\"api\"") && message.contains("capacity is 0"), "{message}");
    let message = refused(wait(Box::pin(limiter.set_tier_quota(&api, "gold", per_minute(5)))));
    assert_eq!(message, "policy \"api\": unknown tier \"gold\"; the policy's tiers are [\"free\"]");
    let error = wait(Box::pin(limiter.set_tier_quota(&api, "free", nothing))).expect_err("expected an error");
    assert!(error.source().is_some(), "the error must have a source");
    assert_eq!(limiter.stats().changed_quotas, 1);
    assert_eq!(limiter.quotas(&api, "ada")[0].get_capacity(), 50);
    assert_eq!(limiter.quotas(&api, Subject::new("ada").tier("free"))[0].get_capacity(), 50);
}

#[test]
fn a_hundred_thousand_quotas_can_be_set_and_reverted() {
    let (limiter, _clock) = limiter();
    for key in 0..100_000u64 {
        now(limiter.set_key_quota(&API, key, per_minute(1 + key)));
    }
    let full = now(async { Ok::<_, ()>(limiter.set_key_quota(&API, "ada", per_minute(5)).await) });
    let error = full.expect_err("expected an error at the maximum number of quotas");
    assert!(matches!(error, SetQuotaError::TooMany) && error.to_string().contains("100000"), "{error}");
    assert_eq!((limiter.stats().changed_quotas, limiter.quotas(&API, "ada")[0].get_capacity()), (100_000, 10));
    assert_eq!(limiter.quotas(&API, 77_777u64)[0].get_capacity(), 77_778);
    now(limiter.set_key_quota(&API, 5u64, None));
    now(limiter.set_key_quota(&API, "ada", per_minute(5)));
    assert_eq!((limiter.stats().changed_quotas, limiter.quotas(&API, 5u64)[0].get_capacity()), (100_000, 10));
}

#[test]
fn concurrent_readers_see_either_the_old_or_the_new_quota() {
    let clock = ManualClock::new();
    let limiter = RateLimiter::new(TestBackend::local(&clock));
    let (done, satisfied) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for reader in 0..3u64 {
            let (limiter, done, satisfied) = (&limiter, &done, &satisfied);
            scope.spawn(move || {
                let mut seen = [false; 2];
                while !done.load(Ordering::Relaxed) {
                    let decision = now(limiter.try_acquire(&API, reader).cost(0));
                    let quota = decision.quota();
                    let one = (quota.rate(), quota.get_capacity(), quota.period()) == (10, 10, MINUTE);
                    let other = (quota.rate(), quota.get_capacity(), quota.period()) == (7, 70, SECOND);
                    assert!(one || other, "{quota}");
                    if seen != [true; 2] {
                        seen = [seen[0] | one, seen[1] | other];
                        satisfied.fetch_add(usize::from(seen == [true; 2]), Ordering::Relaxed);
                    }
                }
            });
        }
        let other = Quota::token_bucket(7, SECOND).capacity(70);
        let mut changes = 0;
        while changes < 4000 || satisfied.load(Ordering::Relaxed) < 3 && changes < 4_000_000 {
            now(limiter.set_quota(&API, (changes % 2 == 0).then_some(other.into())));
            std::thread::yield_now();
            changes += 1;
        }
        done.store(true, Ordering::Relaxed);
        now(limiter.set_quota(&API, None));
    });
    assert_eq!(satisfied.load(Ordering::Relaxed), 3);
    assert_eq!(limiter.quotas(&API, "ada"), *API.quotas());
}

#[tokio::test]
async fn a_changed_quota_applies_to_open_connections() {
    let (limiter, _clock) = limiter();
    let layer = tollgate::RateLimitLayer::new(&API, super::app::user).limiter(&limiter);
    let client = serve(crate::support::client::hello().layer(layer)).await;
    for _ in 0..10 {
        assert_eq!(client.get_as("ada").await.status, 200);
    }
    assert_eq!(client.get_as("ada").await.status, 429);
    now(limiter.set_quota(&API, per_minute(12)));
    assert_eq!(client.get_as("ada").await.status, 200);
    assert_eq!(client.get_as("ada").await.status, 200);
    assert_eq!(client.get_as("ada").await.status, 429);
}

/// Regression: a quota that was set for a tier could not be reverted after the tier was removed from the policy.
#[test]
fn a_quota_set_for_a_removed_tier_is_ignored_and_can_be_reverted() {
    let (limiter, _clock) = limiter();
    let before = Policy::new("api", per_minute(100)).tier("premium", per_minute(200));
    let api = Policy::new("api", per_minute(100));
    now(limiter.set_tier_quota(&before, "premium", per_minute(300)));
    assert_eq!(limiter.quotas(&api, Subject::new("ada").tier("premium"))[0].get_capacity(), 100);
    now(limiter.set_quota(&api, per_minute(40)));
    assert_eq!(limiter.quotas(&api, Subject::new("ada").tier("premium"))[0].get_capacity(), 40);
    now(limiter.set_tier_quota(&api, "premium", None));
    assert_eq!(limiter.stats().changed_quotas, 1);
}

/// Regression: a key quota with the policy's former algorithm hid the quota set for the policy.
#[test]
fn a_quota_with_another_algorithm_does_not_hide_other_quotas() {
    let (limiter, _clock) = limiter();
    let before = Policy::new("api", per_minute(100)).tier("free", per_minute(50));
    now(limiter.set_key_quota(&before, "ada", per_minute(9)));
    now(limiter.set_tier_quota(&before, "free", per_minute(8)));
    let api = Policy::new("api", Quota::fixed_window(100, HOUR)).tier("free", Quota::fixed_window(60, HOUR));
    now(limiter.set_quota(&api, Quota::fixed_window(5, HOUR)));
    assert_eq!(limiter.quotas(&api, Subject::new("ada").tier("free"))[0].get_capacity(), 5);
}
