//! Conversion of rows that were written under another quota. [`docs::design`](crate::docs::design) explains the rules.
//!
//! A row is *foreign* to a quota if it has a different stamp and has not expired. An *own* row has the quota's stamp.
//! Changing the quota never cancels debt.

use super::{Algorithm, Ask, MAX_SPENT, Micros, Quota, State};
use super::{fixed_window, granted, retry_own, roll_own, roll_within, sliding_window, token_bucket, within_own};

#[inline]
pub(crate) fn is_foreign(quota: &Quota, state: &State, now: Micros) -> bool {
    state.stamp != quota.stamp() && is_outstanding(state, now)
}

fn is_outstanding(state: &State, now: Micros) -> bool {
    state.stamp != 0 && owed(state) > 0.0 && now < state.clear
}

/// Returns the algorithm of the quota that wrote the row, or `None` if the stamp is invalid.
pub(crate) fn writer(state: &State) -> Option<Algorithm> {
    [Algorithm::TokenBucket, Algorithm::FixedWindow, Algorithm::SlidingWindow]
        .into_iter()
        .find(|algorithm| algorithm.tag() == state.stamp % (1 << Algorithm::TAG_BITS))
}

fn owed(state: &State) -> f64 {
    if writer(state) == Some(Algorithm::SlidingWindow) { state.spent + state.carry } else { state.spent }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// The row is refilled at the faster of the two quotas' rates. Both quotas are token buckets.
    FasterBucket,
    Own,
    /// The counts stay the same until the row expires.
    Whole,
}

fn reading(quota: &Quota, state: &State) -> Reading {
    match quota.algorithm() {
        algorithm if Some(algorithm) != writer(state) => Reading::Whole,
        Algorithm::TokenBucket => Reading::FasterBucket,
        Algorithm::FixedWindow => Reading::Own,
        Algorithm::SlidingWindow if is_same_window(quota, state) => Reading::Own,
        Algorithm::SlidingWindow => Reading::Whole,
    }
}

/// Returns whether a row written by a sliding window has the same phase and period as this quota.
fn is_same_window(quota: &Quota, state: &State) -> bool {
    let period = quota.period_micros();
    period % 1_000_000 == 0
        && state.at.plus(2 * period).to_whole_second() == state.clear
        && sliding_window::aligned(quota, state)
}

/// Converts a row with a different stamp to a row with this quota's stamp and the same debt at `now`.
#[cold]
pub(super) fn roll(quota: &Quota, state: &State, now: Micros) -> State {
    let own = State { stamp: quota.stamp(), carry: 0.0, ..*state };
    if !is_outstanding(state, now) {
        return roll_own(quota, &State { spent: 0.0, ..own }, now);
    }
    let reading = reading(quota, state);
    let row = match reading {
        Reading::FasterBucket => own,
        // For a sliding window, `carry` is the count of the previous window. Other algorithms count refunds in `carry`.
        Reading::Own if quota.algorithm() == Algorithm::SlidingWindow => State { carry: state.carry, ..own },
        Reading::Own => own,
        Reading::Whole => State { spent: owed(state), ..own },
    };
    if super::is_too_far_ahead(quota, &row, now) {
        return roll_own(quota, &row, now);
    }
    match reading {
        Reading::FasterBucket => roll_faster(quota, &row, now),
        Reading::Own => roll_within(quota, &row, now),
        Reading::Whole => roll_whole(quota, &row, now),
    }
}

/// Rolls the row at each bucket's rate, and returns the result with less debt.
fn roll_faster(quota: &Quota, row: &State, now: Micros) -> State {
    let rolled = token_bucket::roll(quota, row, now);
    if now <= row.at || row.clear == Micros::MAX {
        return rolled;
    }
    let left = row.spent * row.clear.micros_since(now) as f64 / row.clear.micros_since(row.at) as f64;
    let left = left.ceil();
    if left < token_bucket::spent(quota, &rolled, now) {
        return State { spent: left, at: now, ..rolled };
    }
    rolled
}

