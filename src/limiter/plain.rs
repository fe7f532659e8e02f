//! The plain way of a call: nobody but the backend has a say. Most calls go it, so it is kept short.

use smallvec::SmallVec;

use super::RateLimiter;
use super::future::{DecisionFuture, DecisionsFuture};
use crate::algorithm::{Ask, Quota, Step};
use crate::backend::{FewSteps, MemoryBackend, RowId, Take};
use crate::policy::{Decision, Decisions, Digest, Policy, Signals, Subject};

impl RateLimiter {
    /// [`decide`](RateLimiter::decide) for the one charge that most calls are.
    #[inline]
    pub(super) fn decide_one(
        &self,
        policy: &Policy,
        subject: &Subject,
        ask: Ask,
        signals: Option<&Signals>,
        take: bool,
    ) -> DecisionFuture {
        if take {
            let answer = self
                .usual(policy, subject, ask, |row, quota, step| DecisionFuture::ready(decided(row, quota, ask, step)));
            if let Some(answer) = answer {
                return answer;
            }
        }
        if !self.is_plain() {
            return self.decide_one_gate_by_gate(policy, subject, ask, signals, take);
        }
        self.ask_for_one(policy, subject, ask, take)
    }

    #[inline(never)]
    pub(super) fn ask_for_one(&self, policy: &Policy, subject: &Subject, ask: Ask, take: bool) -> DecisionFuture {
        let one = self.take(policy, subject, ask);
        let steps = self.ask_backend(std::slice::from_ref(&one), take);
        DecisionFuture::new(self, &one, take, steps)
    }

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
                _ => self.row_key(subject.key()),
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

    /// One charge of one policy, if the rows are in memory and no other gate has a say: what most calls come to. `then` is
    /// told of the step, and under which quota it was. `None`: nothing was done.
    #[inline(always)] // What goes through memory from one function to another comes late.
    pub(crate) fn usual<T>(
        &self,
        policy: &Policy,
        subject: &Subject,
        ask: Ask,
        then: impl FnOnce(RowId<'_>, &Quota, Step) -> T,
    ) -> Option<T> {
        if !self.is_plain() {
            return None;
        }
        let memory = self.inner.backend.memory()?;
        let row = RowId { policy: policy.name(), key: self.row_key(subject.key()) };
        let quota = policy.quota_for(subject.tier_name());
        let seeded;
        let quota = if quota.wants_seed() {
            seeded = row.seeded(quota);
            &seeded
        } else {
            quota
        };
        let step = match memory.decide_one(&row, quota, ask, true) {
            Some(step) => step,
            None => decide_newcomer(memory, row, quota, ask)?,
        };
        Some(then(row, quota, step))
    }

    #[inline]
    pub(super) fn decide_now(&self, policy: &Policy, subject: &Subject, ask: Ask) -> Option<Decision> {
        match self.usual(policy, subject, ask, |row, quota, step| decided(row, quota, ask, step)) {
            Some(decision) => Some(decision),
            None => self.now_or_never(policy, subject, ask),
        }
    }
}

/// A row that is not there yet, or of an unusual kind.
#[cold]
fn decide_newcomer(memory: &MemoryBackend, row: RowId<'_>, quota: &Quota, ask: Ask) -> Option<Step> {
    memory.decide_all(&[Take { row, quota: *quota, ask }], true).first().copied()
}

#[inline(always)]
pub(crate) fn decided(row: RowId<'_>, quota: &Quota, ask: Ask, step: Step) -> Decision {
    Decision::new(row.policy.clone(), row.key, *quota, ask.tokens(), step, step.is_allowed())
}
