//! Tests of the lease arithmetic, including reports and retry times.

use super::*;
use crate::algorithm::{MINUTE, SECOND};

const NOW: Micros = Micros::new(1_700_000_000_000_000);

fn retry(quota: &Quota, state: &State, outstanding: &Outstanding, now: Micros, ask: Ask) -> Option<Duration> {
    match denied_by_leases(quota, state, outstanding, now, ask) {
        Verdict::Deny { retry } => retry,
        verdict => panic!("expected a denial, found {verdict:?}"),
    }
}

#[test]
fn the_retry_time_is_the_rest_of_the_lease_time_plus_the_refill_time() {
    // 50 tokens stay spent until the leases end in 4 seconds. A cost of 60 fits once 10 of them have been refilled.
    let quota = Quota::token_bucket(1, SECOND).capacity(100);
    let outstanding = Outstanding { since: NOW, turn: NOW + LEASE_LIFE, current: 50, last: 0 };
    let state = step(&quota, &State::default(), NOW, Ask::cost(50)).state;
    let leased = lease(&quota, &state, &outstanding, NOW, &[], 0);
    let of = |cost| retry(&quota, &leased.state, &leased.outstanding, NOW, Ask::cost(cost));
    assert_eq!((leased.life, of(60), of(51)), (4 * SECOND, Some(14 * SECOND), Some(5 * SECOND)));
    assert_eq!(of(101), None);
    let later = NOW + 3 * SECOND;
    let (state, outstanding) = settle_leases(&quota, &leased.state, &leased.outstanding, later);
    assert_eq!(retry(&quota, &state, &outstanding, later, Ask::cost(60)), Some(11 * SECOND));
}

#[test]
fn a_denied_charge_is_allowed_at_its_retry_time_and_no_earlier() {
    let quotas = [
        Quota::token_bucket(30, SECOND).capacity(90),
        Quota::fixed_window(40, SECOND).capacity(60).start(Duration::ZERO),
        Quota::sliding_window(50, 3 * SECOND).start(Duration::ZERO),
        Quota::token_bucket(100, MINUTE).capacity(20),
    ];
    for (i, quota) in quotas.iter().enumerate() {
        for round in 0..200u64 {
            let begin = NOW.plus(round * 77_777);
            let first = lease(quota, &State::default(), &Outstanding::default(), begin, &[], 1 + round % 15);
            let middle = begin.plus(round * 13_331 % 2_500_000);
            let second = lease(quota, &first.state, &first.outstanding, middle, &[], 2 + round % 9);
            let now = middle.plus(round * 17_911 % 1_500_000);
            let (state, outstanding) = settle_leases(quota, &second.state, &second.outstanding, now);
            let cost = quota.get_capacity() - round % 10;
            let decide = |at: Micros| {
                let (state, _) = settle_leases(quota, &state, &outstanding, at);
                step(quota, &state, at, Ask::cost(cost))
            };
            let denied = with_leases(quota, decide(now), &outstanding, Ask::cost(cost));
            let Verdict::Deny { retry: Some(retry) } = denied.verdict else { continue };
            let context = format!("quota {i}, round {round}, cost {cost}, {retry:?}");
            assert!(decide(now + retry).is_allowed(), "{context}: denied at the retry time");
            assert!(!decide(now + (retry - Duration::from_micros(1))).is_allowed(), "{context}: allowed too early");
        }
    }
}

#[test]
fn a_report_for_an_ended_generation_or_an_earlier_row_is_ignored() {
    let quota = Quota::token_bucket(1, MINUTE).capacity(100);
    let first = lease(&quota, &State::default(), &Outstanding::default(), NOW, &[], 20);
    let report = LeaseReport { id: first.id, spent: 5, unused: 15 };
    let later = |after: Duration| lease(&quota, &first.state, &first.outstanding, NOW + after, &[report], 0);
    assert_eq!((later(3 * SECOND).state.spent, later(3 * SECOND).outstanding.tokens()), (5.0, 0));
    assert_eq!((later(4 * SECOND).state.spent, later(4 * SECOND).outstanding.tokens()), (20.0, 0));

    let reset = lease(&quota, &State::default(), &Outstanding::default(), NOW + SECOND, &[], 20);
    let stale = lease(&quota, &reset.state, &reset.outstanding, NOW + SECOND, &[report], 0);
    assert_eq!((stale.state.spent, stale.outstanding.tokens()), (20.0, 20));
}

