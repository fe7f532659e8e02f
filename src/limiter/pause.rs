//! Pauses: nothing is charged to a row for a time, and calls that wait for a turn of it wait on.

use std::time::Duration;

use smallvec::SmallVec;

use super::future::Answer;
use super::guard::MAX_PAUSES;
use super::notices::NoticeContent;
use super::{DecisionFuture, Inner, LimitError, RateLimiter};
use crate::algorithm::{Ask, Micros, State, Step, Verdict};
use crate::backend::{BackendFuture, Error, ErrorKind, RowId, Take};
use crate::policy::{DecidedBy, Decision, Decisions, Policy, Subject};

impl RateLimiter {
    /// Pauses one key under a policy for so long from now on: for a client whose server answered 429 with `Retry-After`.
    /// Of two pauses, the one that ends later counts.
    ///
    /// | a call during the pause | what happens |
    /// | --- | --- |
    /// | waits for its turn already, with a wait that reaches the pause's end | it is held until then, and gets a new turn |
    /// | waits for its turn already, with a shorter wait | it is denied when its turn comes |
    /// | is new, and may wait until the pause's end (`wait_up_to`) | it is held until then, and gets a turn |
    /// | any other | it is denied at once, as [`Reason::Blocked`](crate::Reason::Blocked), with the time to the end |
    ///
    /// Calls that are held spend nothing meanwhile. When the pause ends they ask for turns again, within their waits and
    /// the quota's reservations, behind calls that were promised later turns before the pause began. A call that does not
    /// fit then is denied.
    ///
    /// The layer pauses its key by [`OnResponse::Pause`](crate::OnResponse::Pause).
    ///
    /// ```
    /// use tollgate::{clock::ManualClock, MemoryBackend, Policy, Quota, RateLimiter, Reason, MINUTE, SECOND};
    ///
    /// static CALLS: Policy = Policy::new("calls", Quota::token_bucket(10, SECOND).capacity(1).max_reserved(50));
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let clock = ManualClock::new();
    /// let limiter = RateLimiter::new(MemoryBackend::builder().clock(clock.clone()).build());
    /// limiter.pause(&CALLS, "api.example.com", 20 * SECOND).await?;
    /// let denied = limiter.try_check(&CALLS, "api.example.com").await?;
    /// assert_eq!((denied.reason(), denied.retry_after()), (Reason::Blocked, Some(20 * SECOND)));
    ///
    /// let held = limiter.acquire(&CALLS, "api.example.com").wait_up_to(MINUTE);
    /// clock.advance(20 * SECOND);
    /// held.await?;
    /// # Ok(()) }
    /// ```
    ///
    /// It holds in this process when this is called, also if the future is dropped. On a backend that processes share,
    /// the others learn of it within a second; until then, they send.
    ///
    /// # Errors
    /// If 10,000 keys are paused already. If the backend cannot notify the other processes; in this one the pause holds.
    pub fn pause(&self, policy: &Policy, subject: impl Into<Subject>, lasts: Duration) -> BackendFuture<()> {
        self.inner.pause(RowId { policy: policy.name(), key: self.row_key(subject.into().key()) }, lasts)
    }

    /// Ends a pause. Calls that are held already wait for the end that they know.
    ///
    /// ```
    /// # use tollgate::{Policy, Quota, RateLimiter, DAY, SECOND};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::backend::Error> {
    /// # static CALLS: Policy = Policy::new("calls", Quota::token_bucket(10, SECOND));
    /// let limiter = RateLimiter::default();
    /// limiter.pause(&CALLS, "api.example.com", DAY).await?;
    /// limiter.resume(&CALLS, "api.example.com").await?;
    /// assert!(limiter.try_check(&CALLS, "api.example.com").await?.is_allowed());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// If the backend cannot notify the other processes; in this one it holds.
    pub fn resume(&self, policy: &Policy, subject: impl Into<Subject>) -> BackendFuture<()> {
        let row = RowId { policy: policy.name(), key: self.row_key(subject.into().key()) }.digest();
        self.inner.guard.pauses.resume(row);
        self.inner.publish(&NoticeContent::Pause(row, None))
    }

