//! The block cache: what a denied key costs, and what is still asked.

use std::sync::Arc;
use std::time::Duration;

use tollgate::{Charge, HOUR, MINUTE, ManualClock, Policy, Quota, RateLimiter, Reason, SECOND, Signal, Subject};

use crate::app::{API, US, ip};
use crate::store::Store;

static QUEUE: Policy = Policy::new("queue", Quota::token_bucket(1, SECOND).max_reserved(3));

fn far() -> (RateLimiter, Arc<Store>, ManualClock) {
    let clock = ManualClock::new();
    let store = Store::far(&clock);
    (RateLimiter::new(Arc::clone(&store)), store, clock)
}

/// Also of a call that is still to be sent.
fn now<T, E: std::fmt::Debug>(future: impl std::future::IntoFuture<Output = Result<T, E>>) -> T {
    crate::support::now(future.into_future())
}

#[test]
fn a_denied_key_costs_one_question_in_each_time_after_which_it_may_come_back() {
    for quota in [Quota::token_bucket(10, MINUTE), Quota::fixed_window(10, MINUTE), Quota::sliding_window(10, MINUTE)] {
        let policy = Policy::new("hot", quota);
        let (limiter, store, clock) = far();
        now(limiter.acquire(&policy, "eve").cost(10).send());
        assert_eq!(store.asked(), 1);
        for _ in 0..50 {
            let denied = now(limiter.limit(&policy, "eve"));
            assert_eq!(store.asked(), 0, "{quota}: it was exhausted, which is known");
            assert_eq!((denied.reason(), denied.decided_by().as_str()), (Reason::QuotaExceeded, "block_cache"));
            let retry = denied.retry_after().unwrap();
            // Ten thousand tries in between, the last one a microsecond too early.
            for i in 1..=200 {
                clock.advance(retry / 200 * u32::from(i < 200));
                assert!(!now(limiter.limit(&policy, "eve")).is_allowed());
            }
            let left = now(limiter.limit(&policy, "eve")).retry_after().unwrap();
            clock.advance(left - US);
            assert_eq!(now(limiter.limit(&policy, "eve")).retry_after(), Some(US));
            assert_eq!(store.asked(), 0);
            clock.advance(US);
            // All that there is now is taken, in one question each.
            let mut questions = 0;
            while now(limiter.limit(&policy, "eve")).is_allowed() {
                questions += 1;
                assert_eq!(store.asked(), 1);
            }
            assert!(questions >= 1);
            // At the most the one that finds it empty.
            assert!(store.asked() <= 1);
        }
    }
}

#[test]
fn a_backend_in_this_process_and_a_cache_of_nothing_are_asked_each_time() {
    let clock = ManualClock::new();
    for (store, rows) in [(Store::near(&clock), 1000), (Store::far(&clock), 0)] {
        let limiter = RateLimiter::builder(Arc::clone(&store)).block_cache(rows).build();
        now(limiter.acquire(&API, "eve").cost(10).send());
        for _ in 0..10 {
            assert_eq!(now(limiter.limit(&API, "eve")).decided_by(), tollgate::DecidedBy::Backend);
        }
        assert_eq!(store.asked(), 11);
    }
}

#[test]
fn what_would_fit_is_asked_whatever_else_was_denied() {
    let (limiter, store, clock) = far();
    now(limiter.acquire(&API, "eve").cost(6).send());
    assert!(!now(limiter.acquire(&API, "eve").cost(5).send()).is_allowed());
    assert_eq!(store.asked(), 2);
    // Another of five is known to be denied, one of four is not.
    assert!(!now(limiter.acquire(&API, "eve").cost(5).send()).is_allowed());
    assert_eq!(store.asked(), 0);
    assert!(now(limiter.acquire(&API, "eve").cost(4).send()).is_allowed());
    assert_eq!(store.asked(), 1);
    // What costs nothing shows that nothing is left, and the time after which something is.
    assert_eq!(now(limiter.remaining(&API, "eve")), 0);
    clock.advance(6 * SECOND);
    assert_eq!(now(limiter.remaining(&API, "eve")), 1);
    // Other keys and policies are not this one.
    store.asked();
    assert!(now(limiter.limit(&API, "bob")).is_allowed());
    assert!(now(limiter.limit(&QUEUE, "eve")).is_allowed());
    assert_eq!(store.asked(), 2);
}

