//! Policies with divided quotas, random calls to them, and the bound that all shards together must keep.

use std::time::Duration;

use tollgate::algorithm::{Algorithm, Ask, Micros, State, Verdict, step};
use tollgate::policy::{Decisions, Quotas};
use tollgate::{Charge, HOUR, MINUTE, Policy, Quota, SECOND};

use super::random::Random;

pub(crate) const SHARDS: [u64; 4] = [1, 2, 7, 64];

/// Policies with 1 to 4 quotas, each with 1, 2, 7 or 64 shards.
pub(crate) fn policies() -> Vec<Policy> {
    let ms = Duration::from_millis(1);
    let lists = [
        vec![Quota::token_bucket(70, 40 * ms)],
        vec![Quota::fixed_window(131, 70 * ms), Quota::token_bucket(100, SECOND).capacity(300)],
        vec![Quota::sliding_window(90, 60 * ms), Quota::token_bucket(200, SECOND).capacity(99), Quota::per_hour(5000)],
        vec![
            Quota::token_bucket(80, 30 * ms).capacity(65).max_reserved(70),
            Quota::fixed_window(120, 200 * ms).capacity(150).unlimited_reservations(),
            Quota::token_bucket(600, MINUTE).capacity(3000).max_reserved(64),
            Quota::sliding_window(10_000, HOUR),
        ],
    ];
    let mut policies = Vec::new();
    for shards in SHARDS {
        for (i, list) in lists.iter().enumerate() {
            let divided = list.iter().map(|quota| quota.shards(shards));
            let add = |all: Option<Quotas>, quota: Quota| Some(all.map_or(quota.into(), |all| all.and(quota)));
            let quotas = divided.fold(None, add).expect("expected quotas");
            policies.push(Policy::try_new(format!("{shards} shards {i}"), quotas).expect("expected a policy"));
        }
    }
    policies
}

/// What the calls for one key have spent under each quota.
#[derive(Default)]
pub(crate) struct Spending(Vec<QuotaSpending>);

#[derive(Clone, Default)]
struct QuotaSpending {
    /// The row that the quota would have if it were not divided.
    undivided: State,
    /// The due times and costs of all admitted calls.
    due: Vec<(Micros, u64)>,
}

impl Spending {
    /// Adds a call. If it was allowed, checks it against the undivided quotas.
    pub(crate) fn add(&mut self, ask: Ask, decisions: &Decisions) {
        self.0.resize(decisions.iter().count(), QuotaSpending::default());
        if !decisions.is_allowed() {
            return;
        }
        for (spending, decision) in self.0.iter_mut().zip(decisions) {
            let (quota, now) = (decision.quota(), decision.step().now);
            if quota.get_max_reserved() == Some(0) {
                let undivided = step(&quota, &spending.undivided, now, ask);
                assert_eq!(undivided.verdict, Verdict::Allow, "{quota}: {ask:?}");
                spending.undivided = undivided.state;
            } else {
                spending.due.push((now + decision.delay(), ask.tokens()));
                spending.check_bound(&quota);
            }
        }
    }
}

impl QuotaSpending {
    /// Checks that the tokens that become due in an interval never exceed the capacity plus the refilled tokens. A
    /// reservation counts when it becomes due, not when it is granted, because other shards may allow calls in between.
    /// For windows, only intervals that start at the first due time are checked, because a reservation may use tokens
    /// from several windows.
    fn check_bound(&mut self, quota: &Quota) {
        self.due.sort();
        let boundaries =
            |at: Micros| (at.get() - quota.get_start().unwrap_or_default().as_micros() as u64) / micros(quota);
        let starts = if quota.algorithm() == Algorithm::TokenBucket { self.due.len() } else { 1 };
        for (i, (from, _)) in self.due.iter().enumerate().take(starts) {
            let mut tokens = 0;
            for (until, cost) in &self.due[i..] {
                tokens += cost;
                let refilled = match quota.algorithm() {
                    Algorithm::TokenBucket => quota.rate() * (until.get() - from.get()) / micros(quota),
                    _ => quota.rate() * (boundaries(*until) - boundaries(*from)),
                };
                assert!(
                    tokens <= quota.get_capacity() + refilled,
                    "{quota}: {tokens} tokens from {from:?} to {until:?}"
                );
            }
        }
    }
}

fn micros(quota: &Quota) -> u64 {
    quota.period().as_micros() as u64
}

/// Generates a cost and, if the policy allows reservations, sometimes a maximum wait.
pub(crate) fn ask(policy: &Policy, random: &mut Random) -> Ask {
    let quotas = policy.quotas();
    let reserves = quotas.iter().any(|quota| quota.get_max_reserved() != Some(0));
    // Do not generate reservations larger than the capacity of a shard. They are due only when their last token is
    // available, so `check_bound` does not apply to them.
    let share = quotas.iter().map(|quota| quota.get_capacity() / quota.get_shards()).min().unwrap_or(1);
    let most = if random.below(3) == 0 { 40 } else { 4 };
    let ask = Ask::cost(random.below(if reserves { most.min(share + 1) } else { most }));
    match random.below(4) {
        0 if reserves => ask.wait_up_to(Duration::from_millis(random.below(60))),
        _ => ask,
    }
}

pub(crate) fn charge(policy: &Policy, ask: Ask) -> Charge<'_> {
    let charge = Charge::new(policy, "ada").cost(ask.tokens());
    match ask.max_wait() {
        Some(wait) => charge.reserve_within(wait),
        None => charge,
    }
}
