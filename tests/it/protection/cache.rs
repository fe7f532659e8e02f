//! How often calls for a denied key reach the backend despite the block cache.

use std::sync::Arc;
use std::time::Duration;

use tollgate::{
    Charge, DAY, HOUR, MINUTE, Policy, Quota, RateLimiter, Reason, Receipt, SECOND, Subject, clock::ManualClock,
    key::Secret, policy::DecidedBy, protection::Signal,
};

use super::app::{API, US, ip};
use crate::support::test_backend::TestBackend;

const MS: Duration = Duration::from_millis(1);

static QUEUE: Policy = Policy::new("queue", Quota::token_bucket(1, SECOND).max_reserved(3));

fn remote_limiter() -> (RateLimiter, Arc<TestBackend>, ManualClock) {
    let clock = ManualClock::new();
    let backend = TestBackend::remote(&clock);
    (RateLimiter::new(Arc::clone(&backend)), backend, clock)
}

fn now<T, E: std::fmt::Debug>(future: impl std::future::IntoFuture<Output = Result<T, E>>) -> T {
    crate::support::now(future.into_future())
}

/// Returns the output of a future that is ready immediately.
fn ready<T>(future: impl IntoFuture<Output = T>) -> T {
    crate::support::now(async { Ok::<_, std::convert::Infallible>(future.await) })
}

#[test]
fn a_denied_key_causes_one_backend_call_per_second_and_one_at_its_retry_time() {
    for quota in [Quota::token_bucket(10, MINUTE), Quota::fixed_window(10, MINUTE), Quota::sliding_window(10, MINUTE)] {
        let policy = Policy::new("hot", quota);
        let (limiter, backend, clock) = remote_limiter();
        drop(now(limiter.try_acquire(&policy, "eve").cost(10)));
        assert_eq!(backend.take_calls(), 1);
        for _ in 0..50 {
            let denied = now(limiter.try_limit(&policy, "eve"));
            assert_eq!(backend.take_calls(), 0, "{quota}: the exhausted row should be cached");
            assert_eq!((denied.reason(), denied.decided_by().as_str()), (Reason::QuotaExceeded, "block_cache"));
            let retry = denied.retry_after().unwrap();
            // Retry many times, up to a microsecond before the retry time.
            for i in 1..=200 {
                clock.advance(retry / 200 * u32::from(i < 200));
                assert!(!now(limiter.try_limit(&policy, "eve")).is_allowed());
            }
            let left = now(limiter.try_limit(&policy, "eve")).retry_after().unwrap();
            clock.advance(left - US);
            assert_eq!(now(limiter.try_limit(&policy, "eve")).retry_after(), Some(US));
            let (calls, seconds) = (backend.take_calls(), retry.as_secs() as usize);
            assert!((seconds / 2..=seconds + 1).contains(&calls), "{quota}: found {calls} backend calls in {retry:?}");
            clock.advance(US);
            // Each refilled token requires one backend call.
            let mut calls = 0;
            while now(limiter.try_limit(&policy, "eve")).is_allowed() {
                calls += 1;
                assert_eq!(backend.take_calls(), 1);
            }
            assert!(calls >= 1);
            assert!(backend.take_calls() <= 1);
        }
    }
}

#[test]
fn a_denial_is_remembered_for_one_second_even_in_a_long_window() {
    for quota in [
        Quota::token_bucket(10, DAY),
        Quota::fixed_window(10, DAY).start(Duration::ZERO),
        Quota::sliding_window(10, DAY),
    ] {
        let policy = Policy::new("slow", quota);
        let (limiter, backend, clock) = remote_limiter();
        drop(now(limiter.try_acquire(&policy, "eve").cost(10)));
        backend.take_calls();
        for _ in 0..3 {
            for _ in 0..10 {
                assert!(!now(limiter.try_limit(&policy, "eve")).is_allowed());
                assert_eq!(backend.take_calls(), 0, "{quota}");
                clock.advance(SECOND / 10);
            }
            assert!(!now(limiter.try_limit(&policy, "eve")).is_allowed());
            assert_eq!(backend.take_calls(), 1, "{quota}");
        }
    }
}

