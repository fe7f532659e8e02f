//! Calls under divided quotas: denials, several charges in one call, settlements, resets and quota changes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tollgate::key::Secret;
use tollgate::observe::{Decided, Mistake, Observer};
use tollgate::policy::Enforce;
use tollgate::{
    Charge, DAY, HOUR, MemoryBackend, Policy, Quota, RateLimitLayer, RateLimiter, Reason, SECOND, Subject,
    clock::ManualClock, key,
};

use crate::support::client::limiter;
use crate::support::now;

/// Spends one token at a time until none remain. Returns the number of tokens spent.
fn drain(limiter: &RateLimiter, policy: &Policy, key: &'static str) -> u64 {
    let mut spent = 0;
    while now(limiter.remaining(policy, key)) > 0 {
        spent += u64::from(now(limiter.try_limit(policy, key)).is_allowed());
    }
    spent
}

#[test]
fn all_tokens_of_a_quota_can_be_spent() {
    for shards in [1, 2, 7, 64] {
        for quota in [Quota::per_hour(131), Quota::fixed_window(131, HOUR), Quota::sliding_window(131, HOUR)] {
            let (limiter, _clock) = limiter();
            assert_eq!(drain(&limiter, &Policy::new("api", quota.shards(shards)), "ada"), 131, "{quota}, {shards}");
        }
    }
}

#[test]
fn a_call_that_one_shard_denies_is_tried_on_another() {
    const API: Policy = Policy::new("api", Quota::fixed_window(10, DAY).start(SECOND).shards(2));
    for _ in 0..100 {
        let (limiter, _clock) = limiter();
        let admitted = (0..10).filter(|_| now(limiter.try_limit(&API, "ada")).is_allowed()).count();
        assert_eq!(admitted, 10);
        let denied = now(limiter.try_limit(&API, "ada"));
        assert_eq!((denied.reason(), denied.remaining()), (Reason::QuotaExceeded, 0));
    }
}

#[test]
fn decisions_report_the_whole_quota() {
    const API: Policy = Policy::new("api", Quota::per_minute(101).shards(4));
    let (limiter, _clock) = limiter();
    let first = now(limiter.try_limit(&API, "ada"));
    assert_eq!((first.quota(), first.capacity(), first.shards_read()), (API.quotas()[0], 101, 1));
    assert_eq!(first.key(), limiter.digest(Subject::new("ada").key()));
    // The charged shard has 24 or 25 tokens left, which are multiplied by the number of shards.
    assert!([96, 100].contains(&first.remaining()), "{}", first.remaining());
    let check = now(limiter.try_check(&API, "ada"));
    assert_eq!((check.remaining(), check.shards_read(), check.quota()), (100, 4, API.quotas()[0]));
}