fn roll_whole(quota: &Quota, row: &State, now: Micros) -> State {
    let at = match quota.algorithm() {
        Algorithm::TokenBucket => row.at.max(now),
        Algorithm::FixedWindow => row.at.max(fixed_window::boundary(quota, fixed_window::index(quota, now))),
        // A row that does not begin at a boundary would count as unspent.
        Algorithm::SlidingWindow => fixed_window::boundary(quota, fixed_window::index(quota, row.at.max(now))),
    };
    State { at, ..*row }
}

#[cold]
pub(super) fn when(quota: &Quota, state: &State, now: Micros, level: f64) -> Option<Micros> {
    let holds = |at: Micros| within_own(quota, &super::roll(quota, state, at), at, level);
    // The debt never grows, and it is 0 from `clear` on.
    let first = first(now, state.clear, holds).unwrap_or(state.clear);
    (first < Micros::MAX).then_some(first)
}

/// Returns the first instant at which `ask` would be granted. The row must be foreign. `ask` must be denied at `now`.
#[cold]
pub(super) fn retry_at(quota: &Quota, state: &State, now: Micros, ask: Ask) -> Option<Micros> {
    let holds = |at: Micros| granted(quota, &super::roll(quota, state, at), at, ask).is_some();
    let clear = state.clear;
    let before = match reading(quota, state) {
        Reading::FasterBucket => first(now, clear, holds),
        // Until the row expires, converting it now gives the same result as converting it later.
        Reading::Own => retry_own(quota, &super::roll(quota, state, now), now, ask),
        // Until the row expires, only the wait for a reservation changes. It shrinks until the window ends or, for a
        // bucket, until `state.at`.
        Reading::Whole => {
            let end = fixed_window::boundary(quota, fixed_window::index(quota, now.max(state.at)) + 1);
            first(now, end.min(clear), holds)
        }
    };
    if let Some(before) = before.filter(|before| *before < clear) {
        return Some(before);
    }
    if clear == Micros::MAX {
        return None;
    }
    let unspent = super::roll(quota, state, clear);
    if granted(quota, &unspent, clear, ask).is_some() { Some(clear) } else { retry_own(quota, &unspent, clear, ask) }
}

/// Returns the first instant in `from..end` at which `holds` is true. Once true, `holds` must stay true.
fn first(from: Micros, end: Micros, holds: impl Fn(Micros) -> bool) -> Option<Micros> {
    if from >= end || !holds(end.minus(1)) {
        return None;
    }
    let (mut low, mut high) = (from, end.minus(1));
    while low < high {
        let middle = Micros::new(low.get() + (high.get() - low.get()) / 2);
        if holds(middle) { high = middle } else { low = middle.plus(1) }
    }
    Some(high)
}

/// Returns a foreign row after a settlement that charges `more` tokens. The row keeps its stamp. Unless a sliding
/// window wrote the row, the time from `at` to `clear` grows in proportion to the debt. A fixed window may repay the
/// last tokens up to one window after `clear`. The bound still holds, because the average rate repays the debt by
/// `clear`.
#[cold]
pub(super) fn overrun(state: &State, more: u64) -> State {
    let spent = (state.spent + more.min(MAX_SPENT) as f64).min(MAX_SPENT as f64);
    let clear = match writer(state) {
        Some(Algorithm::SlidingWindow) | None => state.clear,
        Some(Algorithm::TokenBucket | Algorithm::FixedWindow) => {
            let micros = state.clear.micros_since(state.at) as f64 * spent / state.spent;
            // The extra second ensures that floating-point rounding never makes `clear` too early.
            let seconds = ((state.at.get() as f64 + micros) * 1e-6) as u64;
            Micros::new(seconds.saturating_add(1).saturating_mul(1_000_000)).to_whole_second()
        }
    };
    State { spent, clear: clear.max(state.clear), ..*state }
}

#[cfg(test)]
mod tests;
