//! Credits and policy resets, on the memory backend and with cached denials.

use std::sync::Arc;

use tollgate::{
    Charge, DAY, HOUR, MINUTE, MemoryBackend, Policy, Quota, RateLimiter, Reason, SECOND, Subject, clock::ManualClock,
    policy::DecidedBy, protection::Signal,
};

use crate::support::now;
use crate::support::test_backend::TestBackend;

static API: Policy = Policy::new("api", Quota::token_bucket(10, HOUR).max_reserved(10));
static BOTH: Policy = Policy::new("both", Quota::token_bucket(5, MINUTE)).and(Quota::fixed_window(20, DAY));

fn limiter() -> (RateLimiter, ManualClock) {
    let clock = ManualClock::new();
    (RateLimiter::new(MemoryBackend::builder().clock(clock.clone()).build()), clock)
}

fn left(limiter: &RateLimiter, policy: &Policy, key: &'static str) -> u64 {
    now(limiter.remaining(policy, key))
}

#[test]
fn a_credit_never_exceeds_the_capacity() {
    let (limiter, _clock) = limiter();
    assert!(!now(limiter.credit(&API, "ada", 5)), "a credit to a key without spent tokens must have no effect");
    now(limiter.acquire(&API, "ada").cost(8));
    assert!(now(limiter.credit(&API, "ada", 3)));
    assert_eq!(left(&limiter, &API, "ada"), 5);
    assert!(now(limiter.credit(&API, "ada", u64::MAX)));
    assert_eq!(left(&limiter, &API, "ada"), 10);
    assert!(!now(limiter.credit(&API, "ada", 1)) && !now(limiter.credit(&API, "ada", 0)));
}

#[test]
fn each_quota_of_a_policy_is_credited() {
    let (limiter, clock) = limiter();
    let left = || {
        let snapshots = now(limiter.snapshot(&BOTH, "ada"));
        snapshots.iter().map(|snapshot| snapshot.available(snapshot.now())).collect::<Vec<_>>()
    };
    now(limiter.acquire(&BOTH, "ada").cost(5));
    assert_eq!(left(), [0, 15]);
    assert!(now(limiter.credit(&BOTH, "ada", 3)));
    assert_eq!(left(), [3, 18]);
    // After a minute, the token bucket is full, and only the fixed window still counts spent tokens.
    clock.advance(MINUTE);
    assert!(now(limiter.credit(&BOTH, "ada", 9)));
    assert_eq!(left(), [5, 20]);
}

#[test]
fn a_credit_uses_the_quota_in_force() {
    let (limiter, _clock) = limiter();
    let tiers = Policy::new("tiers", Quota::token_bucket(10, HOUR)).tier("pro", Quota::token_bucket(100, HOUR));
    let pro = || Subject::new("ada").tier("pro");
    now(limiter.acquire(&tiers, pro()).cost(90));
    now(limiter.credit(&tiers, pro(), 50));
    assert_eq!(now(limiter.remaining(&tiers, pro())), 60);
    now(limiter.set_key_quota(&tiers, "ada", Quota::token_bucket(60, HOUR)));
    now(limiter.credit(&tiers, pro(), 20));
    assert_eq!(now(limiter.remaining(&tiers, pro())), 40);
}

#[test]
fn a_credit_brings_forward_the_next_reservation_but_not_a_pending_one() {
    let (limiter, _clock) = limiter();
    now(limiter.acquire(&API, "ada").cost(10));
    let reserve = || now(limiter.acquire(&API, "ada").cost(2).reserve());
    let first = reserve();
    assert_eq!((first.delay(), reserve().delay()), (12 * MINUTE, 24 * MINUTE));
    now(limiter.credit(&API, "ada", 4));
    assert_eq!((first.delay(), reserve().delay()), (12 * MINUTE, 12 * MINUTE));
}

#[test]
fn credits_and_policy_resets_end_remembered_denials_immediately() {
    let clock = ManualClock::new();
    let backend = TestBackend::remote(&clock);
    let limiter = RateLimiter::new(Arc::clone(&backend));
    let exhaust = || {
        now(limiter.acquire(&API, "ada").cost(10));
        let denied = [(); 2].map(|()| now(limiter.try_limit(&API, "ada")));
        assert_eq!(denied.map(|denied| denied.decided_by())[1], DecidedBy::BlockCache);
    };
    exhaust();
    assert!(now(limiter.credit(&API, "ada", 10)));
    exhaust();
    now(limiter.reset_policy(&API));
    exhaust();
    now(limiter.reset(&API, "ada"));
    exhaust();
}

#[test]
fn a_policy_reset_forgets_all_keys_of_one_policy() {
    let (limiter, clock) = limiter();
    static OTHER: Policy = Policy::new("other", Quota::fixed_window(10, DAY));
    for key in ["ada", "eve"] {
        now(limiter.limit_all([Charge::new(&API, key).cost(9), Charge::new(&OTHER, key)]));
    }
    let boundary = |limiter: &RateLimiter| now(limiter.try_check(&OTHER, "ada")).window();
    let window = boundary(&limiter);
    now(limiter.block(Signal::key("mallory"), HOUR));
    now(limiter.pause(&API, "paused", HOUR));
    now(limiter.set_key_quota(&API, "vip", Quota::token_bucket(50, HOUR)));
    now(limiter.reset_policy(&API));
    assert_eq!((left(&limiter, &API, "ada"), left(&limiter, &API, "eve")), (10, 10));
    assert_eq!((left(&limiter, &OTHER, "ada"), left(&limiter, &OTHER, "eve")), (9, 9));

    // The reset does not affect blocks, pauses, quotas set at run time, or window boundaries.
    assert_eq!(now(limiter.try_limit(&API, "mallory")).reason(), Reason::Blocked);
    assert_eq!(now(limiter.try_limit(&API, "paused")).reason(), Reason::Blocked);
    now(limiter.resume(&API, "paused"));
    assert!(now(limiter.try_limit(&API, "paused")).is_allowed());
    assert_eq!(left(&limiter, &API, "vip"), 50);
    now(limiter.reset_policy(&OTHER));
    assert_eq!((left(&limiter, &OTHER, "ada"), boundary(&limiter)), (10, window));

    // A second reset does not bring back the rows from before the first reset.
    now(limiter.acquire(&API, "ada").cost(4));
    now(limiter.reset_policy(&API));
    assert_eq!(left(&limiter, &API, "ada"), 10);
    assert_eq!(limiter.rows_by_policy().iter().filter(|(policy, _)| policy == API.name()).count(), 1);
    assert_eq!(limiter.stats().changed_quotas, 1);
    clock.advance(SECOND);
}

#[test]
fn settling_a_charge_from_before_a_policy_reset_affects_only_its_old_row() {
    let (limiter, _clock) = limiter();
    let usage = now(limiter.acquire(&API, "ada").cost(6).hold()).into_receipt();
    let reserved = now(limiter.acquire(&API, "ada").cost(8).reserve());
    now(limiter.reset_policy(&API));
    now(limiter.acquire(&API, "ada").cost(5));
    now(usage.settle(9));
    now(reserved.cancel());
    now(usage.reset());
    assert_eq!(left(&limiter, &API, "ada"), 5);
    let usage = now(limiter.acquire(&API, "ada").cost(2).hold()).into_receipt();
    now(usage.refund());
    assert_eq!(left(&limiter, &API, "ada"), 5);
    assert!(now(limiter.reset(&API, "ada")));
    assert_eq!(left(&limiter, &API, "ada"), 10);
}
