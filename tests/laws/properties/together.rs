//! Two or three quotas on one row stay within their joint bound in every short history.

use std::time::Duration;

use tollgate::algorithm::{Algorithm, Ask, Micros, State, step};
use tollgate::{Quota, SECOND};

/// An admitted charge: its instant and the number of tokens used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Charge {
    pub(crate) at: Micros,
    pub(crate) used: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    /// Twice the largest capacity, plus the refill of the fastest quota.
    Largest,
    /// Three times the largest capacity, plus the refills of all quotas.
    Sum,
}

/// Returns the most tokens used beyond the bound in any interval. Reservable tokens count as capacity.
pub(crate) fn excess(quotas: &[Quota], charges: &[Charge], bound: Bound) -> f64 {
    let capacity = |quota: &Quota| (quota.get_capacity() + quota.get_max_reserved().unwrap_or(0)) as f64;
    let capacity = quotas.iter().map(capacity).fold(0.0, f64::max);
    let capacities = if bound == Bound::Largest { 2.0 } else { 3.0 };
    let mut worst = f64::NEG_INFINITY;
    for (i, first) in charges.iter().enumerate() {
        let mut used = 0.0;
        for last in &charges[i..] {
            used += last.used as f64;
            let paid = quotas.iter().map(|quota| repaid(quota, first.at, last.at));
            let paid = if bound == Bound::Largest { paid.fold(0.0, f64::max) } else { paid.sum() };
            worst = worst.max(used - capacities * capacity - paid);
        }
    }
    worst
}

fn repaid(quota: &Quota, from: Micros, to: Micros) -> f64 {
    let (rate, period) = (quota.rate() as f64, quota.period().as_micros() as u64);
    if quota.algorithm() == Algorithm::TokenBucket {
        return to.since(from).as_micros() as f64 * rate / period as f64;
    }
    let start = quota.get_start().map_or(0, |phase| phase.as_micros() as u64);
    let index = |instant: Micros| (instant.get() + period - start) / period;
    rate * (index(to) - index(from)) as f64
}

#[test]
fn no_short_history_of_several_quotas_breaks_the_bound() {
    let bucket = |rate, seconds: u32, capacity| Quota::token_bucket(rate, seconds * SECOND).capacity(capacity);
    let window = |rate, seconds: u32, capacity| {
        Quota::fixed_window(rate, seconds * SECOND).start(Duration::ZERO).capacity(capacity)
    };
    let sliding = |limit| Quota::sliding_window(limit, SECOND);
    let buckets =
        [bucket(1, 1, 1), bucket(1, 2, 3), bucket(2, 1, 2), bucket(3, 2, 4), bucket(3, 1, 6), bucket(1, 4, 5)];
    let windows = [window(1, 1, 1), window(2, 1, 2), window(3, 1, 4), window(1, 1, 6), window(4, 1, 4)];
    let slidings = [1, 2, 3, 5].map(sliding);
    let mixed = [bucket(2, 1, 3), bucket(1, 2, 2), window(2, 1, 3), window(3, 2, 5), sliding(2), sliding(4)];
    let kinds = [
        (&buckets[..], Bound::Largest),
        (&windows[..], Bound::Largest),
        (&slidings[..], Bound::Largest),
        (&mixed[..], Bound::Sum),
    ];
    let mut count = 0;
    for (quotas, bound) in kinds {
        for a in 0..quotas.len() {
            for b in a + 1..quotas.len() {
                count += explore(&[quotas[a], quotas[b]], bound, 6);
                for c in b + 1..quotas.len() {
                    count += explore(&[quotas[a], quotas[b], quotas[c]], bound, 4);
                }
            }
        }
    }
    println!("{count} histories");
    assert!(count > 1_000_000, "{count}");
}

fn explore(quotas: &[Quota], bound: Bound, depth: u32) -> u64 {
    let begin = Micros::new(1_700_000_000_000_000);
    let mut count = 0;
    for phase in [0, 300_000] {
        count += follow(quotas, bound, depth, &State::default(), begin + Duration::from_micros(phase), &mut Vec::new());
    }
    count
}

fn follow(quotas: &[Quota], bound: Bound, depth: u32, state: &State, now: Micros, charges: &mut Vec<Charge>) -> u64 {
    if depth == 0 {
        let excess = excess(quotas, charges, bound);
        assert!(excess <= 1e-6, "{excess} tokens beyond the bound of {quotas:?}: {charges:?}");
        return 1;
    }
    let mut count = 0;
    for quota in quotas {
        // Try the largest cost that fits and a cost of 1.
        let fitting =
            (1..=quota.get_capacity()).rev().find(|cost| step(quota, state, now, Ask::cost(*cost)).is_allowed());
        let mut costs = vec![fitting.unwrap_or(0), 1];
        costs.dedup();
        for cost in costs.into_iter().filter(|cost| fitting.is_some_and(|most| *cost <= most)) {
            let next = step(quota, state, now, Ask::cost(cost)).state;
            charges.push(Charge { at: now, used: cost });
            for wait in [0, 500_000, 1_000_000] {
                count += follow(quotas, bound, depth - 1, &next, now + Duration::from_micros(wait), charges);
            }
            charges.pop();
        }
        if fitting.is_none() {
            let verdict = step(quota, state, now, Ask::cost(1)).verdict;
            let tollgate::algorithm::Verdict::Deny { retry: Some(retry) } = verdict else { continue };
            count += follow(quotas, bound, depth - 1, state, now + retry, charges);
        }
    }
    count
}