#[test]
fn a_lease_takes_at_most_half_of_the_tokens_that_can_be_leased() {
    let quota = Quota::token_bucket(1, MINUTE).capacity(100);
    let granted = |spent: u64, tokens| {
        let state = step(&quota, &State::default(), NOW, Ask::cost(spent)).state;
        lease(&quota, &state, &Outstanding::default(), NOW, &[], tokens).tokens
    };
    assert_eq!([granted(0, 15), granted(0, 80), granted(60, 80), granted(97, 80)], [15, 25, 20, 0]);
    let first = lease(&quota, &State::default(), &Outstanding::default(), NOW, &[], 45);
    assert_eq!(lease(&quota, &first.state, &first.outstanding, NOW, &[], 45).tokens, 12);
}

#[test]
fn leases_end_within_two_periods_even_if_the_clock_is_set_back() {
    let quota = Quota::token_bucket(1, MINUTE).capacity(100);
    let first = lease(&quota, &State::default(), &Outstanding::default(), NOW, &[], 20);
    let earlier = Micros::new(NOW.get() - 3_600_000_000);
    let (_, outstanding) = settle_leases(&quota, &first.state, &first.outstanding, earlier);
    assert_eq!(outstanding.turn, earlier + LEASE_LIFE);
}

/// Before the second report is applied, the row is dropped because it is too far ahead of the clock.
#[test]
fn reports_after_the_clock_was_set_back_do_not_make_spent_tokens_negative() {
    let now = NOW;
    let quota = |capacity| Quota::token_bucket(1, Duration::from_micros(1)).capacity(capacity);
    let first =
        lease(&quota(100), &State::default(), &Outstanding::default(), now + Duration::from_micros(13), &[], 15);
    let report = LeaseReport { id: first.id, spent: 3, unused: 3 };
    let other = lease(&quota(10), &first.state, &first.outstanding, now, &[], 0);
    let id = LeaseId { turn: other.outstanding.turn, ..first.id };
    let report = LeaseReport { id, ..report };
    let answer = lease(&quota(10), &other.state, &other.outstanding, now, &[report, report], 0);
    assert_eq!((answer.state.spent, answer.outstanding.tokens()), (3.0, 3));
}

#[test]
fn a_report_counts_only_for_its_own_row_and_generation() {
    let quota = Quota::token_bucket(1, MINUTE).capacity(100);
    let turn = NOW + LEASE_LIFE;
    let outstanding = Outstanding { since: NOW, turn, current: 8, last: 6 };
    let state = step(&quota, &State::default(), NOW, Ask::cost(20)).state;
    let left = |since: Micros, turn: Micros| {
        let report = LeaseReport { id: LeaseId { since, turn }, spent: 1, unused: 2 };
        let answer = lease(&quota, &state, &outstanding, NOW, &[report], 0);
        (answer.outstanding.current, answer.outstanding.last, answer.state.spent)
    };
    let earlier = |duration: Duration| Micros::new(turn.get() - duration.as_micros() as u64);
    assert_eq!(left(NOW, turn), (5, 6, 18.0));
    assert_eq!(left(NOW, earlier(LEASE_LIFE)), (8, 3, 18.0));
    assert_eq!(left(NOW, earlier(2 * LEASE_LIFE)), (8, 6, 20.0));
    assert_eq!(left(Micros::new(NOW.get() - 1), turn), (8, 6, 20.0));
}

