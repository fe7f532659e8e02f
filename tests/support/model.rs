//! A slow, simple limiter in exact integer arithmetic. It implements the algorithms from their definitions,
//! independently of the crate's code.
//!
//! A token consists of `period` *units*, so a bucket refills exactly `rate` units per microsecond, and all amounts are
//! integers. To find a retry time, the model searches for the first instant at which the call is granted.

use tollgate::Quota;
use tollgate::algorithm::{Algorithm, Ask, Micros};

/// The last representable instant. Due times and retry times must be before this instant.
const LAST: i128 = Micros::MAX.get() as i128;

/// The parameters of a quota.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Model {
    pub(crate) algorithm: Algorithm,
    pub(crate) rate: i128,
    pub(crate) period: i128,
    pub(crate) capacity: i128,
    /// The capacity plus the reservable tokens, or `None` if reservations are not allowed.
    pub(crate) ceiling: Option<i128>,
    pub(crate) start: i128,
}

/// The stored state of a key. Amounts are in units.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Row {
    pub(crate) spent: i128,
    /// For a sliding window, the units used in the previous window.
    pub(crate) before: i128,
    pub(crate) at: i128,
}

/// The model's verdict, with times in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Answer {
    Allow,
    Reserve(i128),
    Deny(Option<i128>),
}

impl Model {
    pub(crate) fn of(quota: &Quota) -> Model {
        let capacity = i128::from(quota.get_capacity());
        Model {
            algorithm: quota.algorithm(),
            rate: i128::from(quota.rate()),
            period: quota.period().as_micros() as i128,
            capacity,
            ceiling: match quota.get_max_reserved() {
                Some(0) => None,
                Some(tokens) => Some(capacity + i128::from(tokens)),
                // Even unlimited reservations are capped so that the total stays within the integers that an `f64`
                // represents exactly.
                None => Some((1 << 53) - 1 - i128::from(Quota::MAX_TOKENS)),
            },
            start: quota.get_start().map_or(0, |start| start.as_micros() as i128),
        }
    }

    pub(crate) fn units(&self, tokens: u64) -> i128 {
        i128::from(tokens) * self.period
    }

    pub(crate) fn answer(&self, row: &Row, now: i128, ask: &Ask) -> Answer {
        match self.granted(row, now, ask) {
            Some(0) => Answer::Allow,
            Some(wait) if now + wait < LAST => Answer::Reserve(wait),
            _ => Answer::Deny(self.first_granted(row, now, ask).map(|at| at - now)),
        }
    }

    /// Returns the row after charging `tokens` at `now`.
    pub(crate) fn charged(&self, row: &Row, now: i128, tokens: u64) -> Row {
        let row = self.rolled_to(row, now);
        Row { spent: row.spent + self.units(tokens), ..row }
    }

    pub(crate) fn level(&self, row: &Row, now: i128) -> i128 {
        let row = self.rolled_to(row, now);
        match self.algorithm {
            Algorithm::SlidingWindow => {
                let overlap = self.period - (now - self.begin(now));
                row.spent + row.before / self.period * overlap
            }
            _ => row.spent,
        }
    }

    /// Returns by how many units the row would exceed `level` tokens if `cost` were charged at `now`. The result is at
    /// most 0 if the charge fits.
    pub(crate) fn over(&self, row: &Row, now: i128, cost: i128, level: i128) -> i128 {
        self.level(row, now) + (cost - level) * self.period
    }

    /// Returns the number of window boundaries in `(from, to]`.
    pub(crate) fn boundaries(&self, from: i128, to: i128) -> i128 {
        (to - self.start).div_euclid(self.period) - (from - self.start).div_euclid(self.period)
    }

    /// Returns the number of units repaid between two instants.
    pub(crate) fn repaid(&self, from: i128, to: i128) -> i128 {
        match self.algorithm {
            Algorithm::FixedWindow => self.boundaries(from, to) * self.rate * self.period,
            _ => (to - from) * self.rate,
        }
    }

    fn rolled_to(&self, row: &Row, now: i128) -> Row {
        assert!(now >= row.at, "the model does not support clocks that step back");
        if self.algorithm == Algorithm::SlidingWindow {
            return match self.boundaries(row.at, now) {
                0 => Row { at: now, ..*row },
                1 => Row { spent: 0, before: row.spent, at: now },
                _ => Row { spent: 0, before: 0, at: now },
            };
        }
        Row { spent: (row.spent - self.repaid(row.at, now)).max(0), before: 0, at: now }
    }

    fn begin(&self, now: i128) -> i128 {
        now - (now - self.start).rem_euclid(self.period)
    }

    /// Returns how long an ask at `now` has to wait: 0 if it is allowed immediately, or `None` if it is denied.
    fn granted(&self, row: &Row, now: i128, ask: &Ask) -> Option<i128> {
        let cost = i128::from(ask.tokens());
        if self.over(row, now, cost, self.capacity) <= 0 {
            return Some(0);
        }
        let (longest, ceiling) = (ask.max_wait()?, self.ceiling?);
        if self.over(row, now, cost, ceiling) > 0 {
            return None;
        }
        let wait = self.wait(row, now, ask.tokens());
        (wait <= longest.as_micros() as i128).then_some(wait)
    }

    /// Returns the time from `now` until a charge of `tokens` fits within the capacity.
    pub(crate) fn wait(&self, row: &Row, now: i128, tokens: u64) -> i128 {
        let over = self.over(row, now, i128::from(tokens), self.capacity);
        if self.algorithm == Algorithm::FixedWindow {
            self.begin(now) + ceil(over, self.rate * self.period) * self.period - now
        } else {
            ceil(over, self.rate)
        }
    }

    /// Returns the first instant at or after `now` at which the ask is granted if nothing else is spent. An ask that is
    /// granted at one instant is also granted at every later one. For fixed windows, this holds only for the
    /// instants of one window, and for the last instants of all windows, so the search finds the window first.
    fn first_granted(&self, row: &Row, now: i128, ask: &Ask) -> Option<i128> {
        let span = if self.algorithm == Algorithm::FixedWindow { self.period } else { 1 };
        let begin = if span == 1 { now } else { self.begin(now) };
        let granted = |at: i128| self.granted(row, at, ask).is_some();
        let whole = (LAST - begin) / span;
        let i = first(0, whole - 1, |i| granted(begin + (i + 1) * span - 1)).unwrap_or(whole);
        let at = first((begin + i * span).max(now), (begin + (i + 1) * span).min(LAST) - 1, granted)?;
        (at + self.granted(row, at, ask)? < LAST).then_some(at)
    }
}

/// Returns the first number in `from ..= to` for which `holds` returns true. For all later numbers, `holds` must return
/// true as well.
pub(crate) fn first(from: i128, to: i128, holds: impl Fn(i128) -> bool) -> Option<i128> {
    // Most results are near `from`, so the stride starts small and doubles.
    let (mut low, mut high, mut stride) = (from, from.min(to), 1);
    while from <= to && !holds(high) {
        if high == to {
            return None;
        }
        (low, high, stride) = (high + 1, (high + stride).min(to), stride * 2);
    }
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    (from <= to).then_some(high)
}

fn ceil(n: i128, d: i128) -> i128 {
    -(-n).div_euclid(d)
}
