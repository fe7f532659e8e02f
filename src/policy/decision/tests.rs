//! Tests of decisions and their messages.

use super::super::decisions::Decisions;
use super::*;
use crate::algorithm::{Ask, MINUTE, step};

const NOW: Micros = Micros::new(1_700_000_000_000_000);

fn of(name: &'static str, quota: Quota, cost: u64) -> ChargedQuota {
    let (policy, key) = (PolicyName::new(name), Digest::from_bits(0));
    ChargedQuota { policy, row_key: key, quota, cost, window: 0, part: Part::WHOLE }
}

fn decide(name: &'static str, quota: Quota, state: &State, cost: u64) -> Decision {
    Decision::new(of(name, quota, cost), step(&quota, state, NOW, Ask::cost(cost)), true)
}

#[test]
fn retry_after_is_the_longest_wait() {
    let empty = State { spent: 10.0, at: NOW, stamp: Quota::token_bucket(10, MINUTE).stamp(), ..State::default() };
    let short = decide("short", Quota::token_bucket(10, MINUTE), &empty, 1);
    let long = decide("long", Quota::token_bucket(10, MINUTE), &empty, 3);
    let fits = decide("fits", Quota::token_bucket(10, MINUTE), &State::default(), 1);
    let decisions: Decisions = [short, long, fits].into_iter().collect();
    assert_eq!(decisions.retry_after(), Some(Duration::from_secs(18)));
    let denied = decisions.into_result().unwrap_err();
    assert_eq!(denied.to_string(), "rate limit exceeded: \"short\", \"long\"; retry after 18s");
}

#[test]
fn a_cost_that_never_fits_has_no_retry_after() {
    let denied = decide("api", Quota::token_bucket(10, MINUTE), &State::default(), 11).into_result().unwrap_err();
    assert_eq!(denied.retry_after(), None);
    assert_eq!(
        denied.to_string(),
        "rate limit exceeded: \"api\" cannot grant 11 tokens at once (10 at most); retrying will not help"
    );
}

#[test]
fn a_cost_that_needs_a_longer_wait_has_its_own_reason() {
    let quota = Quota::token_bucket(1, crate::algorithm::SECOND).max_reserved(100);
    let ask = Ask::cost(50).wait_up_to(crate::algorithm::SECOND);
    let step = step(&quota, &State::default(), NOW, ask);
    let decision = Decision::new(of("api", quota, 50), step, true);
    assert_eq!(decision.reason(), Reason::WaitTooLong);
    assert_eq!(
        decision.into_result().unwrap_err().to_string(),
        "rate limit exceeded: \"api\" can grant 50 tokens only after a wait (at most 1 without waiting): call \
         `reserve()`, or allow a longer wait with `wait_up_to()`; retrying will not help"
    );
}

#[test]
fn a_charge_that_fits_only_after_the_last_instant_exceeds_its_quota() {
    // The debt of four tokens would be repaid in 2423, but the last representable instant is in 2255.
    let quota = Quota::token_bucket(1, Quota::MAX_PERIOD);
    let state = State { spent: 4.0, at: NOW, stamp: quota.stamp(), ..State::default() };
    let decision = decide("century", quota, &state, 1);
    assert_eq!((decision.reason(), decision.retry_after()), (Reason::QuotaExceeded, None));
    assert_eq!(
        decision.into_result().unwrap_err().to_string(),
        "rate limit exceeded: \"century\"; retrying will not help"
    );
}

#[test]
fn reasons_distinguish_spent_quotas_long_waits_and_large_costs() {
    let quota = Quota::token_bucket(1, Quota::MAX_PERIOD).max_reserved(1);
    let row = |spent: f64| State { spent, at: NOW, stamp: quota.stamp(), ..State::default() };
    let minute = Ask::cost(1).wait_up_to(MINUTE);
    for (spent, ask, reason) in [
        (0.0, Ask::cost(1), Reason::WithinQuota),
        (1.0, Ask::cost(1).reserve(), Reason::Reserved),
        (1.0, Ask::cost(1), Reason::QuotaExceeded),
        (1.5, Ask::cost(1), Reason::QuotaExceeded),
        (1.0, minute, Reason::QuotaExceeded),
        (4.0, Ask::cost(1), Reason::QuotaExceeded),
        (0.0, minute.for_cost(2), Reason::WaitTooLong),
        (0.0, Ask::cost(2), Reason::WaitTooLong),
        (0.0, Ask::cost(3), Reason::CostTooLarge),
    ] {
        let decided = step(&quota, &row(spent), NOW, ask);
        let decision = Decision::new(of("api", quota, ask.tokens()), decided, true);
        assert_eq!(decision.reason(), reason, "{spent} spent, {ask:?}");
    }
}

#[test]
fn the_window_of_a_reservation_begins_at_its_due_time() {
    // The reservation is due in five seconds, and the next token is refilled ten seconds after that.
    let quota = Quota::token_bucket(1, 10 * crate::algorithm::SECOND).max_reserved(5);
    let spent = State { spent: 1.0, at: NOW, stamp: quota.stamp(), ..State::default() };
    let step = step(&quota, &spent, NOW + 5 * crate::algorithm::SECOND, Ask::cost(1).reserve());
    let decision = Decision::new(of("api", quota, 1), step, true);
    assert_eq!(decision.delay(), 5 * crate::algorithm::SECOND);
    assert_eq!((decision.remaining(), decision.window()), (0, 10 * crate::algorithm::SECOND));
}

#[test]
fn the_window_of_a_bucket_is_the_time_to_refill_as_many_tokens_as_remain() {
    let quota = Quota::token_bucket(10, MINUTE);
    let decision = decide("api", quota, &State::default(), 1);
    assert_eq!(
        (decision.remaining(), decision.window(), decision.reset()),
        (9, 54 * crate::algorithm::SECOND, 6 * crate::algorithm::SECOND)
    );
    let last = decide("api", quota, &State { spent: 9.0, at: NOW, stamp: quota.stamp(), ..State::default() }, 1);
    assert_eq!((last.remaining(), last.window(), last.reset()), (0, 6 * crate::algorithm::SECOND, MINUTE));
}