#[test]
fn a_lease_has_at_least_two_tokens_and_identifies_its_row() {
    let quota = Quota::token_bucket(1, MINUTE).capacity(100);
    let ask = |tokens| lease(&quota, &State::default(), &Outstanding::default(), NOW, &[], tokens);
    let id = LeaseId { since: NOW, turn: NOW + LEASE_LIFE };
    assert_eq!((ask(2).tokens, ask(2).id, ask(2).outstanding.current), (2, id, 2));
    for tokens in [0, 1] {
        let none = ask(tokens);
        assert_eq!((none.tokens, none.id, none.state), (0, LeaseId::default(), State::default()));
        assert_eq!(none.outstanding, Outstanding::default());
    }
}

#[test]
fn the_expiry_is_recomputed_only_for_rows_with_leases() {
    let quota = Quota::token_bucket(1, SECOND).capacity(100);
    let state = step(&quota, &State::default(), NOW, Ask::cost(20)).state;
    let unknown = State { clear: Micros::EPOCH, ..state };
    let outstanding = Outstanding { since: NOW, turn: NOW + LEASE_LIFE, current: 5, last: 0 };
    assert_eq!(lease(&quota, &unknown, &outstanding, NOW, &[], 0).state, state);
    assert_eq!(lease(&quota, &unknown, &Outstanding::default(), NOW, &[], 0).state, unknown);
    // A row written under another quota stays unchanged.
    let other = State { stamp: state.stamp ^ 1, clear: NOW + MINUTE, ..state };
    assert_eq!(lease(&quota, &other, &Outstanding::default(), NOW, &[], 0).state, other);
}

#[test]
fn a_row_above_the_floor_stays_unchanged() {
    let quota = Quota::token_bucket(1, SECOND).capacity(100);
    let state = step(&quota, &State::default(), NOW, Ask::cost(50)).state;
    let outstanding = Outstanding { since: NOW, turn: NOW + LEASE_LIFE, current: 20, last: 0 };
    let later = NOW + SECOND;
    assert_eq!(floored(&quota, &state, 20, later), state);
    let report = LeaseReport { id: LeaseId { since: NOW, turn: NOW + LEASE_LIFE }, spent: 5, unused: 0 };
    let answer = lease(&quota, &state, &outstanding, later, &[report], 0);
    assert_eq!((answer.state, answer.outstanding.tokens()), (state, 15));
}

#[test]
fn a_row_below_the_floor_is_raised_to_the_floor() {
    let bucket = Quota::token_bucket(10, SECOND).capacity(100);
    let state = step(&bucket, &State::default(), NOW, Ask::cost(25)).state;
    let raised = floored(&bucket, &state, 20, NOW + SECOND);
    assert_eq!((raised.spent, raised.at), (20.0, NOW + SECOND));
    assert_eq!(raised, step(&bucket, &State::default(), NOW + SECOND, Ask::cost(20)).state);

    // Raising the second window from 5 to 20 tokens moves 15 tokens out of the first window.
    let sliding = Quota::sliding_window(50, SECOND).start(Duration::ZERO);
    let state = step(&sliding, &State::default(), NOW, Ask::cost(30)).state;
    let state = step(&sliding, &state, NOW + SECOND, Ask::cost(5)).state;
    assert_eq!((state.spent, state.carry), (5.0, 30.0));
    let raised = floored(&sliding, &state, 20, NOW + SECOND);
    assert_eq!((raised.spent, raised.carry), (20.0, 15.0));
}

#[test]
fn raising_a_bucket_to_the_floor_sets_its_time_to_now() {
    let (quota, begin) = (Quota::token_bucket(10, MINUTE), Micros::new(1_000_000_000));
    // After seven seconds, one of the two spent tokens and a sixth of the other have been refilled.
    let now = begin + 7 * SECOND;
    let row = State { spent: 2.0, at: begin, stamp: quota.stamp(), ..State::default() };
    let rolled = floored(&quota, &row, 5, now);
    assert_eq!((rolled.spent, rolled.at, available(&quota, &rolled, now)), (5.0, now, 5));
}
