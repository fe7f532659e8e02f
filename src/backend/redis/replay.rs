//! What the script did, done again: from the rows as they were and the instant, everything else follows.
//!
//! The script says of each operation only whether it was granted. Waits, retry times and rows come from the same
//! arithmetic that every other backend uses; and if that would have decided otherwise, the answer is an error rather
//! than a guess.

use smallvec::SmallVec;

use crate::algorithm::{Ask, Micros, Quota, State, Step, step};
use crate::backend::{Steps, verdict_of_all};

/// Decides `takes`, the rows of which have these places in `rows`, all or none; stores what they leave if `store` says
/// so.
pub(super) fn decide(rows: &mut [State], places: &[usize], takes: &[(Quota, Ask)], now: Micros, store: bool) -> Steps {
    if let ([place], [(quota, ask)]) = (places, takes) {
        let step = step(quota, &rows[*place], now, *ask);
        if store && step.is_allowed() {
            rows[*place] = kept(step.state);
        }
        return step.into();
    }
    let mut staged: SmallVec<[(usize, State); 4]> = SmallVec::new();
    let mut steps: SmallVec<[Step; 4]> = SmallVec::new();
    for (place, (quota, ask)) in places.iter().zip(takes) {
        let found = staged.iter().position(|(other, _)| other == place);
        let state = found.map_or(rows[*place], |found| staged[found].1);
        let step = step(quota, &state, now, *ask);
        if step.is_allowed() {
            match found {
                Some(found) => staged[found].1 = kept(step.state),
                None => staged.push((*place, kept(step.state))),
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

/// The row as the next operation finds it: one that owes nothing is dropped at once, with the instant up to which it
/// had been paid back.
pub(super) fn kept(state: State) -> State {
    if state.spent == 0.0 && state.carry == 0.0 { State::default() } else { state }
}
