//! Tiers with several quotas. Quotas with the same period share a key's spent tokens.

use tollgate::{DAY, HOUR, MINUTE, Policy, Quota, SECOND, Subject};

use crate::support::client::limiter;
use crate::support::now;

fn api() -> Policy {
    Policy::new("api", Quota::per_second(5).and(Quota::per_day(100))[0])
        .and(Quota::per_day(100))
        .tier("pro", Quota::per_second(50).and(Quota::per_day(5000)))
        .tier("unlimited bursts", Quota::per_day(1000))
        .tier("monthly", Quota::per_second(20).and(Quota::token_bucket(90_000, 30 * DAY)))
}

fn spent(limiter: &tollgate::RateLimiter, policy: &Policy, subject: Subject) -> Vec<(String, f64)> {
    let snapshots = now(limiter.snapshot(policy, subject));
    snapshots.iter().map(|it| (it.name().to_owned(), it.state().spent)).collect()
}

#[test]
fn after_a_tier_change_spent_tokens_count_toward_quotas_with_the_same_period() {
    let (api, (limiter, _clock)) = (api(), limiter());
    let ada = |tier: &'static str| Subject::new("ada").tier(tier);
    now(limiter.acquire(&api, "ada").cost(5));
    let pro = [("api;1s".to_owned(), 5.0), ("api;1d".to_owned(), 5.0)];
    assert_eq!(spent(&limiter, &api, ada("pro")), pro);
    now(limiter.acquire(&api, ada("pro")).cost(45));
    // A tier with only a daily quota counts the tokens that were spent under the other daily quotas. Nothing has been
    // spent under a monthly quota.
    assert_eq!(spent(&limiter, &api, ada("unlimited bursts")), [("api".to_owned(), 50.0)]);
    let monthly = [("api;1s".to_owned(), 50.0), ("api;30d".to_owned(), 0.0)];
    assert_eq!(spent(&limiter, &api, ada("monthly")), monthly);
}

#[test]
fn spent_tokens_stay_spent_when_a_reload_adds_a_quota() {
    let (limiter, clock) = limiter();
    let before = Policy::new("api", Quota::per_day(100));
    now(limiter.acquire(&before, "ada").cost(60));
    let after = Policy::new("api", Quota::per_second(10)).and(Quota::per_day(100));
    now(limiter.set_quota(&before, *after.quotas()));
    let expected = [("api;1s".to_owned(), 0.0), ("api;1d".to_owned(), 60.0)];
    assert_eq!(spent(&limiter, &before, "ada".into()), expected);
    // The program restarts with the new policy.
    assert_eq!(spent(&limiter, &after, "ada".into()), expected);
    // Replace both quotas with a single quota that has a different period.
    now(limiter.set_quota(&before, Quota::per_hour(50)));
    assert_eq!(now(limiter.remaining(&before, "ada")), 0);
    clock.advance(HOUR);
    assert_eq!(
        now(limiter.remaining(&before, "ada")),
        40,
        "60 tokens were spent, and 50 of them were refilled in an hour"
    );
}

#[test]
fn quotas_with_the_same_period_must_have_the_same_algorithm() {
    let api = || Policy::new("api", Quota::per_second(5)).and(Quota::fixed_window(100, DAY));
    assert!(api().try_tier("pro", Quota::per_second(50).and(Quota::fixed_window(500, DAY))).is_ok());
    let error = api().try_tier("pro", Quota::per_second(50).and(Quota::per_day(500))).unwrap_err();
    assert_eq!(
        error.to_string(),
        "policy \"api\": tier \"pro\" (50/s; 500/d): two quotas with a period of 1 d have different \
         algorithms; a key has one row for all tiers, so quotas with the same period must use the same algorithm"
    );
    // A tier may omit some of the policy's periods and add others, in any order.
    let mixed = api().tier("daily", Quota::fixed_window(500, DAY)).tier("hourly", Quota::sliding_window(7, HOUR));
    assert_eq!(mixed.quotas_for(Some("hourly")).len(), 1);
    let (limiter, _clock) = limiter();
    let error = now(async { Ok::<_, ()>(limiter.set_quota(&api(), Quota::sliding_window(9, DAY)).await.unwrap_err()) });
    assert!(error.to_string().contains("has a different algorithm"), "{error}");
}

#[test]
fn a_policy_has_at_most_eight_periods() {
    let tier = |number: u32| {
        let list = Quota::token_bucket(1, number * MINUTE).and(Quota::token_bucket(1, number * MINUTE + SECOND));
        (format!("tier {number}"), list)
    };
    let mut policy = Policy::new("api", Quota::per_second(1)).and(Quota::per_day(1));
    for number in 1..=3 {
        let (name, list) = tier(number);
        policy = policy.tier(name, list);
    }
    let (name, list) = tier(4);
    let error = policy.try_tier(name, list).unwrap_err().to_string();
    assert!(error.contains("more than 8 different periods"), "{error}");
}
