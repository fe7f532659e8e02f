//! Refunds and cancellations in any order and at any time. The number of tokens used stays within the bound, and no
//! tokens are lost unnecessarily.
//!
//! If a charge is settled at a higher cost, the difference becomes debt, which the bound does not cover. Therefore,
//! only the charged tokens count as used.

use proptest::prelude::*;
use tollgate::Quota;
use tollgate::algorithm::{Ask, ChargeRecord, Micros, State, Verdict, settle, step};

use crate::support::admitted::{AdmittedCharge, check};
use crate::support::generators::{Raw, begin, bucket_or_window, cases, history, sliding, tiny};
use crate::support::model::Model;

proptest! {
    #![proptest_config(cases(20_000))]

    /// Tries capacities of 0 to 5 with any mix of charges, reservations, refunds and cancellations.
    #[test]
    fn small_quotas_stay_within_their_bound_in_any_mix_of_operations(
        quota in tiny(),
        begin in begin(),
        history in history(40),
    ) {
        mixed(&quota, begin, &history, false)?;
    }

    #[test]
    fn debts_do_not_raise_the_bound(quota in tiny(), begin in begin(), history in history(40)) {
        mixed(&quota, begin, &history, true)?;
    }
}

proptest! {
    #![proptest_config(cases(6000))]

    #[test]
    fn quotas_of_all_sizes_stay_within_their_bound_in_any_mix_of_operations(
        quota in prop_oneof![2 => bucket_or_window(), 1 => sliding()],
        begin in begin(),
        history in history(60),
    ) {
        mixed(&quota, begin, &history, false)?;
    }

    /// If all reservations are canceled in reverse order, the next caller gets the due time of the first one.
    #[test]
    fn canceling_all_reservations_frees_the_first_due_time(
        quota in bucket_or_window(),
        begin in begin(),
        history in history(12),
        costs in prop::collection::vec(any::<u64>(), 1..6),
    ) {
        let (mut state, now) = charge_all(&quota, begin, &history);
        let mut steps = Vec::new();
        for cost in costs {
            let ask = Ask::cost(1 + cost % quota.get_capacity().max(3)).reserve();
            steps.push((ask, step(&quota, &state, now, ask)));
            if let Some((_, step)) = steps.last().filter(|(_, step)| matches!(step.verdict, Verdict::Reserve { .. })) {
                state = step.state;
            } else {
                steps.pop();
            }
        }
        let Some((ask, first)) = steps.first().copied() else { return Ok(()) };
        for (ask, step) in steps.iter().rev() {
            let receipt = ChargeRecord::new(ask.tokens(), step).expect("expected a reservation");
            state = settle(&quota, &state, &receipt, now, 0);
        }
        prop_assert_eq!(step(&quota, &state, now, ask).verdict, first.verdict);
    }

    /// If a reservation is canceled before it is due, the next caller with the same cost gets the same due time.
    #[test]
    fn the_due_time_of_a_canceled_reservation_can_be_granted_again(
        quota in bucket_or_window(),
        begin in begin(),
        history in history(12),
        cost in any::<u64>(),
        part in 0u64..1000,
    ) {
        let (state, now) = charge_all(&quota, begin, &history);
        let ask = Ask::cost(1 + cost % quota.get_capacity().max(1)).reserve();
        let granted = step(&quota, &state, now, ask);
        let Verdict::Reserve { wait } = granted.verdict else { return Ok(()) };
        if ask.tokens() > quota.get_capacity() {
            return Ok(());
        }
        let receipt = ChargeRecord::new(ask.tokens(), &granted).expect("expected a reservation");
        let later = now + std::time::Duration::from_micros((wait.as_micros() * u128::from(part) / 1000) as u64);
        let canceled = settle(&quota, &granted.state, &receipt, later, 0);
        let next = step(&quota, &canceled, later, ask);
        prop_assert_eq!(ChargeRecord::new(ask.tokens(), &next).map(|receipt| receipt.due), Some(receipt.due));
    }

    /// If all charges are settled immediately, beginning with the oldest, the result is the same as if the actual costs
    /// had been charged in the first place.
    #[test]
    fn an_immediate_settlement_loses_no_tokens(
        quota in prop_oneof![bucket_or_window(), sliding()],
        begin in begin(),
        history in history(12),
        costs in prop::collection::vec((any::<u64>(), any::<u64>()), 1..6),
    ) {
        let (before, now) = charge_all(&quota, begin, &history);
        let (mut state, mut receipts) = (before, Vec::new());
        for (cost, actual) in costs {
            let cost = cost % (quota.get_capacity() + 1);
            let step = step(&quota, &state, now, Ask::cost(cost));
            if let Some(receipt) = ChargeRecord::new(cost, &step) {
                state = step.state;
                receipts.push((receipt, actual % (cost + 1)));
            }
        }
        let mut honest = before;
        for (receipt, actual) in &receipts {
            state = settle(&quota, &state, receipt, now, *actual);
            honest = step(&quota, &honest, now, Ask::cost(*actual)).state;
        }
        prop_assert_eq!(max_cost(&quota, &state, now), max_cost(&quota, &honest, now));
    }

    /// A row that was reset or evicted contains only later charges, which a refund must not reduce.
    #[test]
    fn a_refund_does_not_reduce_a_row_that_was_reset(
        quota in bucket_or_window(),
        now in begin(),
        costs in any::<(u64, u64)>(),
    ) {
        let cost = 1 + costs.0 % quota.get_capacity().max(1);
        let granted = step(&quota, &State::default(), now, Ask::cost(cost));
        let Some(receipt) = ChargeRecord::new(cost, &granted) else { return Ok(()) };
        let anew = step(&quota, &State::default(), now, Ask::cost(costs.1 % cost)).state;
        prop_assert_eq!(settle(&quota, &anew, &receipt, now, 0), anew);
    }

    #[test]
    fn a_higher_actual_cost_is_charged_in_full(
        quota in prop_oneof![bucket_or_window(), sliding()],
        begin in begin(),
        history in history(12),
        more in 0u64..1_000_000,
    ) {
        let (state, now) = charge_all(&quota, begin, &history);
        let granted = step(&quota, &state, now, Ask::cost(0));
        let Some(receipt) = ChargeRecord::new(0, &granted) else { return Ok(()) };
        let settled = settle(&quota, &granted.state, &receipt, now, more);
        prop_assert_eq!(settled.spent, granted.state.spent + more as f64);
        prop_assert_eq!(max_cost(&quota, &settled, now), max_cost(&quota, &granted.state, now).saturating_sub(more));
    }
}

