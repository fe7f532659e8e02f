//! The plain way of a call: nobody but the backend has a say. Most calls go it, so it is kept short.

use smallvec::SmallVec;

use super::RateLimiter;
use super::future::DecisionsFuture;
use crate::algorithm::{Ask, Quota, Step};
use crate::backend::{FewSteps, RowId, Take};
use crate::policy::{Decision, Decisions, Digest, Policy, Subject};

impl RateLimiter {
    /// When no other gate has a say.
    pub(super) fn decide_plainly<'a, L>(&self, lines: L, take: bool) -> DecisionsFuture
    where
        L: Iterator<Item = (&'a Policy, &'a Subject, Ask)>,
    {
        let mut takes: SmallVec<[Take<'a>; 4]> = SmallVec::new();
        let mut last: Option<(&Subject, Digest)> = None;
        for (policy, subject, ask) in lines {
            // Mostly one caller under several policies: comparing a key is cheaper than hashing it.
            let key = match last {
                Some((other, digest)) if other.key() == subject.key() => digest,
                _ => self.digest(subject.key()),
            };
            last = Some((subject, key));
            takes.push(Take::new(RowId { policy: policy.name(), key }, policy.quota_for(subject.tier_name()), ask));
        }
        if let Some(decisions) = self.decide_in_memory(&takes, take) {
            return DecisionsFuture::ready(Ok(decisions));
        }
        let steps = self.ask_backend(&takes, take);
        DecisionsFuture::new(self, &takes, take, None, steps)
    }

    /// The decisions, if the rows are in memory.
    pub(super) fn decide_in_memory(&self, takes: &[Take<'_>], take: bool) -> Option<Decisions> {
        let memory = self.inner.backend.memory()?;
        let mut steps = FewSteps::new();
        let is_usual = match takes {
            [one] => memory.decide_one(&one.row, &one.quota, one.ask, take).map(|step| steps.push(step)).is_some(),
            takes => memory.decide_few(takes, take, &mut steps),
        };
        if !is_usual {
            steps = memory.decide_all(takes, take).iter().copied().collect();
        }
        let granted = steps.iter().all(Step::is_allowed);
        let decisions = takes.iter().zip(&steps).map(|(Take { row, quota, ask }, step)| {
            Decision::new(row.policy.clone(), row.key, *quota, ask.tokens(), *step, granted)
        });
        Some(decisions.collect())
    }

    /// One token of one policy, if the rows are in memory and no other gate has a say: what most calls come to. `None`:
    /// nothing was done.
    pub(crate) fn decide_usual(&self, policy: &Policy, subject: &Subject) -> Option<Decision> {
        match self.usual(policy, subject, Ask::cost(1))? {
            Ok((row, quota, step)) => Some(decided(row, quota, 1, step)),
            Err(take) => self.decide_newcomer(take),
        }
    }

    pub(super) fn decide_now(&self, policy: &Policy, subject: &Subject, ask: Ask) -> Option<Decision> {
        match self.usual(policy, subject, ask) {
            Some(Ok((row, quota, step))) => Some(decided(row, quota, ask.tokens(), step)),
            Some(Err(take)) => self.decide_newcomer(take),
            None => self.now_or_never(policy, subject, ask),
        }
    }

    /// See [`decide_usual`](RateLimiter::decide_usual). An error is a take on a row that is not there yet, or of an unusual
    /// kind.
    #[inline(always)] // What goes through memory from one function to another comes late.
    #[allow(clippy::type_complexity)]
    pub(super) fn usual<'a>(
        &self,
        policy: &'a Policy,
        subject: &Subject,
        ask: Ask,
    ) -> Option<Result<(RowId<'a>, Quota, Step), Take<'a>>> {
        if !self.is_plain() {
            return None;
        }
        let memory = self.inner.backend.memory()?;
        let row = RowId { policy: policy.name(), key: self.digest(subject.key()) };
        let quota = policy.quota_for(subject.tier_name()).seeded(row.seed());
        Some(match memory.decide_one(&row, &quota, ask, true) {
            Some(step) => Ok((row, quota, step)),
            None => Err(Take { row, quota, ask }),
        })
    }

    #[cold]
    pub(super) fn decide_newcomer(&self, take: Take<'_>) -> Option<Decision> {
        let step = *self.inner.backend.memory()?.decide_all(std::slice::from_ref(&take), true).first()?;
        Some(decided(take.row, take.quota, take.ask.tokens(), step))
    }
}

#[inline(always)]
fn decided(row: RowId<'_>, quota: Quota, cost: u64, step: Step) -> Decision {
    Decision::new(row.policy.clone(), row.key, quota, cost, step, step.is_allowed())
}
