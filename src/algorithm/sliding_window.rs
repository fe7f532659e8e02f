//! The sliding window. Its total is the count of the current window plus the weighted count of the previous window. The
//! weight is the fraction of the previous window that lies within the last period.
//!
//! In a row, `spent` is the count of the current window, `at` is the start of the current window, and `carry` is the
//! count of the previous window.

use super::fixed_window::{boundary, index, instant, offset};
use super::quota::Quota;
use super::{Micros, State};

pub(super) fn roll(quota: &Quota, state: &State, now: Micros) -> State {
    let (row_window, window) = (index(quota, state.at), index(quota, now));
    let at = boundary(quota, row_window.max(window));
    match window.saturating_sub(row_window) {
        0 => State { at, ..*state },
        1 => State { spent: 0.0, carry: state.spent, at, ..*state },
        _ => State { spent: 0.0, carry: 0.0, at, ..*state },
    }
}

/// Returns whether the row begins at a boundary of this quota. If not, another quota wrote the row.
pub(super) fn aligned(quota: &Quota, state: &State) -> bool {
    boundary(quota, index(quota, state.at)) == state.at
}

pub(super) fn spent(quota: &Quota, state: &State, now: Micros) -> f64 {
    state.spent + weighted(quota, state.carry, elapsed(quota, state, now))
}

pub(super) fn within(quota: &Quota, state: &State, now: Micros, level: f64) -> bool {
    weighted(quota, state.carry, elapsed(quota, state, now)) <= level - state.spent
}

pub(super) fn when(quota: &Quota, state: &State, now: Micros, level: f64) -> Option<Micros> {
    let window = index(quota, state.at);
    let rest = level - state.spent;
    let then = if rest >= 0.0 {
        if state.carry <= rest {
            return Some(now);
        }
        // The instant is later in this window, when the previous window has less weight.
        instant(quota, window, elapsed_until(quota, state.carry, rest))
    } else {
        // The instant is in the next window, where the current window counts as the previous one.
        instant(quota, window + 1, elapsed_until(quota, state.spent, level))
    };
    let then = then.max(now);
    (then < Micros::MAX).then_some(then)
}

/// Removes up to `tokens` spent tokens from the row: first from the current window, whose tokens count for longer, and
/// then from the previous window at its current weight.
pub(super) fn credited(quota: &Quota, state: &State, now: Micros, tokens: f64) -> State {
    let rest = (tokens - state.spent).max(0.0);
    let weight = (quota.period_micros() - elapsed(quota, state, now)) as f64;
    let earlier = (rest * quota.period_micros() as f64 / weight).floor();
    State { spent: (state.spent - tokens).max(0.0), carry: (state.carry - earlier).max(0.0), ..*state }
}

/// Returns the number of microseconds since the start of the window, or 0 if the row is ahead of the clock.
fn elapsed(quota: &Quota, state: &State, now: Micros) -> u64 {
    if now < state.at { 0 } else { offset(quota, now) }
}

fn weighted(quota: &Quota, count: f64, elapsed: u64) -> f64 {
    // The result is rounded twice, so at the start of a window it could exceed `count`.
    (count * (quota.period_micros() - elapsed) as f64 / quota.period_micros() as f64).min(count)
}

/// Returns the number of microseconds after which the weighted `count` of the previous window is at most `level`.
fn elapsed_until(quota: &Quota, count: f64, level: f64) -> u64 {
    if count <= level {
        return 0;
    }
    let period = quota.period_micros();
    let mut elapsed = ((count - level) * period as f64 / count).ceil().max(1.0).min(period as f64) as u64;
    // The estimate is rounded twice, so it is adjusted to the exact microsecond. `count` has its full weight at the
    // start of the period and none at the end. The result is therefore between 1 and the period.
    for _ in 0..4 {
        if weighted(quota, count, elapsed) > level {
            elapsed += 1;
        } else if weighted(quota, count, elapsed - 1) <= level {
            elapsed -= 1;
        } else {
            break;
        }
    }
    elapsed
}

#[cfg(test)]
mod tests {
    use super::super::{Ask, Verdict, step};
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_full_window_still_denies_calls_after_it_ends() {
        // All 10 tokens are spent at the start of a window. The next call succeeds after a tenth of the next window.
        let quota = Quota::sliding_window(10, Duration::from_secs(10));
        let begin = Micros::new(1_700_000_000_000_000);
        let full = step(&quota, &State::default(), begin, Ask::cost(10)).state;
        let denied = step(&quota, &full, begin.plus(9_999_000), Ask::cost(1));
        assert_eq!(denied.verdict, Verdict::Deny { retry: Some(Duration::from_micros(1_001_000)) });
        assert!(!step(&quota, &full, begin.plus(10_999_999), Ask::cost(1)).is_allowed());
        assert!(step(&quota, &full, begin.plus(11_000_000), Ask::cost(1)).is_allowed());
    }

    const QUOTA: Quota = Quota::sliding_window(10, super::super::MINUTE);
    const BEGIN: Micros = Micros::new(1_700_000_040_000_000);

    fn row(spent: f64, carry: f64) -> State {
        State { spent, at: BEGIN, carry, stamp: QUOTA.stamp(), ..State::default() }
    }

    #[test]
    fn the_previous_window_is_weighted_by_its_overlap_with_the_last_period() {
        for (seconds, expected) in [(0, 10.0), (15, 8.0), (30, 6.0), (45, 4.0), (60, 10.0)] {
            assert_eq!(spent(&QUOTA, &row(2.0, 8.0), BEGIN + Duration::from_secs(seconds)), expected, "{seconds}");
        }
        let behind = Micros::new(BEGIN.get() - 30_000_000);
        assert_eq!(spent(&QUOTA, &row(2.0, 8.0), behind), 10.0);
    }

    #[test]
    fn a_window_becomes_the_previous_window_and_is_then_dropped() {
        let at = |seconds| roll(&QUOTA, &row(2.0, 8.0), BEGIN + Duration::from_secs(seconds));
        assert_eq!(at(59), row(2.0, 8.0));
        assert_eq!(at(60), State { at: BEGIN.plus(60_000_000), ..row(0.0, 2.0) });
        assert_eq!(at(120), State { at: BEGIN.plus(120_000_000), ..row(0.0, 0.0) });
        assert_eq!(roll(&QUOTA, &State { at: BEGIN.plus(5), ..row(2.0, 8.0) }, BEGIN.plus(7)), row(2.0, 8.0));
    }

    #[test]
    fn waits_are_exact_to_the_microsecond() {
        let when = |row: State, level| when(&QUOTA, &row, BEGIN, level).map(|at| at.micros_since(BEGIN));
        assert_eq!((when(row(2.0, 8.0), 10.0), when(row(2.0, 3.0), 9.0)), (Some(0), Some(0)));
        assert_eq!((when(row(2.0, 8.0), 6.0), when(row(2.0, 8.0), 2.0)), (Some(30_000_000), Some(60_000_000)));
        assert_eq!((when(row(8.0, 8.0), 6.0), when(row(8.0, 8.0), 0.0)), (Some(75_000_000), Some(120_000_000)));
        assert_eq!(when(row(3.0, 0.0), 2.0), Some(80_000_000));
    }
}
