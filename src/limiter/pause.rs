//! Pausing rows. While a row is paused, enforced calls are held or denied, and charge nothing to it.

use std::time::Duration;

use smallvec::SmallVec;

use super::future::Answer;
use super::guard::MAX_PAUSES;
use super::notices::NoticeContent;
use super::{DecisionFuture, Inner, LimitError, RateLimiter};
use crate::algorithm::{Ask, Micros, State, Step, Verdict};
use crate::backend::{BackendFuture, Error, ErrorKind, RowId, Take};
use crate::policy::{ChargedQuota, DecidedBy, Decision, Decisions, Policy, PolicyName, Subject};

impl RateLimiter {
    /// Pauses one key under a policy, for example because the API that the key stands for has responded with 429 and
    /// `Retry-After`. If the key is already paused, the pause that ends later stays in effect.
    ///
    /// During a pause, nothing is charged to the key. A call that may wait until the end of the pause is held until
    /// then. A call that is already waiting, but may not wait that long, is denied at its due time. All other calls are
    /// denied immediately with [`Reason::Blocked`](crate::Reason::Blocked) and the time until the end of the pause.
    ///
    /// At the end of the pause, each held call reserves tokens behind the existing reservations. The call is denied if
    /// the tokens would be due too late or the quota allows no further reservations. To pause a request's key in a
    /// layer, use [`OnResponse::Pause`](crate::OnResponse::Pause).
    ///
    /// ```
    /// # use tollgate::{Policy, Quota, RateLimiter, Reason, SECOND};
    /// static CALLS: Policy = Policy::new("calls", Quota::token_bucket(10, SECOND));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::backend::Error> {
    /// # let limiter = RateLimiter::default();
    /// limiter.pause(&CALLS, "api.example.com", 20 * SECOND).await?;
    /// assert_eq!(limiter.try_limit(&CALLS, "api.example.com").await?.reason(), Reason::Blocked);
    /// limiter.resume(&CALLS, "api.example.com").await?;
    /// assert!(limiter.try_limit(&CALLS, "api.example.com").await?.is_allowed());
    /// # Ok(()) }
    /// ```
    ///
    /// The pause takes effect immediately in this process, even if the future is dropped, and within a second in the
    /// other processes on a shared backend.
    ///
    /// # Errors
    /// Fails if 10,000 keys are already paused, or if other processes cannot be notified. In the latter case, the pause
    /// still takes effect in this process.
    pub fn pause(&self, policy: &Policy, subject: impl Into<Subject>, lasts: Duration) -> BackendFuture<()> {
        self.inner.pause(RowId { policy: policy.name(), key: self.row_key(subject.into().key()) }, lasts)
    }

    /// Ends a pause. Calls that are already on hold keep waiting until the pause would have ended.
    ///
    /// # Errors
    /// Fails if the backend cannot notify the other processes. The pause still ends in this process.
    pub fn resume(&self, policy: &Policy, subject: impl Into<Subject>) -> BackendFuture<()> {
        let row = RowId { policy: policy.name(), key: self.row_key(subject.into().key()) }.lasting_digest();
        self.inner.guard.pauses.resume(row);
        self.inner.publish(&NoticeContent::Pause(row, None))
    }

    /// When charges are due, checks whether their rows are paused or their keys are manually blocked. If a row is
    /// paused, returns decisions that are due at the end of the pause. Fails if the pause ends after `last`, or if a
    /// key is blocked.
    pub(super) fn pause_or_denial(
        &self,
        decisions: &Decisions,
        last: Option<Micros>,
    ) -> Result<Option<Decisions>, LimitError> {
        let Inner { guard, time, .. } = &*self.inner;
        if !guard.is_needed() {
            return Ok(None);
        }
        let (mut takes, now) = (takes(decisions, Ask::cost), time.now());
        takes.retain(|take| take.part.enforced);
        if let Some(until) = takes.iter().filter_map(|take| guard.manual.blocked(take.row.key, now)).max() {
            self.deny_late(self.deny_all(&takes, until.since(now)))?;
        }
        let patience = last.map_or(Duration::MAX, |last| last.since(now));
        match self.paused(&takes, patience) {
            Some(held) if held.is_allowed() => Ok(Some(held)),
            Some(denied) => self.deny_late(denied).map(|()| None),
            None => Ok(None),
        }
    }

