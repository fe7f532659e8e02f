//! The smallest quotas stay within their bounds in every short history.

use std::time::Duration;

use tollgate::Quota;
use tollgate::algorithm::{Ask, ChargeRecord, Micros, State, settle, step};

use crate::support::admitted::{AdmittedCharge, check};
use crate::support::model::Model;

const TICK: Duration = Duration::from_micros(1);

/// The histories charge and reserve one to three tokens at a time, and settle these charges in every order and at every
/// instant.
#[test]
fn no_short_history_breaks_the_bound() {
    let bucket = |rate, period| Quota::token_bucket(rate, Duration::from_micros(period));
    let window = |rate, period| Quota::fixed_window(rate, Duration::from_micros(period)).start(Duration::ZERO);
    let mut leaves = 0;
    for quota in [
        bucket(1, 1).capacity(2),
        bucket(1, 1).capacity(0).unlimited_reservations(),
        bucket(1, 1).capacity(1).unlimited_reservations(),
        bucket(1, 1).capacity(2).max_reserved(2),
        bucket(1, 2).capacity(2).max_reserved(3),
        bucket(2, 3).capacity(3).max_reserved(2),
        window(1, 1).capacity(2),
        window(2, 2).capacity(3),
        window(2, 2).capacity(0).unlimited_reservations(),
        window(2, 2).capacity(2).max_reserved(3),
        window(1, 2).capacity(2).unlimited_reservations(),
    ] {
        let begin =
            History { quota, state: State::default(), now: Micros::new(6), admitted: Vec::new(), open: Vec::new() };
        leaves += explore(&begin, 8);
    }
    assert!(leaves > 1_000_000, "{leaves}");
}

#[derive(Clone, Debug)]
struct History {
    quota: Quota,
    state: State,
    now: Micros,
    admitted: Vec<AdmittedCharge>,
    open: Vec<(usize, ChargeRecord)>,
}

/// Extends `history` by `depth` operations in every possible way, and checks each resulting history. Returns the number
/// of resulting histories.
fn explore(history: &History, depth: u32) -> u64 {
    if depth == 0 {
        if let Err(text) = check(&Model::of(&history.quota), &history.admitted) {
            panic!("{text}: {history:?}");
        }
        return 1;
    }
    let mut leaves = explore(&History { now: history.now + TICK, ..history.clone() }, depth - 1);
    for cost in 1..=3 {
        for ask in [Ask::cost(cost), Ask::cost(cost).reserve()] {
            if let Some(next) = charged(history, ask) {
                leaves += explore(&next, depth - 1);
            }
        }
    }
    for i in 0..history.open.len() {
        for actual in 0..history.open[i].1.cost {
            leaves += explore(&settled(history, i, actual), depth - 1);
        }
    }
    leaves
}

/// Returns the history after a granted ask. Returns `None` if the ask is denied, or if it accepts a reservation but
/// does not need one.
fn charged(history: &History, ask: Ask) -> Option<History> {
    let step = step(&history.quota, &history.state, history.now, ask);
    let receipt = ChargeRecord::new(ask.tokens(), &step)?;
    if ask.max_wait().is_some() && receipt.due == history.now {
        return None;
    }
    let mut next = History { state: step.state, ..history.clone() };
    next.open.push((next.admitted.len(), receipt));
    next.admitted.push(AdmittedCharge::of(&receipt, history.now));
    Some(next)
}

fn settled(history: &History, i: usize, actual: u64) -> History {
    let mut next = history.clone();
    let (charge, receipt) = next.open.remove(i);
    next.state = settle(&next.quota, &next.state, &receipt, next.now, actual);
    next.admitted[charge].used = i128::from(actual);
    next
}
