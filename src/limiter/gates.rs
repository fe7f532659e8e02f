//! The way of a call through all gates; what each of them does is in `call`.

use smallvec::SmallVec;

use super::call::{Call, Lines};
use super::future::{DecisionFuture, DecisionsFuture, Line};
use super::{Circumstances, RateLimiter};
use crate::algorithm::Ask;
use crate::backend::{Error, Take};
use crate::policy::{Decision, Decisions, Policy, Signals, Subject};

impl RateLimiter {
    #[cold]
    pub(super) fn decide_one_gate_by_gate(
        &self,
        policy: &Policy,
        subject: &Subject,
        ask: Ask,
        signals: Option<&Signals>,
        take: bool,
    ) -> DecisionFuture {
        let none = Signals::new();
        let around = Circumstances { take, enforced: true, signals: signals.unwrap_or(&none) };
        DecisionFuture::of(self.decide_gate_by_gate(&Lines::from_iter([(policy, subject, ask)]), around))
    }

    /// All gates, in their order; the first is whoever calls. What comes after the backend is in
    /// [`conclude`](RateLimiter::conclude).
    pub(super) fn decide_gate_by_gate(&self, lines: &Lines<'_>, around: Circumstances<'_>) -> DecisionsFuture {
        match self.gates(lines, around) {
            Ok(answer) => DecisionsFuture::ready(answer),
            Err((takes, call)) => self.ask_at_gate_5(&takes, call),
        }
    }

    /// Gates 2 to 4: the answer, or what is to be asked of the backend.
    #[allow(clippy::result_large_err)] // It is no error, and is moved once.
    fn gates<'a>(
        &self,
        lines: &Lines<'a>,
        around: Circumstances<'_>,
    ) -> Result<Result<Decisions, Error>, Unanswered<'a>> {
        let mut call = Call::new(self, lines, around);
        // 2. The deny list, or a block.
        if let Some(barred) = self.barred(lines, around.signals, &call) {
            return Ok(self.observed(call, Ok(barred)));
        }
        // 3. The quota: the policy's, the tier's, or what was set in its place.
        let takes: SmallVec<[Take<'_>; 2]> =
            lines.iter().map(|(policy, subject, ask)| self.take_changed(policy, subject, *ask)).collect();
        // 4. The block cache.
        if let Some(cache) = &self.inner.block_cache {
            let now = self.inner.time.now();
            if let Some(steps) = cache.denies(&takes, now) {
                return Ok(self.remembered(call, &takes, &steps));
            }
            call.permit = Some(cache.permit(&takes, now));
        }
        Err((takes, call))
    }

    /// 5. The backend: all of them, or none.
    fn ask_at_gate_5(&self, takes: &[Take<'_>], call: Call) -> DecisionsFuture {
        let take = call.take;
        let steps = self.ask_backend(takes, take);
        DecisionsFuture::new(self, takes, take, Some(call), steps)
    }

    #[cold]
    pub(super) fn now_or_never(&self, policy: &Policy, subject: &Subject, ask: Ask) -> Option<Decision> {
        let is_remote = self.inner.backend.is_remote();
        if self.is_plain() {
            return if is_remote { None } else { self.ask_for_one(policy, subject, ask, true).try_ready()?.ok() };
        }
        let around = Circumstances { take: true, enforced: true, signals: &Signals::new() };
        let decisions = match self.gates(&Lines::from_iter([(policy, subject, ask)]), around) {
            Ok(answer) => answer,
            Err(_) if is_remote => return None,
            Err((takes, call)) => self.ask_at_gate_5(&takes, call).try_ready().ok()?,
        };
        decisions.ok()?.into_only()
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

/// What the first gates had nothing to say to.
type Unanswered<'a> = (SmallVec<[Take<'a>; 2]>, Call);
