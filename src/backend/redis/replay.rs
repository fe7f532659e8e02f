//! What the script did, done again: from the rows as they were and the instant, everything else follows.
//!
//! The script says of each operation only whether it was granted. Waits, retry times and rows come from the same
//! arithmetic that every other backend uses; and if that would have decided otherwise, the answer is an error rather
//! than a guess.

use smallvec::SmallVec;

use super::wire::{clear_of, expires_of};
use crate::algorithm::{Algorithm, Ask, Line, Micros, Quota, Receipt, State, settle, step_all};
use crate::backend::Steps;

/// Decides `takes`, the rows of which have these places in `rows`, all or none; stores what they leave if `store` says
/// so.
pub(super) fn decide<'t>(
    rows: &mut [State],
    places: &[usize],
    takes: &'t [(Quota, Ask)],
    now: Micros,
    store: bool,
) -> Steps {
    let line = |(row, (quota, ask)): (&usize, &'t (Quota, Ask))| Line { row: *row, quota, ask: *ask };
    let lines: SmallVec<[Line<'_>; 4]> = places.iter().zip(takes).map(line).collect();
    let before: SmallVec<[State; 4]> = places.iter().map(|row| rows[*row]).collect();
    let steps = step_all(rows, &lines, now);
    if !store {
        places.iter().zip(before).for_each(|(row, before)| rows[*row] = before);
    }
    steps
}

/// The row that a settlement leaves.
pub(super) fn settled(quota: &Quota, row: &State, receipt: &Receipt, now: Micros, actual: u64) -> State {
    let state = settle(quota, row, receipt, now, actual);
    let is_left_alone = state == *row && row.stamp != quota.stamp();
    if is_left_alone { state } else { unless_gone(expiring(quota, row, state, now)) }
}

/// The row as the next operation finds it: one that owes nothing is dropped at once, with the instant up to which it
/// had been paid back.
fn unless_gone(state: State) -> State {
    if state.spent == 0.0 && state.carry == 0.0 { State::default() } else { state }
}

/// `state`, which comes after `before`, with the expiry that the script gives it: the same operations in the same order.
fn expiring(quota: &Quota, before: &State, state: State, now: Micros) -> State {
    let clear = |expires: u32| State { clear: clear_of(expires), ..state };
    if state.stamp != quota.stamp() {
        // Another quota's, as it is, or with what is charged to it afterwards.
        return clear(expires_of(state.clear));
    }
    let (rate, period) = quota.pace();
    let (rate, period, at, now) = (rate as f64, period as f64, state.at.get() as f64, now.get() as f64);
    let receipts = if state.carry > 0.0 { (state.spent + state.carry).min(quota.ceiling() as f64) } else { 0.0 };
    let instant = match quota.algorithm() {
        // Not put off: it tells the period to other quotas.
        Algorithm::SlidingWindow => return clear(((at + 2.0 * period) / 1e6).ceil() as u32),
        Algorithm::TokenBucket if receipts > 0.0 => {
            (at + state.spent * period / rate).max(now + receipts * period / rate)
        }
        Algorithm::TokenBucket => at + state.spent * period / rate,
        Algorithm::FixedWindow => at + (state.spent.max(receipts) / rate).ceil() * period,
    };
    let expires = if before.stamp == state.stamp { expires_of(before.clear) } else { 0 };
    if instant >= f64::from(expires) * 1e6 {
        return clear(((instant * 2e-6 - now * 1e-6).ceil() + 1.0) as u32);
    }
    clear(expires)
}
