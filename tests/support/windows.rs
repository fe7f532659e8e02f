//! Policies with several quotas, random calls to them, and a reference that decides each quota on its own.

use std::collections::HashMap;
use std::time::Duration;

use tollgate::algorithm::{Ask, State, step};
use tollgate::policy::{Decisions, Quotas};
use tollgate::{Charge, HOUR, MINUTE, Policy, Quota, SECOND, Subject};

use super::random::Random;

pub(crate) fn policies() -> Vec<Policy> {
    let ms = Duration::from_millis(1);
    let list = |quotas: &[Quota]| {
        quotas[1..]
            .iter()
            .fold(Quotas::from(quotas[0]), |list, quota| list.try_and(*quota).expect("expected different periods"))
    };
    let lists = [
        list(&[Quota::token_bucket(5, 40 * ms)]),
        list(&[Quota::token_bucket(5, 40 * ms), Quota::fixed_window(40, SECOND)]),
        list(&[Quota::sliding_window(6, 60 * ms), Quota::token_bucket(20, SECOND).capacity(9), Quota::per_hour(5000)]),
        list(&[
            Quota::token_bucket(4, 30 * ms).capacity(2).max_reserved(3),
            Quota::fixed_window(12, 200 * ms).capacity(15),
            Quota::token_bucket(60, MINUTE).capacity(30),
            Quota::sliding_window(1000, HOUR),
        ]),
    ];
    lists
        .into_iter()
        .enumerate()
        .map(|(i, list)| Policy::try_new(format!("windows {i}"), list).expect("expected a policy"))
        .collect()
}

/// The states of each key under each policy, with one state for each quota.
#[derive(Default)]
pub(crate) struct Reference(HashMap<(String, u64), Vec<State>>);

impl Reference {
    /// Checks that the decisions of a call with a single charge match the results of `step` for each quota.
    pub(crate) fn check(&mut self, policy: &Policy, key: u64, ask: Ask, decisions: &Decisions, store: bool) {
        let states = self.0.entry((policy.name().to_string(), key)).or_default();
        states.resize(policy.quotas().len(), State::default());
        assert_eq!(decisions.iter().count(), states.len());
        let steps: Vec<_> = decisions
            .iter()
            .zip(&*states)
            .map(|(decision, state)| step(&decision.quota(), state, decision.step().now, ask))
            .collect();
        let allowed = steps.iter().all(tollgate::algorithm::Step::is_allowed);
        assert_eq!(decisions.is_allowed(), allowed);
        for (decision, step) in decisions.iter().zip(&steps) {
            assert_eq!(decision.is_violated(), !step.is_allowed());
            if !step.is_allowed() || allowed && store {
                assert_eq!(decision.step().verdict, step.verdict);
            }
        }
        if allowed && store {
            for (state, step) in states.iter_mut().zip(steps) {
                *state = step.state;
            }
        }
    }

    pub(crate) fn reset(&mut self, policy: &Policy, key: u64) {
        self.0.remove(&(policy.name().to_string(), key));
    }
}

/// Generates a cost and, if the policy allows reservations, sometimes a maximum wait.
pub(crate) fn ask(policy: &Policy, random: &mut Random) -> Ask {
    let ask = Ask::cost(random.below(4));
    let reserves = policy.quotas().iter().any(|quota| quota.get_max_reserved() != Some(0));
    match random.below(4) {
        0 if reserves => ask.wait_up_to(Duration::from_millis(random.below(60))),
        _ => ask,
    }
}

pub(crate) fn charge<'a>(policy: &'a Policy, key: u64, ask: Ask) -> Charge<'a> {
    let charge = Charge::new(policy, Subject::new(key)).cost(ask.tokens());
    match ask.max_wait() {
        Some(wait) => charge.reserve_within(wait),
        None => charge,
    }
}