    /// If a row is paused, returns decisions that hold the call until the end of the pause, or that deny it if the wait
    /// would exceed `patience`. A pause does not apply to charges in shadow mode.
    pub(super) fn paused(&self, takes: &[Take<'_>], patience: Duration) -> Option<Decisions> {
        let Inner { guard, time, .. } = &*self.inner;
        let now = time.now();
        let enforced = takes.iter().filter(|take| take.part.enforced);
        let wait = guard.pauses.until(enforced.map(|take| take.row.lasting_digest()), now)?.since(now);
        if wait > patience {
            return Some(self.deny_all(takes, wait));
        }
        // Nothing is charged yet. The backend decides at the end of the pause.
        let step = Step { verdict: Verdict::Reserve { wait }, state: State::default(), now: time.calendar() };
        Some(takes.iter().map(|take| take.decision(&step, true).by(DecidedBy::Limiter)).collect())
    }

    pub(super) fn ask_again(&self, decisions: &Decisions, last: Option<Micros>) -> DecisionFuture<Answer> {
        let wait = last.map(|last| last.since(self.inner.time.now()));
        let ask = |cost| wait.map_or(Ask::cost(cost).reserve(), |wait| Ask::cost(cost).wait_up_to(wait));
        // The policies may have been reset during the pause.
        let current = |decision: &Decision| self.inner.overrides.current(decision.policy()).into_owned();
        let policies: SmallVec<[PolicyName; 2]> = decisions.iter().map(current).collect();
        let mut takes = takes(decisions, ask);
        takes.iter_mut().zip(&policies).for_each(|(take, policy)| take.row.policy = policy);
        self.decide_again(takes)
    }

    pub(crate) fn pause_row(&self, decision: &Decision, lasts: Duration) -> BackendFuture<()> {
        self.inner.pause(RowId { policy: decision.policy(), key: decision.key() }, lasts)
    }

    pub(crate) fn latest(&self, wait: Duration) -> Micros {
        self.inner.time.now() + wait
    }

    fn deny_all(&self, takes: &[Take<'_>], wait: Duration) -> Decisions {
        let now = self.inner.time.calendar();
        takes.iter().map(|take| Decision::blocked(take.charged(), None, now, Some(wait))).collect()
    }

    fn deny_late(&self, denied: Decisions) -> Result<(), LimitError> {
        self.observe_late(&denied);
        denied.into_result()?;
        Ok(())
    }
}

impl Inner {
    pub(super) fn pause(&self, row: RowId<'_>, lasts: Duration) -> BackendFuture<()> {
        let (row, now) = (row.lasting_digest(), self.time.now());
        if lasts.is_zero() {
            return BackendFuture::ready(Ok(()));
        }
        if !self.guard.pauses.pause(row, now, now + lasts) {
            let message = format!(
                "{MAX_PAUSES} keys are already paused, which is the maximum; resume some, or pause for a shorter time"
            );
            return BackendFuture::ready(Err(Error::new(ErrorKind::Unsupported, message)));
        }
        self.publish(&NoticeContent::Pause(row, Some(lasts)))
    }
}

fn takes(decisions: &Decisions, ask: impl Fn(u64) -> Ask) -> SmallVec<[Take<'_>; 4]> {
    let mut takes = SmallVec::new();
    for decision in decisions {
        let ChargedQuota { ref policy, row_key: key, window, part, .. } = *decision.of();
        takes.push(Take::part(RowId { policy, key }, window, &decision.of().quota, ask(decision.cost()), part).whole());
    }
    takes
}