#[test]
fn a_cost_that_no_shard_can_grant_has_its_own_reason() {
    #[derive(Debug, Default)]
    struct Mistakes(Arc<Mutex<Vec<String>>>);
    impl Observer for Mistakes {
        fn decided(&self, _: &Decided<'_>) {}

        fn mistake(&self, mistake: &Mistake) {
            self.0.lock().unwrap().push(mistake.to_string());
        }
    }
    const API: Policy = Policy::new("api", Quota::per_minute(10).shards(3));
    let seen = Mistakes::default();
    let mistakes = Arc::clone(&seen.0);
    let backend = MemoryBackend::builder().clock(ManualClock::new()).build();
    let limiter = RateLimiter::builder(backend).observer(seen).build();
    // Only the first shard has four tokens.
    for key in 0..100 {
        assert!(now(limiter.try_acquire(&API, key).cost(4)).is_allowed());
        assert!(!now(limiter.try_acquire(&API, key).cost(4)).is_allowed());
        assert_eq!(now(limiter.remaining(&API, key)), 6);
    }
    let denied = now(limiter.try_acquire(&API, "ada").cost(5));
    assert_eq!((denied.reason(), denied.retry_after()), (Reason::CostAboveShard, None));
    assert_eq!(
        denied.into_result().unwrap_err().to_string(),
        "rate limit exceeded: \"api\" cannot grant 5 tokens at once: each of its 3 shards grants 4 at most; retrying will not help"
    );
    let larger = now(limiter.try_acquire(&API, "ada").cost(11));
    assert_eq!((larger.reason(), larger.retry_after()), (Reason::CostTooLarge, None));
    assert_eq!(mistakes.lock().unwrap().len(), 1, "{mistakes:?}");
}

#[test]
fn charges_in_one_call_are_made_together_or_not_at_all() {
    const HOT: Policy = Policy::new("hot", Quota::per_hour(70).shards(7));
    const USER: Policy = Policy::new("user", Quota::per_hour(40));
    let (limiter, _clock) = limiter();
    let call = || now(limiter.try_limit_all([Charge::new(&HOT, "all"), Charge::new(&USER, "ada")]));
    assert_eq!((0..60).filter(|_| call().is_allowed()).count(), 40);
    assert_eq!((now(limiter.remaining(&HOT, "all")), now(limiter.remaining(&USER, "ada"))), (30, 0));
    let denied = call();
    let reasons: Vec<Reason> = denied.iter().map(|decision| decision.reason()).collect();
    assert_eq!(reasons, [Reason::RefusedElsewhere, Reason::QuotaExceeded]);
}

#[test]
fn several_quotas_are_charged_on_the_same_shard() {
    const API: Policy = Policy::new("api", Quota::per_minute(20).shards(4))
        .and(Quota::fixed_window(40, DAY).start(Duration::ZERO).shards(4));
    let (limiter, clock) = limiter();
    assert_eq!(drain(&limiter, &API, "ada"), 20);
    clock.advance(HOUR);
    assert_eq!(drain(&limiter, &API, "ada"), 20);
    clock.advance(HOUR);
    assert_eq!(drain(&limiter, &API, "ada"), 0);
    let left: Vec<u64> =
        now(limiter.snapshot(&API, "ada")).iter().map(|snapshot| snapshot.available(snapshot.now())).collect();
    assert_eq!(left, [20, 0]);
}

#[test]
fn a_canceled_reservation_is_refunded_to_its_shard() {
    const API: Policy = Policy::new("api", Quota::per_minute(12).max_reserved(12).shards(3));
    let (limiter, _clock) = limiter();
    let held: Vec<_> = (0..24).map(|_| limiter.acquire(&API, "ada").reserve()).collect();
    let held: Vec<_> = held.into_iter().filter_map(|held| now(async { Ok::<_, ()>(held.await) }).ok()).collect();
    assert!(held.len() >= 20, "{} of 24 were reserved", held.len());
    assert_eq!(now(limiter.remaining(&API, "ada")), 0);
    for reservation in held.into_iter().rev() {
        assert!(now(reservation.cancel()));
    }
    assert_eq!(now(limiter.remaining(&API, "ada")), 12);
    let usage = now(async { Ok::<_, ()>(limiter.acquire(&API, "ada").cost(4).hold().await) }).unwrap();
    now(usage.into_receipt().settle(1));
    assert_eq!(now(limiter.remaining(&API, "ada")), 11);
}

#[test]
fn a_reset_applies_to_all_shards() {
    const API: Policy = Policy::new("api", Quota::per_hour(64).shards(64));
    let (limiter, _clock) = limiter();
    drain(&limiter, &API, "ada");
    assert!(now(limiter.reset(&API, "ada")));
    assert_eq!(now(limiter.remaining(&API, "ada")), 64);
    let held = now(async { Ok::<_, ()>(limiter.acquire(&API, "ada").hold().await) }).unwrap();
    drain(&limiter, &API, "ada");
    assert!(now(held.into_receipt().reset()));
    assert_eq!(now(limiter.remaining(&API, "ada")), 64);
}

#[test]
fn changing_the_number_of_shards_grants_at_most_one_extra_burst() {
    let api = Policy::new("api", Quota::per_hour(60).shards(2)).tier("busy", Quota::per_hour(60).shards(6));
    let (limiter, _clock) = limiter();
    let mut admitted = drain(&limiter, &api, "ada");
    now(limiter.set_quota(&api, Quota::per_hour(60).shards(12)));
    admitted += drain(&limiter, &api, "ada");
    now(limiter.set_quota(&api, None));
    admitted += drain(&limiter, &api, "ada");
    assert!((60..=120).contains(&admitted), "{admitted}");
    let busy = || Subject::new("ada").tier("busy");
    assert!(now(limiter.remaining(&api, busy())) <= 60);
    now(limiter.reset(&api, busy()));
    assert_eq!((now(limiter.remaining(&api, busy())), now(limiter.remaining(&api, "ada"))), (60, 60));
}

#[test]
#[should_panic(
    expected = "every request costs 26, but the quota 100/min shards 4 has shards that each hold at most 25"
)]
fn a_fixed_cost_that_no_shard_can_grant_panics_when_the_router_is_built() {
    use tower::Layer;
    let layer = RateLimitLayer::new(Quota::per_minute(100).shards(4), key::global()).fixed_cost(26);
    drop(layer.layer(tower::service_fn(|_: http::Request<()>| async { Ok::<_, ()>(http::Response::new(())) })));
}