/// Regression: tokens refunded by another process were not available until the retry time of the cached denial.
#[test]
fn tokens_refunded_by_another_process_are_available_a_second_later() {
    let slow = Policy::new("slow", Quota::token_bucket(1, DAY).capacity(1000));
    let cases: [fn(&RateLimiter, &Policy, Receipt); 4] = [
        |_, _, usage| _ = now(usage.refund()),
        |_, _, usage| _ = now(usage.settle(50)),
        |_, _, usage| assert!(now(usage.reset())),
        |other, policy, _| drop(other.reset(policy, "eve")),
    ];
    for refund in cases {
        let clock = ManualClock::new();
        let backend = TestBackend::remote(&clock);
        let limiter = || RateLimiter::builder(Arc::clone(&backend)).secret(Secret::new([7; 16])).build();
        let (one, other) = (limiter(), limiter());
        let usage = now(other.acquire(&slow, "eve").cost(1000).hold()).into_receipt();
        assert!(!now(one.try_limit(&slow, "eve")).is_allowed());
        refund(&other, &slow, usage);
        clock.advance(SECOND - US);
        assert_eq!(now(one.try_limit(&slow, "eve")).decided_by(), DecidedBy::BlockCache);
        clock.advance(US);
        assert!(now(one.try_limit(&slow, "eve")).is_allowed());
    }
}

#[test]
fn with_a_local_backend_or_without_a_cache_all_calls_reach_the_backend() {
    let clock = ManualClock::new();
    for (backend, rows) in [(TestBackend::local(&clock), 1000), (TestBackend::remote(&clock), 0)] {
        let limiter = RateLimiter::builder(Arc::clone(&backend)).block_cache(rows).build();
        drop(now(limiter.try_acquire(&API, "eve").cost(10)));
        for _ in 0..10 {
            assert_eq!(now(limiter.try_limit(&API, "eve")).decided_by(), tollgate::policy::DecidedBy::Backend);
        }
        assert_eq!(backend.take_calls(), 11);
    }
}

#[test]
fn a_call_that_might_be_allowed_reaches_the_backend_despite_other_denials() {
    let (limiter, backend, clock) = remote_limiter();
    drop(now(limiter.try_acquire(&API, "eve").cost(6)));
    assert!(!now(limiter.try_acquire(&API, "eve").cost(5)).is_allowed());
    assert_eq!(backend.take_calls(), 2);
    assert!(!now(limiter.try_acquire(&API, "eve").cost(5)).is_allowed());
    assert_eq!(backend.take_calls(), 0);
    assert!(now(limiter.try_acquire(&API, "eve").cost(4)).is_allowed());
    assert_eq!(backend.take_calls(), 1);
    assert_eq!(now(limiter.remaining(&API, "eve")), 0);
    clock.advance(6 * SECOND);
    assert_eq!(now(limiter.remaining(&API, "eve")), 1);
    backend.take_calls();
    assert!(now(limiter.try_limit(&API, "bob")).is_allowed());
    assert!(now(limiter.try_limit(&QUEUE, "eve")).is_allowed());
    assert_eq!(backend.take_calls(), 2);
}

#[test]
fn a_reservation_that_might_be_granted_reaches_the_backend() {
    let (limiter, backend, _clock) = remote_limiter();
    drop(now(limiter.try_limit(&QUEUE, "eve")));
    assert!(!now(limiter.try_limit(&QUEUE, "eve")).is_allowed());
    assert_eq!(backend.take_calls(), 1);
    for seconds in 1..=3 {
        let reservation = now(limiter.acquire(&QUEUE, "eve").reserve_within(3 * SECOND));
        assert_eq!(reservation.delay(), seconds * SECOND);
        reservation.into_receipt();
    }
    assert_eq!(backend.take_calls(), 3);
    assert!(ready(limiter.acquire(&QUEUE, "eve").reserve()).is_err());
    assert!(ready(limiter.acquire(&QUEUE, "eve").reserve()).is_err());
    assert!(backend.take_calls() <= 1);
}

