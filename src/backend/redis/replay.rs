//! What the script did, done again: from the rows as they were and the instant, everything else follows.
//!
//! The script says of each operation only whether it was granted. Waits, retry times and rows come from the same
//! arithmetic that every other backend uses; and if that would have decided otherwise, the answer is an error rather
//! than a guess.

use smallvec::SmallVec;

use super::wire::{clear_of, expires_of};
use crate::algorithm::{Algorithm, Ask, Micros, Quota, Receipt, State, Step, settle, step};
use crate::backend::{Steps, verdict_of_all};

/// Decides `takes`, the rows of which have these places in `rows`, all or none; stores what they leave if `store` says
/// so.
pub(super) fn decide(rows: &mut [State], places: &[usize], takes: &[(Quota, Ask)], now: Micros, store: bool) -> Steps {
    if let ([place], [(quota, ask)]) = (places, takes) {
        let step = stepped(quota, &rows[*place], now, *ask);
        if store && step.is_allowed() {
            rows[*place] = unless_gone(step.state);
        }
        return step.into();
    }
    let mut staged: SmallVec<[(usize, State); 4]> = SmallVec::new();
    let mut steps: SmallVec<[Step; 4]> = SmallVec::new();
    for (place, (quota, ask)) in places.iter().zip(takes) {
        let found = staged.iter().position(|(other, _)| other == place);
        let state = found.map_or(rows[*place], |found| staged[found].1);
        let step = stepped(quota, &state, now, *ask);
        if step.is_allowed() {
            match found {
                Some(found) => staged[found].1 = unless_gone(step.state),
                None => staged.push((*place, unless_gone(step.state))),
            }
        }
        steps.push(step);
    }
    if steps.iter().all(Step::is_allowed) {
        if store {
            staged.into_iter().for_each(|(place, state)| rows[place] = state);
        }
        return steps.into_iter().collect();
    }
    // Nothing is spent: whatever fitted leaves its row as it was.
    for (i, place) in places.iter().enumerate() {
        let same = || (0..places.len()).filter(|other| places[*other] == *place);
        if !steps[i].is_allowed() && same().count() > 1 {
            let verdict = verdict_of_all(&rows[*place], now, same().map(|other| takes[other]));
            steps[i].verdict = verdict.unwrap_or(steps[i].verdict);
        }
        if staged.iter().any(|(other, _)| other == place) {
            steps[i].state = rows[*place];
        }
    }
    steps.into_iter().collect()
}

/// The step; the row that an admission leaves expires as the script writes it.
fn stepped(quota: &Quota, row: &State, now: Micros, ask: Ask) -> Step {
    let step = step(quota, row, now, ask);
    if step.is_allowed() { Step { state: expiring(quota, row, step.state, now), ..step } } else { step }
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
