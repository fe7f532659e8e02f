//! The plain way of a call: nobody but the backend has a say. Most calls go it, so it is kept short.

use std::borrow::Borrow;
use std::mem::ManuallyDrop;

use smallvec::SmallVec;

use super::RateLimiter;
use super::future::{DecisionFuture, DecisionsFuture};
use crate::algorithm::{Ask, Quota, Stepped};
use crate::backend::{MemoryBackend, RowId, Take};
use crate::policy::{Decision, Decisions, Policy, Signals, Subject};

impl RateLimiter {
    /// [`decide`](RateLimiter::decide) for the one charge that most calls are.
    #[inline(always)]
    pub(super) fn decide_one(
        &self,
        policy: &Policy,
        subject: Subject,
        ask: Ask,
        signals: Option<&Signals>,
        take: bool,
    ) -> DecisionFuture {
        let Some(memory) = self.rows_at_hand() else {
            return self.decide_one_elsewhere(policy, subject, ask, signals, take);
        };
        let (row, quota) = self.asked(policy, subject);
        usual(memory, row, quota, ask, take, |quota, step| DecisionFuture::ready(decided(row, quota, ask, step)))
    }

    /// The same for whoever cannot wait. `None`: nobody can tell at once.
    #[inline(always)]
    pub(super) fn decide_now(&self, policy: &Policy, subject: Subject, ask: Ask) -> Option<Decision> {
        let Some(memory) = self.rows_at_hand() else {
            // In a place of its own, for whoever is called to point at: so of a decision only what the caller looks at
            // is ever written. See `Rare`.
            let mut answer = None;
            self.now_or_never(policy, subject, ask, &mut answer);
            return answer;
        };
        let (row, quota) = self.asked(policy, subject);
        Some(usual(memory, row, quota, ask, true, |quota, step| decided(row, quota, ask, step)))
    }

    /// Which row, and under which quota: all that a subject is good for, if nobody but the backend has a say.
    #[inline(always)]
    fn asked<'a>(&self, policy: &'a Policy, subject: Subject) -> (RowId<'a>, &'a Quota) {
        // Whoever unwinds drops what is here by a pointer to it, so it would have to lie in memory, always. Nobody
        // unwinds between these lines.
        let subject = ManuallyDrop::new(subject);
        let row = RowId { policy: policy.name(), key: self.row_key(subject.key()) };
        let quota = policy.quota_for(subject.tier_name());
        drop(ManuallyDrop::into_inner(subject));
        (row, quota)
    }

    /// The rows, if they are in memory and no other gate has a say.
    #[inline(always)]
    fn rows_at_hand(&self) -> Option<&MemoryBackend> {
        if self.is_plain() { self.inner.backend.memory() } else { None }
    }

    pub(super) fn ask_for_one(&self, policy: &Policy, subject: &Subject, ask: Ask, take: bool) -> DecisionFuture {
        let one = self.take(policy, subject, ask);
        let steps = self.ask_backend(std::slice::from_ref(&one), take);
        DecisionFuture::new(self, &one, take, steps)
    }

    /// When no other gate has a say.
    pub(super) fn decide_plainly<'a, S: Borrow<Subject>>(
        &self,
        charges: impl Iterator<Item = (&'a Policy, S, Ask)>,
        take: bool,
    ) -> DecisionsFuture {
        let takes: SmallVec<[Take<'a>; 4]> =
            charges.map(|(policy, who, ask)| self.take(policy, who.borrow(), ask)).collect();
        if let Some(decisions) = self.decide_in_memory(&takes, take) {
            return DecisionsFuture::ready(Ok(decisions));
        }
        let steps = self.ask_backend(&takes, take);
        DecisionsFuture::new(self, &takes, take, None, steps)
    }

    /// The decisions, if the rows are in memory.
    pub(super) fn decide_in_memory(&self, takes: &[Take<'_>], take: bool) -> Option<Decisions> {
        let memory = self.inner.backend.memory()?;
        let steps = memory.decide(takes, take);
        let granted = steps.all_granted();
        let decided = takes.iter().zip(steps.iter()).map(|(Take { row, quota, ask }, step)| {
            Decision::new(row.policy.clone(), row.key, *quota, ask.tokens(), *step, granted)
        });
        Some(decided.collect())
    }
}

/// One charge of one policy on rows that are [at hand](RateLimiter::rows_at_hand): what most calls come to. `then` is told
/// of the step, and under which quota it was.
#[inline(always)] // What goes through memory from one function to another comes late.
fn usual<T>(
    memory: &MemoryBackend,
    row: RowId<'_>,
    quota: &Quota,
    ask: Ask,
    take: bool,
    then: impl FnOnce(&Quota, Stepped) -> T,
) -> T {
    let seeded;
    let quota = if quota.wants_seed() {
        seeded = row.seeded(quota);
        &seeded
    } else {
        quota
    };
    let step = match memory.decide_one(&row, quota, ask, take) {
        Some(step) => step,
        None => decide_newcomer(memory, row, quota, ask, take),
    };
    then(quota, step)
}

/// A row that is not there yet, or of an unusual kind.
#[cold]
fn decide_newcomer(memory: &MemoryBackend, row: RowId<'_>, quota: &Quota, ask: Ask, take: bool) -> Stepped {
    match memory.decide_all(&[Take { row, quota: *quota, ask }], take)[..] {
        [step] => Stepped::of(step),
        _ => unreachable!("one take, one step"),
    }
}

#[inline(always)]
fn decided(row: RowId<'_>, quota: &Quota, ask: Ask, step: Stepped) -> Decision {
    Decision::of_one(row.policy.clone(), row.key, quota, ask.tokens(), step)
}
