//! The fixed window, in which `rate` tokens are repaid at each boundary. In a row, `at` is the boundary up to which
//! tokens have been repaid.

use super::quota::Quota;
use super::{Micros, State};

pub(super) fn roll(quota: &Quota, state: &State, now: Micros) -> State {
    let (row_window, window) = (index(quota, state.at), index(quota, now));
    if window <= row_window {
        // `at` never moves back, not even to the start of its window. Otherwise, tokens that were repaid under another
        // quota would be repaid again.
        return *state;
    }
    State {
        spent: (state.spent - quota.rate() as f64 * (window - row_window) as f64).max(0.0),
        at: boundary(quota, window),
        ..*state
    }
}

pub(super) fn when(quota: &Quota, state: &State, now: Micros, level: f64) -> Option<Micros> {
    let debt = state.spent - level;
    if debt <= 0.0 {
        return Some(now);
    }
    let windows = (debt / quota.rate() as f64).ceil();
    if windows * quota.period_micros() as f64 > Micros::MAX.get() as f64 {
        return None;
    }
    let instant = boundary(quota, index(quota, state.at) + windows as u64).max(now);
    (instant < Micros::MAX).then_some(instant)
}

/// Returns the instant at which the row expires: a whole number of windows after `at`, rounded up to a whole second.
/// If `at` is not a boundary, the row is fully repaid somewhat earlier.
pub(super) fn clear(quota: &Quota, state: &State) -> Micros {
    let micros = (state.spent / quota.rate() as f64).ceil() * quota.period_micros() as f64;
    state.at.plus(micros as u64).to_whole_second()
}

/// Returns the number of the window that contains `instant`. Window 0 begins before the epoch.
pub(super) fn index(quota: &Quota, instant: Micros) -> u64 {
    (instant.get() + quota.period_micros() - quota.start_micros()) / quota.period_micros()
}

/// Returns the start of window `index`, or the epoch if the window starts earlier.
pub(super) fn boundary(quota: &Quota, index: u64) -> Micros {
    instant(quota, index, 0)
}

pub(super) fn instant(quota: &Quota, index: u64, offset: u64) -> Micros {
    let period = u128::from(quota.period_micros());
    let later = u128::from(index) * period + u128::from(quota.start_micros()) + u128::from(offset);
    Micros::new(u64::try_from(later.saturating_sub(period)).unwrap_or(u64::MAX))
}

pub(super) fn offset(quota: &Quota, instant: Micros) -> u64 {
    (instant.get() + quota.period_micros() - quota.start_micros()) % quota.period_micros()
}

#[cfg(test)]
mod tests {
    use super::super::{DAY, HOUR, MINUTE};
    use super::*;
    use std::time::Duration;

    #[test]
    fn boundaries_match_the_start_modulo_the_period() {
        let quota = Quota::fixed_window(10, DAY).start(25 * HOUR);
        let now = Micros::new(1_700_000_000_000_000);
        let begin = boundary(&quota, index(&quota, now));
        assert!(begin <= now && now < begin.plus(quota.period_micros()));
        assert_eq!(begin.get() % 86_400_000_000, 3_600_000_000);
        assert_eq!(begin.plus(offset(&quota, now)), now);
    }

    #[test]
    fn rolling_never_moves_a_row_back() {
        let quota = Quota::fixed_window(10, MINUTE).start(Duration::ZERO);
        let (begin, now) = (Micros::new(1_700_000_040_000_000), Micros::new(1_700_000_050_000_000));
        let row =
            State { spent: 13.0, at: Micros::new(1_700_000_045_000_000), stamp: quota.stamp(), ..State::default() };
        assert_eq!(roll(&quota, &row, now), row);
        assert_eq!(roll(&quota, &row, begin), row, "a clock that stepped back");
        let next = begin.plus(60_000_000);
        assert_eq!(roll(&quota, &row, next), State { spent: 3.0, at: next, ..row });
        assert_eq!(when(&quota, &row, now, 3.0), Some(next));
    }

    #[test]
    fn a_debt_that_outlasts_the_last_instant_is_never_repaid() {
        // `Micros` can represent the third boundary, but not a wait of three centuries.
        let second = Duration::from_secs(1);
        let owed = |quota: &Quota, spent: f64| State { spent, stamp: quota.stamp(), ..State::default() };
        let century = Quota::fixed_window(1, Quota::MAX_PERIOD).start(second);
        assert_eq!(when(&century, &owed(&century, 3.0), Micros::EPOCH, 0.0), None);
        let two = Micros::new(century.period_micros() + 1_000_000);
        assert_eq!(when(&century, &owed(&century, 2.0), Micros::EPOCH, 0.0), Some(two));
        // The last instant is 2^53 - 1 = 6361 * 1,416,003,655,831 microseconds after the epoch.
        let quota = Quota::fixed_window(1, Duration::from_micros(6361)).start(Duration::from_micros(1));
        let last = Micros::new(Micros::MAX.get() - 6360);
        assert_eq!(when(&quota, &owed(&quota, 1_416_003_655_831.0), Micros::EPOCH, 0.0), Some(last));
        assert_eq!(when(&quota, &owed(&quota, 1_416_003_655_832.0), Micros::EPOCH, 0.0), None);
    }

    #[test]
    fn the_first_window_can_begin_before_the_epoch() {
        let quota = Quota::fixed_window(10, MINUTE).start(Duration::from_secs(45));
        assert_eq!(boundary(&quota, index(&quota, Micros::new(1))), Micros::EPOCH);
        assert_eq!(boundary(&quota, 1), Micros::new(45_000_000));
        assert_eq!(index(&quota, Micros::new(44_999_999)), 0);
        assert_eq!(index(&quota, Micros::new(45_000_000)), 1);
        assert_eq!((offset(&quota, Micros::EPOCH), offset(&quota, Micros::new(45_000_001))), (15_000_000, 1));
    }
}