#[test]
fn a_credit_is_spread_over_the_shards() {
    const API: Policy = Policy::new("api", Quota::per_hour(64).shards(16));
    let (limiter, _clock) = limiter();
    drain(&limiter, &API, "ada");
    assert!(now(limiter.credit(&API, "ada", 40)));
    assert_eq!(now(limiter.remaining(&API, "ada")), 40);
    assert!(now(limiter.credit(&API, "ada", 1000)));
    assert_eq!(now(limiter.remaining(&API, "ada")), 64);
    assert!(!now(limiter.credit(&API, "ada", 1)));
}

#[test]
fn resetting_a_policy_resets_all_its_shards() {
    const API: Policy = Policy::new("api", Quota::per_hour(64).shards(16));
    let (limiter, _clock) = limiter();
    drain(&limiter, &API, "ada");
    now(Box::pin(limiter.reset_policy(&API)));
    assert_eq!(now(limiter.remaining(&API, "ada")), 64);
    assert_eq!(drain(&limiter, &API, "ada"), 64);
}

#[test]
fn a_divided_quota_in_shadow_mode_denies_nothing() {
    let hot = Policy::new("hot", Quota::per_hour(20).shards(4)).enforce(Enforce::Never);
    let user = Policy::new("user", Quota::per_hour(40).shards(4));
    let (limiter, _clock) = limiter();
    let call = || now(limiter.try_limit_all([Charge::new(&hot, "all"), Charge::new(&user, "ada")]));
    let mut shadowed = 0;
    while now(limiter.remaining(&user, "ada")) > 0 {
        let decisions = call();
        shadowed += u64::from(decisions.is_shadowed());
        assert!(decisions.is_allowed() || now(limiter.remaining(&user, "ada")) < 20, "{decisions}");
    }
    assert_eq!((shadowed >= 20, now(limiter.remaining(&hot, "all"))), (true, 0));
    let check = now(limiter.try_check_all([Charge::new(&hot, "all"), Charge::new(&user, "eve")]));
    assert!(check.is_allowed() && check.is_shadowed());
    let left: Vec<u64> = check.iter().map(tollgate::Decision::remaining).collect();
    assert_eq!(left, [0, 40]);
    assert!(!call().is_allowed());
}

#[test]
fn the_other_shard_is_tried_after_a_denial_in_shadow_mode() {
    let shadow = Policy::new("shadow", Quota::per_hour(1)).enforce(Enforce::Never);
    let user = Policy::new("user", Quota::per_hour(10).shards(2));
    let backend = Arc::new(MemoryBackend::builder().clock(ManualClock::new()).build());
    let limiter = || RateLimiter::builder(Arc::clone(&backend)).secret(Secret::new([7; 16])).build();
    let call = |limiter: &RateLimiter, key: u64| {
        now(limiter.try_limit_all([Charge::new(&shadow, key), Charge::new(&user, key).cost(5)]))
    };
    for key in 0..50 {
        assert!(call(&limiter(), key).is_allowed());
        // The new limiter does not know which of the two shards is empty.
        assert!(call(&limiter(), key).is_shadowed(), "denied, although the other shard has enough tokens");
        assert!(!call(&limiter(), key).is_allowed());
    }
}

#[test]
fn an_undivided_quota_does_not_determine_the_shard_of_a_divided_quota() {
    let user = Policy::new("user", Quota::per_hour(1000));
    let hot = Policy::new("hot", Quota::per_hour(10).shards(2));
    let (limiter, _clock) = limiter();
    let call = || now(limiter.try_limit_all([Charge::new(&user, "ada"), Charge::new(&hot, "ada")]));
    assert_eq!((0..20).filter(|_| call().is_allowed()).count(), 10);
}
