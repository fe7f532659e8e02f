//! Timers for due times, and the limit on the number of waiting calls.

use std::fmt;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::RateLimiter;
use crate::algorithm::Micros;
use crate::clock::Sleep;
use crate::policy::{DecidedBy, Decisions};
use crate::sync::atomic::Ordering;

pub(crate) struct DueTimer {
    /// The due time by the backend's clock.
    due: Micros,
    extra_delay: Duration,
    /// The due time by this machine's clock, or `None` if it is too far in the future to be represented.
    instant: Option<Instant>,
    sleep: Option<Sleep>,
}

impl DueTimer {
    /// Creates a timer for the latest due time plus `extra_delay`. Returns `None` if no charge has to wait.
    pub(super) fn new(limiter: &RateLimiter, decisions: &Decisions, extra_delay: Duration) -> Option<DueTimer> {
        let last = decisions.iter().max_by_key(|decision| decision.delay())?;
        if last.delay().is_zero() {
            return None;
        }
        let due = last.due();
        let sleep = match last.decided_by() {
            DecidedBy::Backend => limiter.inner.backend.sleep_until(due + extra_delay),
            DecidedBy::Limiter => limiter.inner.time.sleep_until(due + extra_delay),
            // The fallback backend may use another clock.
            _ => None,
        };
        Some(DueTimer {
            due,
            extra_delay,
            instant: Instant::now().checked_add(last.delay().saturating_add(extra_delay)),
            sleep,
        })
    }

    pub(super) fn move_up(&mut self, limiter: &RateLimiter, due: Micros) {
        if due < self.due {
            self.instant = self.instant.and_then(|instant| instant.checked_sub(self.due.since(due)));
            self.sleep = limiter.inner.backend.sleep_until(due + self.extra_delay);
            self.due = due;
        }
    }

    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        // The timer is created on the first poll, because it needs a runtime.
        let sleep = self.sleep.get_or_insert_with(|| match self.instant {
            #[cfg(feature = "wait")]
            Some(instant) => Box::pin(tokio::time::sleep_until(instant.into())),
            // Either the due time cannot be represented, or the `wait` feature is off and nothing waits.
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

/// A slot for one of the `max_waiting` calls that may wait at the same time.
#[derive(Debug)]
pub(crate) struct WaitSlot(RateLimiter);

impl RateLimiter {
    /// Returns the number of calls that are waiting for their due times, in layers and in
    /// [`wait_up_to`](super::Acquire::wait_up_to).
    #[cfg(feature = "wait")]
    pub fn waiting(&self) -> usize {
        self.inner.waiting.load(Ordering::Relaxed)
    }

    /// Takes a slot if one is free. A call that gets no slot must not wait.
    pub(crate) fn wait_slot(&self) -> Option<WaitSlot> {
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

pub(super) const DEFAULT_MAX_WAITING: usize = 10_000;
