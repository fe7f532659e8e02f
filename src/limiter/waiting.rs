//! Turns: when they come, and how many may wait for theirs.

use std::fmt;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::RateLimiter;
use crate::algorithm::Micros;
use crate::clock::Sleep;
use crate::policy::{DecidedBy, Decisions};
use crate::sync::atomic::Ordering;

/// When a turn comes, and what waits for it.
pub(crate) struct DueTimer {
    /// By the backend's time.
    due: Micros,
    /// Added to it.
    extra_delay: Duration,
    /// By this machine's time, if the backend's runs as that does. `None` is further away than the machine can tell.
    instant: Option<Instant>,
    sleep: Option<Sleep>,
}

impl DueTimer {
    /// The last of the turns, and `later` than that; `None` if there is no need to wait.
    pub(super) fn new(limiter: &RateLimiter, decisions: &Decisions, extra_delay: Duration) -> Option<DueTimer> {
        let last = decisions.iter().max_by_key(|decision| decision.delay())?;
        if last.delay().is_zero() {
            return None;
        }
        let due = last.due();
        let sleep = match last.decided_by() {
            DecidedBy::Backend => limiter.inner.backend.sleep_until(due + extra_delay),
            DecidedBy::Limiter => limiter.inner.time.sleep_until(due + extra_delay),
            // The fallback's decision is by its own clock.
            _ => None,
        };
        Some(DueTimer {
            due,
            extra_delay,
            instant: Instant::now().checked_add(last.delay().saturating_add(extra_delay)),
            sleep,
        })
    }

    /// It comes at `due` now, which is earlier.
    pub(super) fn move_up(&mut self, limiter: &RateLimiter, due: Micros) {
        if due < self.due {
            self.instant = self.instant.and_then(|instant| instant.checked_sub(self.due.since(due)));
            self.sleep = limiter.inner.backend.sleep_until(due + self.extra_delay);
            self.due = due;
        }
    }

    /// Ready when it has come, and not before.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        // A timer needs its runtime, so it begins when it is polled.
        let sleep = self.sleep.get_or_insert_with(|| match self.instant {
            #[cfg(feature = "wait")]
            Some(instant) => Box::pin(tokio::time::sleep_until(instant.into())),
            // Further away than there is time; and without the feature nobody can ask to wait.
            _ => Box::pin(std::future::pending()),
        });
        sleep.as_mut().poll(context)
    }
}

impl fmt::Debug for DueTimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DueTimer")
            .field("due", &self.due)
            .field("extra_delay", &self.extra_delay)
            .finish_non_exhaustive()
    }
}

/// A place among those who wait.
#[derive(Debug)]
pub(crate) struct WaitSlot(RateLimiter);

impl RateLimiter {
    /// How many wait for their turns at the moment, in layers and in [`wait_up_to`](super::Acquire::wait_up_to).
    ///
    /// ```
    /// use tollgate::{clock::ManualClock, MemoryBackend, Policy, Quota, RateLimiter, MINUTE, SECOND};
    ///
    /// static CALLS: Policy = Policy::new("calls", Quota::token_bucket(1, SECOND).capacity(0).max_reserved(10));
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let clock = ManualClock::new();
    /// let limiter = RateLimiter::new(MemoryBackend::builder().clock(clock.clone()).build());
    /// let turn = limiter.acquire(&CALLS, "ada").wait_up_to(MINUTE);
    /// assert_eq!(limiter.waiting(), 1);
    /// clock.advance(SECOND);
    /// turn.await?;
    /// assert_eq!(limiter.waiting(), 0);
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "wait")]
    pub fn waiting(&self) -> usize {
        self.inner.waiting.load(Ordering::Relaxed)
    }

    /// A place among those who wait, if there is one left. Taken before the decision: who has none is decided without
    /// waiting, and no turn is promised that nobody waits for.
    pub(crate) fn wait_slot(&self) -> Option<WaitSlot> {
        // Not added first and taken off again: meanwhile, somebody else would be told that there is none.
        let one_more = |taken| (taken < self.inner.max_waiting).then_some(taken + 1);
        self.inner.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(WaitSlot(self.clone()))
    }
}

impl Drop for WaitSlot {
    fn drop(&mut self) {
        self.0.inner.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How many wait at once, unless a limiter is told otherwise.
pub(super) const MAX_WAITING: usize = 10_000;