#[test]
fn a_turn_that_would_be_granted_is_asked_for() {
    let (limiter, store, _clock) = far();
    now(limiter.limit(&QUEUE, "eve"));
    assert!(!now(limiter.limit(&QUEUE, "eve")).is_allowed());
    assert_eq!(store.asked(), 1);
    for seconds in 1..=3 {
        assert_eq!(now(limiter.acquire(&QUEUE, "eve").reserve_within(3 * SECOND)).delay(), seconds * SECOND);
    }
    assert_eq!(store.asked(), 3);
    assert!(!now(limiter.acquire(&QUEUE, "eve").reserve()).is_allowed());
    assert!(!now(limiter.acquire(&QUEUE, "eve").reserve()).is_allowed());
    assert!(store.asked() <= 1);
}

#[test]
fn a_call_of_several_charges_is_denied_by_what_is_known_of_all_of_them() {
    let other = Policy::new("other", Quota::token_bucket(5, HOUR));
    let (limiter, store, _clock) = far();
    let charges = || [Charge::new(&API, "ada"), Charge::new(&other, "eve").cost(2)];
    now(limiter.acquire(&other, "eve").cost(4).send());
    store.asked();
    // Nothing is known of the first, so it is asked; then both are known.
    for questions in [1, 0, 0] {
        let decisions = now(limiter.limit_all(charges()));
        let reasons: Vec<_> = decisions.iter().map(|decision| decision.reason()).collect();
        assert_eq!(reasons, [Reason::RefusedElsewhere, Reason::QuotaExceeded]);
        assert_eq!((decisions.get(0).unwrap().remaining(), decisions.retry_after()), (10, Some(HOUR / 5)));
        assert_eq!(store.asked(), questions);
    }
    // Two charges on one row are the backend's to add up.
    let twice = || [Charge::new(&other, "eve"), Charge::new(&other, "eve")];
    for _ in 0..3 {
        assert!(!now(limiter.limit_all(twice())).is_allowed());
        assert_eq!(store.asked(), 1);
    }
}

#[test]
fn what_is_given_back_reset_or_changed_here_is_seen_at_once() {
    let (limiter, store, _clock) = far();
    let denied = || {
        assert!(!now(limiter.limit(&API, "eve")).is_allowed());
        store.asked();
        assert!(!now(limiter.limit(&API, "eve")).is_allowed());
        assert_eq!(store.asked(), 0, "known");
    };
    let usage = now(limiter.acquire(&API, "eve").cost(10).hold()).keep();
    denied();
    now(usage.settle(9));
    assert!(now(limiter.limit(&API, "eve")).is_allowed());
    denied();
    now(limiter.reset(&API, "eve"));
    let held = now(limiter.acquire(&API, "eve").cost(10).hold());
    denied();
    drop(held);
    assert!(now(limiter.acquire(&API, "eve").cost(10).send()).is_allowed());
    denied();
    now(limiter.set_quota(&API, Some(Quota::token_bucket(11, MINUTE))));
    assert!(now(limiter.limit(&API, "eve")).is_allowed());
    denied();
    now(limiter.set_quota(&API, None));
    now(limiter.set_key_quota(&API, "eve", Some(Quota::token_bucket(13, MINUTE))));
    assert!(now(limiter.acquire(&API, "eve").cost(2).send()).is_allowed());
    denied();
    let usage = now(limiter.acquire(&QUEUE, "eve").hold()).keep();
    assert!(!now(limiter.limit(&QUEUE, "eve")).is_allowed());
    now(usage.reset());
    assert!(now(limiter.limit(&QUEUE, "eve")).is_allowed());
}

/// A row that one tier's denial showed was taken for the other tier's, to which it is clear, or paid back, at another time.
#[test]
fn a_row_that_another_tier_saw_is_asked_for() {
    let api = Policy::new("api", Quota::token_bucket(6, MINUTE)).tier("pro", Quota::token_bucket(200, MINUTE));
    let (limiter, _store, clock) = far();
    let pro = || Subject::new("eve").tier("pro");
    now(limiter.acquire(&api, pro()).cost(200).hold()).keep();
    assert!(!now(limiter.limit(&api, pro())).is_allowed());
    assert!(!now(limiter.limit(&api, "eve")).is_allowed());
    // Of 6 a minute 200 would be paid back in half an hour; of 200 they are in a minute.
    clock.advance(MINUTE);
    assert!(now(limiter.acquire(&api, "eve").cost(6).send()).is_allowed());
}

