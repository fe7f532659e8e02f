//! Tests of rows that were written under another quota.

use std::time::Duration;

use super::super::{
    DAY, HOUR, MINUTE, SECOND, Verdict, available, next_change, roll, spent, step, when as first_within,
};
use super::*;

const NOW: Micros = Micros::new(1_700_000_040_000_000);

fn charged(quota: &Quota, state: &State, now: Micros, cost: u64) -> State {
    let step = step(quota, state, now, Ask::cost(cost));
    assert!(step.is_allowed(), "{quota:?}: {step:?}");
    step.state
}

fn retry(quota: &Quota, state: &State, now: Micros, ask: Ask) -> Option<Duration> {
    match step(quota, state, now, ask).verdict {
        Verdict::Deny { retry } => retry,
        verdict => panic!("{verdict:?}"),
    }
}

#[test]
fn alternating_quotas_admit_no_more_than_the_larger_quota() {
    let quotas = [Quota::token_bucket(60, MINUTE), Quota::token_bucket(1000, MINUTE)];
    let (mut state, mut admitted) = (State::default(), 0);
    for second in 0..60 {
        let quota = &quotas[second as usize % 2];
        let now = NOW + second * SECOND;
        while step(quota, &state, now, Ask::cost(1)).is_allowed() {
            state = charged(quota, &state, now, 1);
            admitted += 1;
        }
    }
    assert!(admitted <= 2000 + 1000, "{admitted}");
    assert!(admitted >= 1900, "{admitted}");
}

#[test]
fn a_downgrade_denies_calls_for_no_longer_than_the_old_quota_would_take_to_repay_the_debt() {
    let millis = Duration::from_millis;
    for (old, new, first) in [
        (Quota::token_bucket(1000, MINUTE), Quota::token_bucket(60, MINUTE), millis(56_460)),
        (Quota::token_bucket(10_000, HOUR), Quota::token_bucket(9000, HOUR), millis(360_360)),
        (Quota::token_bucket(200, MINUTE), Quota::token_bucket(6, MINUTE), millis(58_500)),
    ] {
        let state = charged(&old, &State::default(), NOW, old.get_capacity());
        assert_eq!(state.clear, NOW + old.window());
        assert_eq!(retry(&new, &state, NOW, Ask::cost(1)), Some(first), "{old:?} -> {new:?}");
        assert_eq!(retry(&new, &state, NOW, Ask::cost(new.get_capacity())), Some(old.window()));
        let later = State { clear: state.clear + 30 * SECOND, ..state };
        assert!(retry(&new, &later, NOW, Ask::cost(1)) > Some(first));
        let denied = step(&new, &state, NOW + SECOND, Ask::cost(1));
        assert_eq!(denied.state, state);
        assert_eq!(denied.verdict, Verdict::Deny { retry: Some(first - SECOND) });
    }
}

#[test]
fn an_upgrade_takes_effect_immediately() {
    let (free, premium) = (Quota::token_bucket(6, MINUTE), Quota::token_bucket(200, MINUTE));
    let state = charged(&free, &State::default(), NOW, 6);
    assert_eq!(available(&premium, &state, NOW), 194);
    assert_eq!(charged(&premium, &state, NOW, 194).spent, 200.0);
}

#[test]
fn an_expired_row_counts_as_unspent() {
    for (old, new) in [
        (Quota::token_bucket(10, MINUTE), Quota::token_bucket(3, DAY)),
        (Quota::token_bucket(10, MINUTE), Quota::fixed_window(3, DAY)),
        (Quota::sliding_window(10, MINUTE), Quota::token_bucket(3, DAY)),
        (Quota::fixed_window(10, MINUTE), Quota::sliding_window(3, DAY)),
    ] {
        let state = charged(&old, &State::default(), NOW, 10);
        let before = step(&new, &state, state.clear.minus(1), Ask::cost(3));
        assert_eq!(before.verdict, Verdict::Deny { retry: Some(Duration::from_micros(1)) }, "{old:?} -> {new:?}");
        assert_eq!(charged(&new, &state, state.clear, 3).spent, 3.0, "{old:?} -> {new:?}");
    }
}

#[test]
fn counts_from_another_algorithm_are_kept_in_full_until_the_row_expires() {
    let bucket = Quota::token_bucket(10, MINUTE);
    let state = charged(&bucket, &State::default(), NOW, 8);
    let window = Quota::fixed_window(10, SECOND).start(Duration::ZERO);
    for seconds in [0, 1, 20, 47] {
        let now = NOW + seconds * SECOND;
        assert_eq!((available(&window, &state, now), roll(&window, &state, now).spent), (2, 8.0), "{seconds}");
        assert_eq!(first_within(&window, &state, now, 0.0), Some(state.clear));
    }
    assert_eq!(available(&window, &state, state.clear), 10);
    let sliding = Quota::sliding_window(10, MINUTE);
    let first = charged(&sliding, &State::default(), NOW, 4);
    let second = charged(&sliding, &first, NOW + MINUTE, 3);
    assert_eq!((second.spent, second.carry, second.clear), (3.0, 4.0, NOW + 3 * MINUTE));
    assert_eq!(roll(&bucket, &second, NOW + 2 * MINUTE).spent, 7.0);
    assert_eq!(roll(&Quota::sliding_window(10, HOUR), &second, NOW + 2 * MINUTE).spent, 7.0, "a different period");
    assert_eq!(next_change(&Quota::sliding_window(10, HOUR), &second, NOW + 2 * MINUTE), Some(second.clear));
}