#[test]
fn a_call_with_several_charges_is_denied_locally_if_all_rows_are_cached() {
    let other = Policy::new("other", Quota::token_bucket(5, HOUR));
    let (limiter, backend, _clock) = remote_limiter();
    let charges = || [Charge::new(&API, "ada"), Charge::new(&other, "eve").cost(2)];
    drop(now(limiter.try_acquire(&other, "eve").cost(4)));
    backend.take_calls();
    // The first call reads the row of `ada` from the backend. After that, both rows are cached.
    for calls in [1, 0, 0] {
        let decisions = now(limiter.try_limit_all(charges()));
        let reasons: Vec<_> = decisions.iter().map(|decision| decision.reason()).collect();
        assert_eq!(reasons, [Reason::RefusedElsewhere, Reason::QuotaExceeded]);
        assert_eq!((decisions.get(0).unwrap().remaining(), decisions.retry_after()), (10, Some(HOUR / 5)));
        assert_eq!(backend.take_calls(), calls);
    }
    // Two charges to one row always reach the backend, which adds up their costs.
    let twice = || [Charge::new(&other, "eve"), Charge::new(&other, "eve")];
    for _ in 0..3 {
        assert!(!now(limiter.try_limit_all(twice())).is_allowed());
        assert_eq!(backend.take_calls(), 1);
    }
}

#[test]
fn local_refunds_resets_and_quota_changes_take_effect_immediately() {
    let (limiter, backend, _clock) = remote_limiter();
    let denied = || {
        assert!(!now(limiter.try_limit(&API, "eve")).is_allowed());
        backend.take_calls();
        assert!(!now(limiter.try_limit(&API, "eve")).is_allowed());
        assert_eq!(backend.take_calls(), 0, "the denial should be cached");
    };
    let usage = now(limiter.acquire(&API, "eve").cost(10).hold()).into_receipt();
    denied();
    now(usage.settle(9));
    assert!(now(limiter.try_limit(&API, "eve")).is_allowed());
    denied();
    now(limiter.reset(&API, "eve"));
    let held = now(limiter.acquire(&API, "eve").cost(10).hold());
    denied();
    drop(held);
    assert!(now(limiter.try_acquire(&API, "eve").cost(10)).is_allowed());
    denied();
    now(limiter.set_quota(&API, Quota::token_bucket(11, MINUTE)));
    assert!(now(limiter.try_limit(&API, "eve")).is_allowed());
    denied();
    now(limiter.set_quota(&API, None));
    now(limiter.set_key_quota(&API, "eve", Quota::token_bucket(13, MINUTE)));
    assert!(now(limiter.try_acquire(&API, "eve").cost(2)).is_allowed());
    denied();
    let usage = now(limiter.acquire(&QUEUE, "eve").hold()).into_receipt();
    assert!(!now(limiter.try_limit(&QUEUE, "eve")).is_allowed());
    now(usage.reset());
    assert!(now(limiter.try_limit(&QUEUE, "eve")).is_allowed());
}

/// Regression: a row cached under the quota of one tier was used for another tier with a different refill time.
#[test]
fn a_row_cached_under_another_tier_is_not_used() {
    let api = Policy::new("api", Quota::token_bucket(6, SECOND / 2)).tier("pro", Quota::token_bucket(200, SECOND / 2));
    let (limiter, _backend, clock) = remote_limiter();
    // Start in the middle of a second, so that the quotas are fully refilled at a whole second.
    clock.advance(SECOND / 2);
    let pro = || Subject::new("eve").tier("pro");
    now(limiter.acquire(&api, pro()).cost(200).hold()).into_receipt();
    assert!(!now(limiter.try_limit(&api, pro())).is_allowed());
    assert!(!now(limiter.try_limit(&api, "eve")).is_allowed());
    // Refilling 200 tokens takes about 17 seconds under the policy's quota, but half a second under the tier's quota.
    clock.advance(SECOND / 2);
    assert!(now(limiter.try_acquire(&api, "eve").cost(6)).is_allowed());
}

/// Regression: a charge under another tier had refilled the row at that tier's rate, but the cache still denied calls.
#[test]
fn spending_under_another_tier_updates_a_cached_row() {
    let api = Policy::new("api", Quota::token_bucket(6, 3 * SECOND)).tier("pro", Quota::token_bucket(200, 3 * SECOND));
    let (limiter, _backend, clock) = remote_limiter();
    drop(now(limiter.try_acquire(&api, "eve").cost(6)));
    assert!(!now(limiter.try_limit(&api, "eve")).is_allowed());
    clock.advance(3 * SECOND / 20);
    assert!(now(limiter.try_limit(&api, Subject::new("eve").tier("pro"))).is_allowed());
    assert!(now(limiter.try_acquire(&api, "eve").cost(5)).is_allowed());
}

