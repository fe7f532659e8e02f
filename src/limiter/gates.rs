//! The way of a call through all gates; what each of them does is in `call`.

use smallvec::SmallVec;

use super::call::{Call, Lines};
use super::future::{DecisionFuture, DecisionsFuture, Line};
use super::{Circumstances, RateLimiter};
use crate::algorithm::Ask;
use crate::backend::{Error, Take};
use crate::policy::{Decision, Decisions, Policy, Signals, Subject};

impl RateLimiter {
    /// One charge, if the rows are not at hand.
    #[inline(never)]
    pub(super) fn decide_one_elsewhere(
        &self,
        policy: &Policy,
        subject: Subject,
        ask: Ask,
        signals: Option<&Signals>,
        take: bool,
    ) -> DecisionFuture {
        if self.is_plain() {
            return self.ask_for_one(policy, &subject, ask, take);
        }
        let none = Signals::new();
        let around = Circumstances { take, enforced: true, signals: signals.unwrap_or(&none) };
        let lines = Lines::from_iter([(policy, &subject, ask)]);
        let mut call = Call::new(self, &lines, around);
        let takes = self.takes_changed(&lines);
        match self.gates(&lines, around.signals, &takes, &mut call) {
            Some(answer) => DecisionFuture::of_one(answer),
            None => DecisionFuture::of(self.ask_at_gate_5(&takes, call)),
        }
    }

    /// All gates, in their order; the first is whoever calls. What comes after the backend is in
    /// [`conclude`](RateLimiter::conclude).
    pub(super) fn decide_gate_by_gate(&self, lines: &Lines<'_>, around: Circumstances<'_>) -> DecisionsFuture {
        let mut call = Call::new(self, lines, around);
        let takes = self.takes_changed(lines);
        match self.gates(lines, around.signals, &takes, &mut call) {
            Some(answer) => DecisionsFuture::ready(answer),
            None => self.ask_at_gate_5(&takes, call),
        }
    }

    /// One token, if somebody in this process can tell.
    #[cold]
    #[inline(never)]
    pub(super) fn now_or_never(&self, policy: &Policy, subject: Subject, ask: Ask, answer: &mut Option<Decision>) {
        *answer = self.told_now(policy, &subject, ask);
    }

    fn told_now(&self, policy: &Policy, subject: &Subject, ask: Ask) -> Option<Decision> {
        let is_remote = self.inner.backend.is_remote();
        if self.is_plain() {
            return if is_remote { None } else { self.ask_for_one(policy, subject, ask, true).try_ready()?.ok() };
        }
        let around = Circumstances { take: true, enforced: true, signals: &Signals::new() };
        let lines = Lines::from_iter([(policy, subject, ask)]);
        let mut call = Call::new(self, &lines, around);
        let takes = self.takes_changed(&lines);
        let decisions = match self.gates(&lines, around.signals, &takes, &mut call) {
            Some(answer) => answer,
            None if is_remote => return None,
            None => self.ask_at_gate_5(&takes, call).try_ready().ok()?,
        };
        decisions.ok()?.into_only()
    }

    /// Gates 2 and 4, and all that come after if the rows are in memory: the answer. `None`: the backend is to be asked.
    /// Gate 3 made the takes: who is denied at gate 2 is told the quota, too.
    // Nothing large is handed on by value here: moves were most of what an observer cost.
    fn gates(
        &self,
        lines: &Lines<'_>,
        signals: &Signals,
        takes: &Takes<'_>,
        call: &mut Call,
    ) -> Option<Result<Decisions, Error>> {
        // 2. The deny list, or a block.
        if let Some(barred) = self.barred(lines, takes, signals, call) {
            self.observed(call, &barred);
            return Some(Ok(barred));
        }
        // 4. The block cache.
        if let Some(cache) = &self.inner.block_cache {
            let now = self.inner.time.now();
            if let Some(steps) = cache.denies(takes, now) {
                return Some(self.remembered(call, takes, &steps));
            }
            call.permit = Some(cache.permit(takes, now));
        }
        // 5. The backend that answers at once, and cannot fail.
        let decided = self.decide_in_memory(takes, call.take)?;
        self.protected(call, &decided);
        Some(Ok(decided))
    }

    /// 3. The quota: the policy's, the tier's, or what was set in its place.
    fn takes_changed<'a>(&self, lines: &Lines<'a>) -> Takes<'a> {
        lines.iter().map(|(policy, subject, ask)| self.take_changed(policy, subject, *ask)).collect()
    }

    /// 5. The backend: all of them, or none.
    fn ask_at_gate_5(&self, takes: &[Take<'_>], call: Call) -> DecisionsFuture {
        let take = call.take;
        let steps = self.ask_backend(takes, take);
        DecisionsFuture::new(self, takes, take, Some(call), steps)
    }

    /// 6. The failure mode: another decision in the backend's stead, or its error.
    #[cold]
    pub(super) fn failed(&self, lines: &[Line], take: bool, error: Error) -> Result<Decisions, Error> {
        self.inner.failure.decide(lines, take, error)
    }

    #[cold]
    pub(super) fn failed_one(&self, line: &Line, take: bool, error: Error) -> Result<Decision, Error> {
        let decisions = self.failed(std::slice::from_ref(line), take, error)?;
        match decisions.into_only() {
            Some(decision) => Ok(decision),
            None => unreachable!("one line, one decision"),
        }
    }
}

/// What is asked of the backend, under the quotas that hold now.
type Takes<'a> = SmallVec<[Take<'a>; 2]>;
