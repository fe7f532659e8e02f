//! A credit returns tokens to a key, up to the quota's capacity, and raises the bound by at most the credited tokens.

use proptest::prelude::*;
use tollgate::algorithm::{Ask, ChargeRecord, State, settle, step, takes_effect};

use super::give_backs::max_cost;
use crate::support::admitted::{AdmittedCharge, check};
use crate::support::generators::{begin, bucket_or_window, cases, history, sliding, tiny};
use crate::support::model::Model;

proptest! {
    #![proptest_config(cases(10_000))]

    /// Mixes charges, refunds and up to three credits. A charge can be refunded even after a credit has returned
    /// the charged tokens, so each credit raises the bound for every interval.
    #[test]
    fn credits_raise_the_bound_by_at_most_their_tokens(
        quota in prop_oneof![3 => tiny(), 1 => bucket_or_window(), 1 => sliding()],
        begin in begin(),
        history in history(40),
    ) {
        let (mut state, mut now) = (State::default(), begin);
        let (mut credits, mut model) = (0, Model::of(&quota));
        let (mut admitted, mut open) = (Vec::<AdmittedCharge>::new(), Vec::<(usize, ChargeRecord)>::new());
        for raw in &history {
            now = raw.moved(&quota, now, now);
            let (what, pick) = raw.what;
            if what < 6 || what >= 8 && credits == 3 {
                let ask = Ask::cost(raw.ask(&quota).tokens());
                let step = step(&quota, &state, now, ask);
                if let Some(receipt) = ChargeRecord::new(ask.tokens(), &step) {
                    state = step.state;
                    open.push((admitted.len(), receipt));
                    admitted.push(AdmittedCharge::of(&receipt, now));
                }
            } else if what < 8 && !open.is_empty() {
                let (i, receipt) = open.remove(pick as usize % open.len());
                state = settle(&quota, &state, &receipt, now, 0);
                admitted[i].used = 0;
            } else {
                let tokens = 1 + pick % 3;
                state = settle(&quota, &state, &ChargeRecord::credit(tokens), now, 0);
                model.capacity += i128::from(tokens);
                credits += 1;
            }
        }
        if let Err(text) = check(&model, &admitted) {
            prop_assert!(false, "{}: {:?}", text, admitted);
        }
    }

    /// A sliding window can get one token fewer than credited, because only whole tokens of the previous window are
    /// returned.
    #[test]
    fn a_credit_returns_its_tokens_up_to_the_capacity(
        quota in prop_oneof![2 => bucket_or_window(), 1 => sliding()],
        begin in begin(),
        history in history(12),
        tokens in prop_oneof![0u64..20, any::<u64>()],
    ) {
        let (mut state, mut now) = (State::default(), begin);
        for raw in &history {
            now = raw.moved(&quota, now, now);
            let step = step(&quota, &state, now, Ask::cost(raw.ask(&quota).tokens()));
            state = if step.is_allowed() { step.state } else { state };
        }
        let record = ChargeRecord::credit(tokens);
        let credited = settle(&quota, &state, &record, now, 0);
        let (before, after) = (max_cost(&quota, &state, now), max_cost(&quota, &credited, now));
        let expected = before.saturating_add(tokens).min(quota.get_capacity());
        let less = u64::from(quota.algorithm() == tollgate::algorithm::Algorithm::SlidingWindow && tokens > 0);
        prop_assert!(after <= expected && after + less >= expected, "{} + {} = {}", before, tokens, after);
        prop_assert!(credited.spent >= 0.0 && credited.carry >= 0.0);
        if after > before {
            prop_assert!(takes_effect(&quota, &state, &record, now, 0));
        }
        if state == State::default() && tokens > 0 {
            prop_assert!(!takes_effect(&quota, &state, &record, now, 0));
        }
    }
}
