//! Checks, in exact arithmetic, that the admitted tokens are within the quota's bound.

use tollgate::algorithm::{Algorithm, ChargeRecord, Micros};

use super::model::Model;

/// An admitted charge, which counts from `due`. `used` is the part of `cost` that was not refunded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdmittedCharge {
    pub(crate) due: i128,
    pub(crate) cost: i128,
    pub(crate) used: i128,
    /// Whether the charge is a reservation that was due after its decision.
    pub(crate) reserved: bool,
}

impl AdmittedCharge {
    pub(crate) fn of(receipt: &ChargeRecord, now: Micros) -> AdmittedCharge {
        let (cost, due) = (i128::from(receipt.cost), i128::from(receipt.due.get()));
        AdmittedCharge { due, cost, used: cost, reserved: receipt.due > now }
    }
}

/// Checks the tokens used in every interval between two charges.
///
/// For token buckets and fixed windows, the limit is the capacity plus the tokens refilled since the start of the
/// interval. If the first charge is a reservation that costs more than the capacity, its cost replaces the capacity.
/// This cost is capped at `used` plus the capacity, because a refund returns at most the capacity. Rounding up the due
/// time refills a few additional tokens.
pub(crate) fn check(model: &Model, admitted: &[AdmittedCharge]) -> Result<(), String> {
    let mut admitted: Vec<AdmittedCharge> = admitted.to_vec();
    admitted.sort_by_key(|charge| charge.due);
    if model.algorithm == Algorithm::SlidingWindow {
        return check_windows(model, &admitted);
    }
    for (i, first) in admitted.iter().enumerate().filter(|(_, charge)| charge.used > 0) {
        let capacity = model.capacity * model.period;
        let reserved_cost = first.cost.min(first.used + model.capacity) * model.period;
        let burst = if first.reserved { capacity.max(reserved_cost + less_than_a_tick(model)) } else { capacity };
        let mut used = 0;
        for last in &admitted[i..] {
            used += last.used * model.period;
            let limit = burst + model.repaid(first.due, last.due);
            // Decisions tolerate an error of a millionth of a token, which does not accumulate.
            if (used - limit) * 1_000_000 > model.period {
                let (used, limit) = (used as f64 / model.period as f64, limit as f64 / model.period as f64);
                return Err(format!("{used} tokens used from {} to {}, expected at most {limit}", first.due, last.due));
            }
        }
    }
    Ok(())
}

/// Checks a sliding window at each charge. The tokens used in the current window, plus a share of those used in the
/// previous window, must not exceed the limit.
fn check_windows(model: &Model, admitted: &[AdmittedCharge]) -> Result<(), String> {
    for (i, last) in admitted.iter().enumerate() {
        let mut used = 0;
        for charge in &admitted[..=i] {
            used += match model.boundaries(charge.due, last.due) {
                0 => charge.used * model.period,
                1 => charge.used * (model.period - (last.due - model.start).rem_euclid(model.period)),
                _ => 0,
            };
        }
        if (used - model.capacity * model.period) * 1_000_000 > model.period && last.used > 0 {
            return Err(format!(
                "{} tokens used in the period before {}, more than the capacity",
                used as f64 / model.period as f64,
                last.due
            ));
        }
    }
    Ok(())
}

/// Returns the largest number of additional units that are refilled because waits are rounded up.
fn less_than_a_tick(model: &Model) -> i128 {
    match model.algorithm {
        Algorithm::FixedWindow => (model.rate - 1) * model.period,
        _ => model.rate - 1,
    }
}
