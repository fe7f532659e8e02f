//! Clocks that step back, or jump ahead and return. Each time, a row admits at most one extra capacity, and no key is
//! locked out.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::algorithm::{Algorithm, Ask, ChargeRecord, Micros, State, Verdict, settle, step};
use tollgate::{Quota, SECOND};

use super::decisions::check_promise;
use crate::support::admitted::{AdmittedCharge, check};
use crate::support::generators::{Raw, bucket_or_window, cases, history, quota, tiny};
use crate::support::model::Model;

const NOW: Micros = Micros::new(1_700_000_000_000_000);
const CENTURY: Duration = Duration::from_secs(100 * 365 * 86_400);

proptest! {
    #![proptest_config(cases(6000))]

    /// The retry time is correct after any change of the clock. It is at most twice the time needed to repay the debt:
    /// the clock may need this long to catch up with the row, and the repayment then takes just as long.
    #[test]
    fn no_clock_jump_locks_out_a_key(quota in prop_oneof![quota(), tiny()], history in history(20)) {
        let (mut state, mut now) = (State::default(), NOW);
        for raw in history {
            now = jumped(&raw, &quota, now);
            let step = step(&quota, &state, now, raw.ask(&quota));
            if step.is_allowed() {
                state = step.state;
            }
        }
        let max_debt = quota.get_capacity().max(state.spent as u64);
        for at in [NOW, now, now.min(NOW)] {
            let ask = Ask::cost(quota.get_capacity());
            let step = step(&quota, &state, at, ask);
            check_promise(&quota, &state, &ask, &step)?;
            let latest = 2 * refill(&quota, max_debt);
            match step.verdict {
                Verdict::Deny { retry: Some(retry) } => {
                    prop_assert!(retry.as_micros() <= latest, "a retry after {retry:?}, expected at most {latest} us");
                }
                // The retry time is `None` only if it would be after the last representable instant.
                Verdict::Deny { retry: None } => {
                    let is_beyond = at.get() as u128 + latest >= Micros::MAX.get() as u128;
                    prop_assert!(is_beyond, "expected a retry time for {state:?}");
                }
                _ => {}
            }
        }
    }

    /// A jump of the clock refills at most the spent tokens, so the bound holds between jumps.
    #[test]
    fn the_bound_holds_between_clock_jumps(quota in prop_oneof![bucket_or_window(), tiny()], history in history(40)) {
        let (model, mut state, mut now, mut admitted) = (Model::of(&quota), State::default(), NOW, Vec::new());
        for raw in history {
            let then = jumped(&raw, &quota, now);
            if then < now {
                prop_assert_eq!(check(&model, &admitted), Ok(()));
                admitted.clear();
            }
            now = then;
            let ask = Ask::cost(raw.tokens(&quota));
            let step = step(&quota, &state, now, ask);
            if let Some(receipt) = ChargeRecord::new(ask.tokens(), &step) {
                state = step.state;
                admitted.push(AdmittedCharge::of(&receipt, now));
            }
        }
        prop_assert_eq!(check(&model, &admitted), Ok(()));
    }

    /// Only fixed windows are tested with refunds. After a step back, a refund to a bucket can count the latest part of
    /// the refill twice.
    #[test]
    fn no_interval_refills_tokens_twice_when_the_clock_steps_back(quota in prop_oneof![bucket_or_window(), tiny()], history in history(40)) {
        let (model, mut state, mut now, mut latest) = (Model::of(&quota), State::default(), NOW, NOW);
        let (mut admitted, mut open) = (Vec::<(Micros, i128)>::new(), Vec::new());
        for raw in history {
            now = raw.moved(&quota, now, now);
            let (what, pick) = raw.what;
            if what < 3 {
                let back = pick % (quota.window().as_micros() as u64 + 1);
                now = Micros::new(latest.get().saturating_sub(back));
            }
            latest = latest.max(now);
            if what > 8 && !open.is_empty() && quota.algorithm() == Algorithm::FixedWindow {
                let (charge, receipt): (usize, ChargeRecord) = open.remove(pick as usize % open.len());
                state = settle(&quota, &state, &receipt, now, 0);
                admitted[charge].1 = 0;
            }
            let ask = Ask::cost(raw.tokens(&quota));
            let step = step(&quota, &state, now, ask);
            if let Some(receipt) = ChargeRecord::new(ask.tokens(), &step) {
                state = step.state;
                open.push((admitted.len(), receipt));
                admitted.push((now, model.units(receipt.cost)));
            }
        }
        for (i, (from, _)) in admitted.iter().enumerate() {
            let used: i128 = admitted[i..].iter().map(|(_, units)| units).sum();
            let most = model.units(quota.get_capacity()) + model.repaid(instant(*from), instant(latest));
            let is_within = (used - most) * 1_000_000 <= model.period;
            prop_assert!(is_within, "{} units used since {:?}, expected at most {}", used, from, most);
        }
    }

    #[test]
    fn settling_leaves_a_valid_row_under_any_clock(quota in prop_oneof![quota(), tiny()], history in history(20)) {
        let (mut state, mut now, mut open) = (State::default(), NOW, Vec::new());
        for raw in history {
            now = jumped(&raw, &quota, now);
            let ask = raw.ask(&quota);
            let step = step(&quota, &state, now, ask);
            if let Some(receipt) = ChargeRecord::new(ask.tokens(), &step) {
                state = step.state;
                open.push(receipt);
            }
            if raw.what.0 < 4 && !open.is_empty() {
                let receipt = open.remove(raw.what.1 as usize % open.len());
                state = settle(&quota, &state, &receipt, now, 0);
                prop_assert!(state.spent >= 0.0 && state.carry >= 0.0, "{state:?}");
            }
        }
    }
}