/// It went on to deny: the spending of the other tier had paid the row back at its own pace.
#[test]
fn spending_under_another_tier_is_learnt_where_a_row_is_known() {
    let api = Policy::new("api", Quota::token_bucket(6, MINUTE)).tier("pro", Quota::token_bucket(200, MINUTE));
    let (limiter, _store, clock) = far();
    now(limiter.acquire(&api, "eve").cost(6).send());
    assert!(!now(limiter.limit(&api, "eve")).is_allowed());
    clock.advance(3 * SECOND);
    assert!(now(limiter.limit(&api, Subject::new("eve").tier("pro"))).is_allowed());
    assert!(now(limiter.acquire(&api, "eve").cost(5).send()).is_allowed());
}

/// The true cost of a charge under another tier is added to the row, which stays this tier's.
#[test]
fn a_higher_true_cost_under_another_tier_is_seen_at_once() {
    let api = Policy::new("api", Quota::token_bucket(6, MINUTE)).tier("pro", Quota::token_bucket(200, MINUTE));
    let (limiter, _store, clock) = far();
    let usage = now(limiter.acquire(&api, Subject::new("eve").tier("pro")).hold()).keep();
    now(limiter.acquire(&api, "eve").cost(5).send());
    assert!(!now(limiter.limit(&api, "eve")).is_allowed());
    now(usage.settle(2));
    // Ten seconds for the token that was missing, and ten for the one that came on top.
    clock.advance(10 * SECOND);
    assert!(!now(limiter.limit(&api, "eve")).is_allowed());
    clock.advance(10 * SECOND);
    assert!(now(limiter.limit(&api, "eve")).is_allowed());
}

/// Near the end of a window a turn through several is soon enough, at the start of the next it is not: by the latest
/// time that it could be, it was denied; and by the earliest, granted, without a charge.
#[test]
fn turns_that_come_and_go_are_asked_for() {
    let policy = Policy::new("bulk", Quota::fixed_window(1, MINUTE).start(Duration::ZERO).unlimited_reservations());
    let (limiter, store, clock) = far();
    // Two tokens take the next window's too.
    let ask = |seconds: u32| now(limiter.acquire(&policy, "eve").cost(2).reserve_within(seconds * SECOND));
    store.set_trip(30 * SECOND, 20 * SECOND);
    assert!(!ask(1).is_allowed());
    store.set_trip(Duration::ZERO, Duration::ZERO);
    clock.advance(9 * SECOND + SECOND / 2);
    let granted = ask(1);
    assert!(granted.is_allowed() && granted.decided_by() == tollgate::DecidedBy::Backend);
}

/// Each block emptied the cache: who has many keys blocked keeps it empty.
#[test]
fn a_block_leaves_what_is_known() {
    let (limiter, store, _clock) = far();
    now(limiter.acquire(&API, "eve").cost(10).send());
    now(limiter.block(Signal::ip(ip("192.0.2.7")), HOUR));
    now(limiter.unblock(Signal::key("bob")));
    store.asked();
    assert!(!now(limiter.limit(&API, "eve")).is_allowed());
    assert_eq!(store.asked(), 0);
}

#[test]
fn whoever_comes_back_when_they_are_told_is_not_too_early_and_hardly_too_late() {
    let (there, back) = (SECOND / 4, SECOND / 8);
    let (limiter, store, clock) = far();
    store.set_trip(there, back);
    now(limiter.acquire(&API, "eve").cost(10).send());
    let retry = now(limiter.limit(&API, "eve")).retry_after().unwrap();
    assert_eq!(store.asked(), 1);
    // It was decided an eighth of a second ago; as far as is known, it may have been just now.
    assert_eq!(retry, 6 * SECOND);
    clock.advance(retry - there - back - US);
    assert!(!now(limiter.limit(&API, "eve")).is_allowed());
    assert_eq!(store.asked(), 0);
    // From here on it may be there already.
    clock.advance(US);
    store.set_trip(Duration::ZERO, Duration::ZERO);
    assert!(!now(limiter.limit(&API, "eve")).is_allowed());
    assert_eq!(store.asked(), 1);
    clock.advance(there);
    assert!(now(limiter.limit(&API, "eve")).is_allowed());
}
