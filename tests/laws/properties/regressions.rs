//! Minimal test cases for bugs that the property tests found.

use std::time::Duration;

use tollgate::algorithm::{Ask, ChargeRecord, Micros, State, Verdict, settle, step};
use tollgate::{DAY, Quota, SECOND};

use super::decisions::check_promise;

const NOW: Micros = Micros::new(1_700_000_000_000_000);

fn charge(quota: &Quota, state: &State, now: Micros, ask: Ask) -> (State, ChargeRecord) {
    let step = step(quota, state, now, ask);
    (step.state, ChargeRecord::new(ask.tokens(), &step).expect("expected a granted charge"))
}

fn check_retry_time(quota: &Quota, state: &State, now: Micros, ask: Ask) {
    let answer = step(quota, state, now, ask);
    assert!(matches!(answer.verdict, Verdict::Deny { retry: Some(_) }), "{answer:?}");
    check_promise(quota, state, &ask, &answer).expect("the retry time is too early or too late");
}

/// Regression: a wait of eighty years exceeded the precision of an `f64`, so the computed wait was a microsecond too
/// short.
#[test]
fn a_wait_of_eighty_years_is_long_enough() {
    let quota = Quota::token_bucket(43, Duration::from_micros(3_000_000_019)).capacity(46_442_962);
    let (full, _) = charge(&quota, &State::default(), NOW, Ask::cost(46_442_962));
    check_retry_time(&quota, &full, NOW, Ask::cost(36_390_229));
}

#[test]
fn the_wait_for_a_full_refill_is_exact_to_the_microsecond() {
    let quota = Quota::token_bucket(999_999_937, Duration::from_micros(986_615_360));
    let (full, _) = charge(&quota, &State::default(), NOW, Ask::cost(999_999_937));
    check_retry_time(&quota, &full, NOW, Ask::cost(999_999_937));
}

/// With these numbers, rounding makes the estimated wait a microsecond too short or too long.
#[test]
fn an_estimated_wait_is_corrected_to_the_exact_microsecond() {
    for (rate, micros, cost) in [(2553, 8_281_373_502_938, 1427), (226_467, 463_946_976_623, 138_699)] {
        let quota = Quota::token_bucket(rate, Duration::from_micros(micros));
        let (full, _) = charge(&quota, &State::default(), NOW, Ask::cost(rate));
        check_retry_time(&quota, &full, NOW, Ask::cost(cost));
    }
    for (limit, micros, cost) in [(286_515, 481_659_182_018, 254_651), (149_106, 7_197_607_269_736, 31_479)] {
        let quota = Quota::sliding_window(limit, Duration::from_micros(micros));
        let begin = Micros::new(NOW.get() / micros * micros);
        let (full, _) = charge(&quota, &State::default(), begin, Ask::cost(limit));
        check_retry_time(&quota, &full, begin + Duration::from_micros(micros), Ask::cost(cost));
    }
}

/// Regression: at the start of a window, rounding made the weighted count exceed the count of the previous window, so
/// the call was denied with a retry time of 0.
#[test]
fn the_previous_window_counts_at_most_its_own_tokens() {
    let quota = Quota::sliding_window(999_999_937, DAY);
    let begin = Micros::new(19_675 * 86_400_000_000);
    let (full, _) = charge(&quota, &State::default(), Micros::new(begin.get() - 1), Ask::cost(999_999_937));
    assert_eq!(step(&quota, &full, begin, Ask::cost(0)).verdict, Verdict::Allow);
}

/// Regression: the window that contains `Micros::MAX` was cut off at that instant, so the call was denied with a retry
/// time of 0.
#[test]
fn the_last_window_is_as_long_as_the_others() {
    let quota = Quota::sliding_window(10, DAY);
    let begin = Micros::new(Micros::MAX.get() / 86_400_000_000 * 86_400_000_000);
    let (full, _) = charge(&quota, &State::default(), Micros::new(begin.get() - 1), Ask::cost(10));
    check_retry_time(&quota, &full, begin, Ask::cost(1));
}

/// Regression: with unlimited reservations, a row grew beyond the integers that an `f64` represents exactly, so tokens
/// were granted without a charge.
#[test]
fn unlimited_reservations_are_all_counted() {
    let period = Duration::from_micros(999_999_999_999_998);
    let quota = Quota::token_bucket(Quota::MAX_TOKENS, period).unlimited_reservations();
    let (empty, receipt) = charge(&quota, &State::default(), Micros::EPOCH, Ask::cost(0));
    let mut state = settle(&quota, &empty, &receipt, Micros::EPOCH, u64::MAX);
    for micros in 0..100 {
        let now = Micros::new(999_999_999_999_898 + micros);
        let step = step(&quota, &state, now, Ask::cost(1).reserve());
        if step.is_allowed() {
            assert_eq!(step.state.spent - state.spent, 1.0);
            state = step.state;
        }
    }
    assert!(state.spent < 9_007_199_254_740_992.0);
}

/// Regression: after the clock stepped back, a refund returned more of the charge than was still outstanding.
#[test]
fn a_refund_after_the_clock_steps_back_is_at_most_the_outstanding_part_of_the_charge() {
    let quota = Quota::fixed_window(3, 5 * SECOND).start(Duration::ZERO).capacity(6);
    let (state, receipt) = charge(&quota, &State::default(), NOW, Ask::cost(6));
    let later = NOW + 10 * SECOND;
    let (state, _) = charge(&quota, &state, later, Ask::cost(6));
    assert_eq!(settle(&quota, &state, &receipt, NOW + 5 * SECOND, 0).spent, 6.0);

    let quota = Quota::sliding_window(10, 10 * SECOND);
    let (state, receipt) = charge(&quota, &State::default(), NOW, Ask::cost(8));
    let (state, _) = charge(&quota, &state, later, Ask::cost(2));
    let settled = settle(&quota, &state, &receipt, NOW, 0);
    assert_eq!((settled.spent, settled.carry), (2.0, 0.0));
}