/// Charges and settles at random, then checks the tokens used in every interval.
fn mixed(quota: &Quota, begin: Micros, history: &[Raw], debts: bool) -> Result<(), TestCaseError> {
    let (mut state, mut now, mut promised) = (State::default(), begin, begin);
    let (mut admitted, mut open) = (Vec::<AdmittedCharge>::new(), Vec::<(usize, ChargeRecord)>::new());
    for raw in history {
        now = raw.moved(quota, now, promised);
        let (what, pick) = raw.what;
        if what < 7 || open.is_empty() {
            let ask = raw.ask(quota);
            let step = step(quota, &state, now, ask);
            if let Some(receipt) = ChargeRecord::new(ask.tokens(), &step) {
                state = step.state;
                promised = receipt.due;
                open.push((admitted.len(), receipt));
                admitted.push(AdmittedCharge::of(&receipt, now));
            }
            continue;
        }
        let chosen = match what {
            7 | 8 => open.len() - 1,
            9 => 0,
            _ => pick as usize % open.len(),
        };
        let (i, receipt) = open.remove(chosen);
        let actual = match pick >> 62 {
            0 if debts => receipt.cost + 1 + pick % 3,
            0 | 1 => (pick >> 8) % (receipt.cost + 1),
            _ => 0,
        };
        state = settle(quota, &state, &receipt, now, actual);
        admitted[i].used = i128::from(actual.min(receipt.cost));
    }
    if let Err(text) = check(&Model::of(quota), &admitted) {
        prop_assert!(false, "{}: {:?}", text, admitted);
    }
    Ok(())
}

fn charge_all(quota: &Quota, begin: Micros, history: &[Raw]) -> (State, Micros) {
    let (mut state, mut now) = (State::default(), begin);
    for raw in history {
        now = raw.moved(quota, now, now);
        let step = step(quota, &state, now, raw.ask(quota));
        if step.is_allowed() {
            state = step.state;
        }
    }
    (state, now)
}

/// Returns the largest cost that is allowed at `now`.
pub(crate) fn max_cost(quota: &Quota, state: &State, now: Micros) -> u64 {
    let denied = |tokens: i128| !step(quota, state, now, Ask::cost(tokens as u64)).is_allowed();
    crate::support::model::first(0, i128::from(quota.get_capacity()), |tokens| denied(tokens + 1))
        .map_or(0, |tokens| tokens as u64)
}