#[test]
fn a_clock_that_was_a_century_ahead_locks_out_no_key() {
    for quota in [Quota::token_bucket(10, SECOND), Quota::fixed_window(10, SECOND), Quota::sliding_window(10, SECOND)] {
        let state = step(&quota, &State::default(), NOW + CENTURY, Ask::cost(10)).state;
        let mut admitted = false;
        for after in 0..5 {
            admitted |= step(&quota, &state, NOW + after * SECOND, Ask::cost(10)).is_allowed();
        }
        assert!(admitted, "{quota:?}");
    }
}

#[test]
fn reservations_are_not_granted_twice_when_the_clock_steps_back() {
    let quota = Quota::token_bucket(1000, SECOND).capacity(0).unlimited_reservations();
    let state = step(&quota, &State::default(), NOW, Ask::cost(5000).reserve()).state;
    let before = Micros::new(NOW.get() - 20_000);
    let next = step(&quota, &state, before, Ask::cost(1).reserve());
    assert!(ChargeRecord::new(1, &next).is_some_and(|next| next.due > NOW + 5 * SECOND), "{next:?}");
}

fn jumped(raw: &Raw, quota: &Quota, now: Micros) -> Micros {
    let (what, by) = raw.what;
    match what {
        0 => Micros::new(now.get().saturating_sub(by % (3 * quota.window().as_micros() as u64))),
        1 => Micros::new(now.get().saturating_sub(by % (1 << 45))),
        2 => now + CENTURY,
        3 => Micros::EPOCH,
        4 if by % 4 == 0 => Micros::MAX,
        4 | 5 => NOW,
        _ => raw.moved(quota, now, now),
    }
}

fn instant(micros: Micros) -> i128 {
    i128::from(micros.get())
}

/// Returns the maximum time to repay `tokens`, in microseconds.
fn refill(quota: &Quota, tokens: u64) -> u128 {
    let (tokens, rate, period) = (u128::from(tokens), u128::from(quota.rate()), quota.period().as_micros());
    match quota.algorithm() {
        Algorithm::TokenBucket => (tokens * period).div_ceil(rate),
        Algorithm::FixedWindow => tokens.div_ceil(rate) * period,
        _ => 2 * period,
    }
}
