//! What was admitted, and whether that is within the bound of its quota, in exact arithmetic.

use tollgate::algorithm::{Algorithm, ChargeRecord, Micros};

use crate::model::Model;

/// Tokens admitted: charged, truly used in the end, and the instant at which they count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    pub(crate) due: i128,
    pub(crate) cost: i128,
    pub(crate) used: i128,
    /// Promised for later, and so not admitted at the instant of its decision.
    pub(crate) reserved: bool,
}

impl Turn {
    pub(crate) fn of(receipt: &ChargeRecord, now: Micros) -> Turn {
        let (cost, due) = (i128::from(receipt.cost), i128::from(receipt.due.get()));
        Turn { due, cost, used: cost, reserved: receipt.due > now }
    }
}

/// Checks every interval from one turn to another. `turns` are in the order in which they were granted.
///
/// Bucket, fixed window: what is used from a turn on is at most the capacity and what is paid back since. Only an
/// interval that *begins* with a reserved turn may see a little more. What such a turn takes is paid back, in part,
/// before it comes; that ends on a whole microsecond (a window: on a boundary) with up to a tick's refill to spare, and
/// the turn may take more than the capacity. So its cost, and less than a tick, may stand in place of the capacity. Of
/// what was charged for it in excess of its use, at most a capacity was there to be given back.
pub(crate) fn check(model: &Model, turns: &[Turn]) -> Result<(), String> {
    let mut turns: Vec<Turn> = turns.to_vec();
    turns.sort_by_key(|turn| turn.due);
    if model.algorithm == Algorithm::SlidingWindow {
        return check_windows(model, &turns);
    }
    for (i, first) in turns.iter().enumerate().filter(|(_, turn)| turn.used > 0) {
        let capacity = model.capacity * model.period;
        let own = first.cost.min(first.used + model.capacity) * model.period;
        let burst = if first.reserved { capacity.max(own + less_than_a_tick(model)) } else { capacity };
        let mut used = 0;
        for last in &turns[i..] {
            used += last.used * model.period;
            let most = burst + model.paid_back(first.due, last.due);
            // A millionth of a token is what decisions may be off by; it does not add up.
            if (used - most) * 1_000_000 > model.period {
                let (used, most) = (used as f64 / model.period as f64, most as f64 / model.period as f64);
                return Err(format!("{used} used from {} to {}, of at most {most}", first.due, last.due));
            }
        }
    }
    Ok(())
}

/// Sliding window: at each turn, what its window has used and the part of the window before that is still in view.
fn check_windows(model: &Model, turns: &[Turn]) -> Result<(), String> {
    for (i, last) in turns.iter().enumerate() {
        let mut used = 0;
        for turn in &turns[..=i] {
            used += match model.boundaries(turn.due, last.due) {
                0 => turn.used * model.period,
                1 => turn.used * (model.period - (last.due - model.start).rem_euclid(model.period)),
                _ => 0,
            };
        }
        if (used - model.capacity * model.period) * 1_000_000 > model.period && last.used > 0 {
            return Err(format!("{} used in view of {}", used as f64 / model.period as f64, last.due));
        }
    }
    Ok(())
}

/// The most units that are paid back by one microsecond, or by one boundary, and not needed.
fn less_than_a_tick(model: &Model) -> i128 {
    match model.algorithm {
        Algorithm::FixedWindow => (model.rate - 1) * model.period,
        _ => model.rate - 1,
    }
}