    /// What stands in the way of charges whose turn has come, if something does: decisions to wait by until the end of a
    /// pause, which is no later than `last`.
    ///
    /// # Errors
    /// If the pause is longer, or one of the keys is blocked by hand.
    pub(super) fn pause_or_denial(
        &self,
        decisions: &Decisions,
        last: Option<Micros>,
    ) -> Result<Option<Decisions>, LimitError> {
        let Inner { guard, time, .. } = &*self.inner;
        if !guard.is_needed() {
            return Ok(None);
        }
        let (takes, now) = (takes(decisions, Ask::cost), time.now());
        if let Some(until) = takes.iter().filter_map(|take| guard.manual.blocked(take.row.key, now)).max() {
            self.deny_late(self.blocked_by_pause(&takes, until.since(now)))?;
        }
        let patience = last.map_or(Duration::MAX, |last| last.since(now));
        match self.paused(&takes, patience) {
            Some(held) if held.is_allowed() => Ok(Some(held)),
            Some(denied) => self.deny_late(denied).map(|()| None),
            None => Ok(None),
        }
    }

    /// The answer to a call whose rows are paused: to wait for the end of the pause if `patience` suffices, else a denial.
    pub(super) fn paused(&self, takes: &[Take<'_>], patience: Duration) -> Option<Decisions> {
        let Inner { guard, time, .. } = &*self.inner;
        let now = time.now();
        let wait = guard.pauses.until(takes.iter().map(|take| take.row.digest()), now)?.since(now);
        if wait > patience {
            return Some(self.blocked_by_pause(takes, wait));
        }
        // Nothing is charged yet: the backend is asked at the end of the pause.
        let step = Step { verdict: Verdict::Reserve { wait }, state: State::default(), now: time.calendar() };
        let held = takes.iter().map(|Take { row, quota, ask }| {
            let decision = Decision::new(row.policy.clone(), row.key, *quota, ask.tokens(), step, true);
            decision.by(DecidedBy::Limiter)
        });
        Some(held.collect())
    }

    /// Asks the backend for charges that were held until the end of a pause.
    pub(super) fn ask_again(&self, decisions: &Decisions, last: Option<Micros>) -> DecisionFuture<Answer> {
        let wait = last.map(|last| last.since(self.inner.time.now()));
        let ask = |cost| wait.map_or(Ask::cost(cost).reserve(), |wait| Ask::cost(cost).wait_up_to(wait));
        self.decide_again(&takes(decisions, ask))
    }

    /// Pauses the row of a decision.
    pub(crate) fn pause_row(&self, decision: &Decision, lasts: Duration) -> BackendFuture<()> {
        self.inner.pause(RowId { policy: decision.policy(), key: decision.key() }, lasts)
    }

    /// The latest instant that a call which begins now waits for.
    pub(crate) fn latest(&self, wait: Duration) -> Micros {
        self.inner.time.now() + wait
    }

    fn blocked_by_pause(&self, takes: &[Take<'_>], wait: Duration) -> Decisions {
        let now = self.inner.time.calendar();
        let denials = takes.iter().map(|Take { row, quota, ask }| {
            Decision::blocked(row.policy.clone(), row.key, *quota, ask.tokens(), None, now, Some(wait))
        });
        denials.collect()
    }

    fn deny_late(&self, denied: Decisions) -> Result<(), LimitError> {
        self.observe_late(&denied);
        denied.into_result()?;
        Ok(())
    }
}

impl Inner {
    /// Pauses a row, here and on the other limiters of the backend.
    pub(super) fn pause(&self, row: RowId<'_>, lasts: Duration) -> BackendFuture<()> {
        let (row, now) = (row.digest(), self.time.now());
        if lasts.is_zero() {
            return BackendFuture::ready(Ok(()));
        }
        if !self.guard.pauses.pause(row, now, now + lasts) {
            let message = format!("{MAX_PAUSES} keys are paused, the maximum; resume some, or pause for a shorter time");
            return BackendFuture::ready(Err(Error::new(ErrorKind::Unsupported, message)));
        }
        self.publish(&NoticeContent::Pause(row, Some(lasts)))
    }
}

/// The charges of decisions, as they would be asked for once more.
fn takes(decisions: &Decisions, ask: impl Fn(u64) -> Ask) -> SmallVec<[Take<'_>; 4]> {
    let mut takes = SmallVec::new();
    for decision in decisions {
        let row = RowId { policy: decision.policy(), key: decision.key() };
        takes.push(Take::new(row, decision.quota(), ask(decision.cost())));
    }
    takes
}
