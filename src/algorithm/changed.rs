//! Rows that another quota wrote: what they mean to the quota that reads them now.
//!
//! A row is *foreign* to a quota if its stamp is another's and something of it still stands. Nothing of it is forgiven,
//! so that quotas that alternate on one row admit no more than the larger of them would:
//!
//! - From [`State::clear`] on it is unspent: the quota that wrote it would have been repaid by then.
//! - Between token buckets it stands at the lesser of what either quota would leave.
//! - Between fixed windows, and between sliding windows of one period and phase, the quota that reads it rolls it as if
//!   it were its own.
//! - In any other mix its counts stand whole until `clear`.
//!
//! An admission makes the row the caller's. A denial leaves it as it is.

use super::{Algorithm, Ask, MOST_SPENT, Micros, Quota, State};
use super::{fixed_window, granted, retry_own, roll_own, roll_within, sliding_window, token_bucket, within_own};

/// Whether another quota wrote the row, and something of it stands at `now`.
#[inline]
pub(crate) fn is_foreign(quota: &Quota, state: &State, now: Micros) -> bool {
    state.stamp != quota.stamp() && stands(state, now)
}

/// Whether something of a row stands at `now`, under the quota that wrote it.
fn stands(state: &State, now: Micros) -> bool {
    state.stamp != 0 && owed(state) > 0.0 && now < state.clear
}

/// The algorithm of the quota that wrote the row; `None` for a stamp that no quota has.
pub(crate) fn writer(state: &State) -> Option<Algorithm> {
    [Algorithm::TokenBucket, Algorithm::FixedWindow, Algorithm::SlidingWindow]
        .into_iter()
        .find(|algorithm| algorithm.tag() == state.stamp % (1 << Algorithm::TAG_BITS))
}

/// What the row counts: of a sliding window both windows.
fn owed(state: &State) -> f64 {
    if writer(state) == Some(Algorithm::SlidingWindow) { state.spent + state.carry } else { state.spent }
}

/// How a foreign row is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// Between token buckets: what the slower of the two has not repaid is repaid all the same.
    Faster,
    /// As an own row.
    Own,
    /// Its counts stand until it is clear.
    Whole,
}

fn reading(quota: &Quota, state: &State) -> Reading {
    match quota.algorithm() {
        algorithm if Some(algorithm) != writer(state) => Reading::Whole,
        Algorithm::TokenBucket => Reading::Faster,
        Algorithm::FixedWindow => Reading::Own,
        Algorithm::SlidingWindow if is_same_window(quota, state) => Reading::Own,
        Algorithm::SlidingWindow => Reading::Whole,
    }
}

/// Whether a sliding window's row was written under the same period and phase. Its `clear` tells the period.
fn is_same_window(quota: &Quota, state: &State) -> bool {
    let period = quota.period_micros();
    period % 1_000_000 == 0
        && state.at.plus(2 * period).to_whole_second() == state.clear
        && sliding_window::aligned(quota, state)
}

/// A row of another stamp as `quota` sees it at `now`: an own row that stands at as much.
#[cold]
pub(super) fn roll(quota: &Quota, state: &State, now: Micros) -> State {
    let own = State { stamp: quota.stamp(), carry: 0.0, ..*state };
    if !stands(state, now) {
        let at = if state.stamp == 0 { Micros::EPOCH } else { state.at };
        return roll_own(quota, &State { spent: 0.0, at, ..own }, now);
    }
    let reading = reading(quota, state);
    let row = match reading {
        Reading::Faster => own,
        // The window before carries over; other algorithms keep there what receipts of theirs need.
        Reading::Own if quota.algorithm() == Algorithm::SlidingWindow => State { carry: state.carry, ..own },
        Reading::Own => own,
        Reading::Whole => State { spent: owed(state), ..own },
    };
    if super::is_forgiven(quota, &row, now) {
        return roll_own(quota, &State { spent: 0.0, at: now, carry: 0.0, ..own }, now);
    }
    match reading {
        Reading::Faster => faster(quota, &row, now),
        Reading::Own => roll_within(quota, &row, now),
        Reading::Whole => whole(quota, &row, now),
    }
}

/// The lesser of what is left under `quota`, and under the bucket that wrote the row: that one repays it by `clear`.
fn faster(quota: &Quota, row: &State, now: Micros) -> State {
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

/// All of the counts, as an own row that is repaid from `now` on.
fn whole(quota: &Quota, row: &State, now: Micros) -> State {
    let at = match quota.algorithm() {
        Algorithm::TokenBucket => row.at.max(now),
        Algorithm::FixedWindow => row.at.max(fixed_window::boundary(quota, fixed_window::index(quota, now))),
        // A row that does not begin with a window would count nothing.
        Algorithm::SlidingWindow => fixed_window::boundary(quota, fixed_window::index(quota, row.at.max(now))),
    };
    State { at, ..*row }
}

/// The first instant from `now` on at which no more than `level` of a foreign row stands.
#[cold]
pub(super) fn when(quota: &Quota, state: &State, now: Micros, level: f64) -> Option<Micros> {
    let holds = |at: Micros| within_own(quota, &super::roll(quota, state, at), at, level);
    // Debts only fall, and from `clear` on there is none.
    let first = first(now, state.clear, holds).unwrap_or(state.clear);
    (first < Micros::MAX).then_some(first)
}

/// When `ask` would be granted, of a foreign row by which it is denied at `now`.
#[cold]
pub(super) fn retry_at(quota: &Quota, state: &State, now: Micros, ask: Ask) -> Option<Micros> {
    let holds = |at: Micros| granted(quota, &super::roll(quota, state, at), at, ask).is_some();
    let clear = state.clear;
    let before = match reading(quota, state) {
        Reading::Faster => first(now, clear, holds),
        // Rolled again from here on, it is the same row, until it is clear.
        Reading::Own => retry_own(quota, &super::roll(quota, state, now), now, ask),
        // Counts that stand leave only the wait for a turn to change, which shrinks to the end of a window.
        Reading::Whole if quota.algorithm() == Algorithm::FixedWindow && quota.reserves() => {
            let end = fixed_window::boundary(quota, fixed_window::index(quota, now.max(state.at)) + 1);
            first(now, end.min(clear), holds)
        }
        Reading::Whole => None,
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

/// The first instant from `from` on, and before `end`, at which `holds`, which once true stays so.
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

/// A foreign row that `more` tokens are charged to afterwards. It stays its writer's, and `clear` moves in proportion.
///
/// A fixed window repays its tokens at once, up to a window later than that. Spread over the time up to `clear`, they are
/// still repaid no faster than its rate, which is all that the bound needs.
#[cold]
pub(super) fn overrun(state: &State, more: u64) -> State {
    let spent = (state.spent + more.min(MOST_SPENT) as f64).min(MOST_SPENT as f64);
    let clear = match writer(state) {
        Some(Algorithm::SlidingWindow) | None => state.clear,
        _ if state.clear == Micros::MAX => Micros::MAX,
        Some(Algorithm::TokenBucket | Algorithm::FixedWindow) => {
            let micros = state.clear.micros_since(state.at) as f64 * spent / state.spent;
            // One second more than whole ones, so that no rounding makes it early.
            let seconds = ((state.at.get() as f64 + micros) * 1e-6) as u64;
            Micros::new(seconds.saturating_add(1).saturating_mul(1_000_000)).to_whole_second()
        }
    };
    State { spent, clear: clear.max(state.clear), ..*state }
}

#[cfg(test)]
mod tests;