#[test]
fn both_counts_carry_over_between_sliding_windows_with_the_same_period() {
    let (old, new) = (Quota::sliding_window(100, MINUTE), Quota::sliding_window(10, MINUTE));
    let first = charged(&old, &State::default(), NOW, 40);
    let row = charged(&old, &first, NOW + MINUTE, 5);
    let own = |row: State| State { stamp: new.stamp(), ..row };
    for seconds in [60, 90, 119, 120, 150, 179] {
        let now = NOW + seconds * SECOND;
        assert_eq!(roll(&new, &row, now), roll(&new, &own(row), now), "{seconds}");
        assert_eq!(first_within(&new, &row, now, 3.0), first_within(&new, &roll(&new, &own(row), now), now, 3.0));
    }
    let other = new.start(SECOND);
    assert_eq!(roll(&other, &row, NOW + 2 * MINUTE).spent, 45.0);
    let bucket = Quota::token_bucket(10, MINUTE);
    let given = State { spent: 1.0, at: NOW, carry: 8.0, stamp: bucket.stamp(), clear: NOW + MINUTE };
    for quota in [old, bucket.capacity(11), Quota::fixed_window(10, MINUTE)] {
        let rolled = roll(&quota, &given, NOW);
        assert_eq!((rolled.spent, rolled.carry), (1.0, 0.0), "{quota:?}");
    }
    let (window, larger) = (Quota::fixed_window(10, MINUTE), Quota::fixed_window(20, MINUTE));
    let given = State { carry: 8.0, ..charged(&window, &State::default(), NOW, 1) };
    assert_eq!(roll(&larger, &given, NOW), State { stamp: larger.stamp(), carry: 0.0, ..given });
}

#[test]
fn a_row_that_never_expires_is_not_repaid_at_the_old_rate() {
    let (old, new) = (Quota::token_bucket(10, MINUTE), Quota::token_bucket(5, MINUTE));
    let state = State { clear: Micros::MAX, ..charged(&old, &State::default(), NOW, 10) };
    assert_eq!(retry(&new, &state, NOW, Ask::cost(1)), Some(72 * SECOND));
    let window = Quota::fixed_window(5, MINUTE);
    assert_eq!(retry(&window, &state, NOW, Ask::cost(1)), None);
    assert_eq!(first_within(&window, &state, NOW, 0.0), None);
    let (old, slow) = (Quota::token_bucket(1000, MINUTE), Quota::token_bucket(1, 365 * DAY));
    let state = State { clear: Micros::MAX, ..charged(&old, &State::default(), NOW, 1000) };
    assert_eq!(spent(&slow, &roll(&slow, &state, NOW + 3650 * DAY), NOW + 3650 * DAY), 990.0);
    let longer = overrun(&state, 5);
    assert_eq!((longer.spent, longer.clear), (1005.0, Micros::MAX));
}

/// The foreign row does not change, but the wait for a reservation shrinks.
#[test]
fn a_reservation_with_a_wait_limit_can_be_granted_before_a_foreign_row_expires() {
    let (bucket, window) = (Quota::token_bucket(10, HOUR), Quota::fixed_window(10, MINUTE).start(Duration::ZERO));
    let window = window.unlimited_reservations();
    let state = charged(&bucket, &State::default(), NOW, 10);
    let (soon, first) = (Ask::cost(1).wait_up_to(10 * SECOND), 50 * SECOND);
    assert_eq!(retry(&window, &state, NOW, soon), Some(first));
    let granted = step(&window, &state, NOW + first, soon);
    assert_eq!(granted.verdict, Verdict::Reserve { wait: 10 * SECOND });
    assert_eq!(retry(&window, &state, NOW, Ask::cost(1)), Some(HOUR));

    let (window, bucket) = (Quota::fixed_window(10, MINUTE).start(Duration::ZERO), bucket.unlimited_reservations());
    let ahead = charged(&window, &State::default(), NOW + MINUTE, 10);
    let long = Ask::cost(1).wait_up_to(360 * SECOND + 10 * SECOND);
    assert_eq!(retry(&bucket, &ahead, NOW, long), Some(first));
}

#[test]
fn a_foreign_row_far_ahead_of_the_clock_is_dropped() {
    let (old, new) = (Quota::token_bucket(10, MINUTE), Quota::token_bucket(5, MINUTE));
    let ahead = charged(&old, &State::default(), NOW + DAY, 5);
    assert_eq!(roll(&new, &ahead, NOW).spent, 0.0);
    let near = charged(&old, &State::default(), NOW + MINUTE, 5);
    assert_eq!(roll(&new, &near, NOW).spent, 5.0);
}

#[test]
fn a_cost_of_0_does_not_change_a_foreign_row() {
    let (old, new) = (Quota::token_bucket(10, MINUTE), Quota::token_bucket(20, MINUTE));
    let state = charged(&old, &State::default(), NOW, 5);
    let step = step(&new, &state, NOW + SECOND, Ask::cost(0));
    assert_eq!((step.verdict, step.state), (Verdict::Allow, state));
}
