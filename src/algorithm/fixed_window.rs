//! Fixed window: `rate` tokens are paid back at each boundary. `at` is the last boundary that has been counted.

use super::quota::Quota;
use super::{Micros, State};

/// The row as of `now`: every boundary crossed since `at` paid back.
pub(super) fn roll(quota: &Quota, state: &State, now: Micros) -> State {
    let (then, here) = (index(quota, state.at), index(quota, now));
    if here <= then {
        // The same window, or a clock that stepped back: `at` never does.
        return State { at: boundary(quota, then), ..*state };
    }
    State {
        spent: (state.spent - quota.rate() as f64 * (here - then) as f64).max(0.0),
        at: boundary(quota, here),
        ..*state
    }
}

/// The first instant from `now` on at which no more than `level` stands as spent.
pub(super) fn when(quota: &Quota, state: &State, now: Micros, level: f64) -> Option<Micros> {
    let debt = state.spent - level;
    if debt <= 0.0 {
        return Some(now);
    }
    // However many windows: a boundary beyond the last instant stands at the last instant.
    let windows = (debt / quota.rate() as f64).ceil() as u64;
    let instant = boundary(quota, index(quota, state.at).saturating_add(windows)).max(now);
    (instant < Micros::MAX).then_some(instant)
}

/// The number of the window in which `instant` lies; 0 is the one that began at the epoch or before it.
pub(super) fn index(quota: &Quota, instant: Micros) -> u64 {
    (instant.get() + quota.period_micros() - quota.start_micros()) / quota.period_micros()
}

/// Where window `index` begins. Window 0 may have begun before the epoch, which stands in for that.
pub(super) fn boundary(quota: &Quota, index: u64) -> Micros {
    instant(quota, index, 0)
}

/// The instant `offset` microseconds into window `index`.
pub(super) fn instant(quota: &Quota, index: u64, offset: u64) -> Micros {
    let period = u128::from(quota.period_micros());
    let later = u128::from(index) * period + u128::from(quota.start_micros()) + u128::from(offset);
    Micros::new(u64::try_from(later.saturating_sub(period)).unwrap_or(u64::MAX))
}

/// How far `instant` is into its window, in microseconds.
pub(super) fn offset(quota: &Quota, instant: Micros) -> u64 {
    (instant.get() + quota.period_micros() - quota.start_micros()) % quota.period_micros()
}

#[cfg(test)]
mod tests {
    use super::super::{DAY, HOUR, MINUTE};
    use super::*;
    use std::time::Duration;

    #[test]
    fn boundaries_lie_at_start_modulo_period() {
        let quota = Quota::fixed_window(10, DAY).start(25 * HOUR);
        let now = Micros::new(1_700_000_000_000_000);
        let begin = boundary(&quota, index(&quota, now));
        assert!(begin <= now && now < begin.plus(quota.period_micros()));
        assert_eq!(begin.get() % 86_400_000_000, 3_600_000_000);
        assert_eq!(begin.plus(offset(&quota, now)), now);
    }

    #[test]
    fn a_row_begins_where_its_window_does() {
        // A row from before `start` was said may begin anywhere.
        let quota = Quota::fixed_window(10, MINUTE).start(Duration::ZERO);
        let (begin, now) = (Micros::new(1_700_000_040_000_000), Micros::new(1_700_000_050_000_000));
        let row = State { spent: 3.0, at: Micros::new(1_700_000_045_000_000), carry: 0.0, stamp: quota.stamp() };
        assert_eq!(roll(&quota, &row, now), State { at: begin, ..row });
        assert_eq!(roll(&quota, &row, begin), State { at: begin, ..row }, "a clock that stepped back");
    }

    #[test]
    fn the_first_window_may_begin_before_the_epoch() {
        let quota = Quota::fixed_window(10, MINUTE).start(Duration::from_secs(45));
        assert_eq!(boundary(&quota, index(&quota, Micros::new(1))), Micros::EPOCH);
        assert_eq!(boundary(&quota, 1), Micros::new(45_000_000));
        assert_eq!(index(&quota, Micros::new(44_999_999)), 0);
        assert_eq!(index(&quota, Micros::new(45_000_000)), 1);
        assert_eq!((offset(&quota, Micros::EPOCH), offset(&quota, Micros::new(45_000_001))), (15_000_000, 1));
    }
}