/// The settlement changes the row's spent tokens but not its timestamp.
#[test]
fn a_higher_actual_cost_under_another_tier_updates_a_cached_row() {
    let api = Policy::new("api", Quota::token_bucket(6, SECOND)).tier("pro", Quota::token_bucket(200, SECOND));
    let (limiter, _backend, clock) = remote_limiter();
    let usage = now(limiter.acquire(&api, Subject::new("eve").tier("pro")).hold()).into_receipt();
    drop(now(limiter.try_acquire(&api, "eve").cost(5)));
    assert!(!now(limiter.try_limit(&api, "eve")).is_allowed());
    now(usage.settle(2));
    // Seven tokens are spent, one more than the capacity. One token is refilled every sixth of a second.
    clock.advance(SECOND / 6 + US);
    assert!(!now(limiter.try_limit(&api, "eve")).is_allowed());
    clock.advance(SECOND / 6 + US);
    assert!(now(limiter.try_limit(&api, "eve")).is_allowed());
}

/// Regression: the cache granted a reservation without charging it. The wait for the next window depends on the
/// backend's exact time, which the cache does not know.
#[test]
fn reservations_that_wait_for_the_next_window_reach_the_backend() {
    let policy = Policy::new("bulk", Quota::fixed_window(1, MS * 600).start(Duration::ZERO).unlimited_reservations());
    let (limiter, backend, clock) = remote_limiter();
    let ask = || {
        ready(async { limiter.acquire(&policy, "eve").cost(2).reserve_within(MS * 10).await }).map(|held| {
            let decided_by = held.decisions().get(0).map(|decision| decision.decided_by());
            drop(held.into_receipt());
            decided_by
        })
    };
    backend.set_travel_times(MS * 300, MS * 200);
    assert!(ask().is_err());
    backend.set_travel_times(Duration::ZERO, Duration::ZERO);
    clock.advance(MS * 95);
    assert_eq!(ask().unwrap(), Some(tollgate::policy::DecidedBy::Backend));
}

/// Regression: each manual block emptied the cache.
#[test]
fn a_block_does_not_empty_the_cache() {
    let (limiter, backend, _clock) = remote_limiter();
    drop(now(limiter.try_acquire(&API, "eve").cost(10)));
    now(limiter.block(Signal::ip(ip("192.0.2.7")), HOUR));
    now(limiter.unblock(Signal::key("bob")));
    backend.take_calls();
    assert!(!now(limiter.try_limit(&API, "eve")).is_allowed());
    assert_eq!(backend.take_calls(), 0);
}

#[test]
fn cached_retry_times_account_for_the_travel_time() {
    let policy = Policy::new("quick", Quota::token_bucket(10, 5 * SECOND));
    let (outbound, inbound) = (MS * 100, MS * 50);
    let (limiter, backend, clock) = remote_limiter();
    backend.set_travel_times(outbound, inbound);
    drop(now(limiter.try_acquire(&policy, "eve").cost(10)));
    let retry = now(limiter.try_limit(&policy, "eve")).retry_after().unwrap();
    assert_eq!(backend.take_calls(), 1);
    // The decision is 50 ms old, but the limiter does not know that.
    assert_eq!(retry, MS * 500);
    clock.advance(retry - outbound - inbound - US);
    assert!(!now(limiter.try_limit(&policy, "eve")).is_allowed());
    assert_eq!(backend.take_calls(), 0);
    // From now on, a token might be available, so the limiter asks the backend.
    clock.advance(US);
    backend.set_travel_times(Duration::ZERO, Duration::ZERO);
    assert!(!now(limiter.try_limit(&policy, "eve")).is_allowed());
    assert_eq!(backend.take_calls(), 1);
    clock.advance(outbound);
    assert!(now(limiter.try_limit(&policy, "eve")).is_allowed());
}
