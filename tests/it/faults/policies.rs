//! Faults of policies with several quotas.

use tollgate::clock::ManualClock;
use tollgate::{MemoryBackend, Policy, Quota, RateLimiter, Subject};

fn limiter() -> RateLimiter {
    RateLimiter::new(MemoryBackend::builder().clock(ManualClock::new()).build())
}

/// Right: the burst limit applies to every tier (or a quota for all tiers has its own spelling, and this is an error).
/// Cause: `Policy::and` in `src/policy/named.rs` changes only the policy's own quotas.
#[tokio::test]
async fn fault_17_a_quota_added_after_a_tier_does_not_apply_to_the_tier() {
    let api = Policy::new("api", Quota::per_minute(60)).tier("pro", Quota::per_minute(600)).and(Quota::per_second(10));
    let limiter = limiter();
    assert!(limiter.acquire(&api, "ada").cost(11).await.is_err());
    assert!(limiter.acquire(&api, Subject::new("eve").tier("pro")).cost(600).await.is_ok());
    assert_eq!(api.quotas_for(Some("pro")).to_string(), "600/min");
}

/// Right: the change names the quota that it replaces, and the 10/s stays or its removal is explicit. Cause:
/// `RateLimiter::set_quota` in `src/limiter/control.rs` replaces the whole list of quotas, and accepts a single quota.
#[tokio::test]
async fn fault_17_a_quota_set_at_run_time_removes_the_other_quotas_of_the_policy() {
    let api = Policy::new("api", Quota::per_minute(60)).and(Quota::per_second(10));
    let limiter = limiter();
    assert!(limiter.acquire(&api, "ada").cost(11).await.is_err());
    limiter.set_quota(&api, Quota::per_minute(600)).await.unwrap();
    assert!(limiter.acquire(&api, "ada").cost(600).await.is_ok());
    assert_eq!(limiter.quotas(&api, "ada").to_string(), "600/min");
}
