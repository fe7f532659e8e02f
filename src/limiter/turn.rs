//! Turns: when they come, and how many may wait for theirs.

use std::fmt;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::RateLimiter;
use crate::clock::Sleep;
use crate::policy::Decisions;

/// When a turn comes: what to wait for.
pub(crate) enum Turn {
    /// The backend has a time of its own.
    Backend(Sleep),
    /// Its time runs as this machine's does. `None` is further away than the machine can tell.
    Machine(Option<Instant>),
}

impl Turn {
    /// The last of the turns, and `later` than that; `None` if there is no need to wait.
    pub(super) fn new(limiter: &RateLimiter, decisions: &Decisions, later: impl FnOnce() -> Duration) -> Option<Turn> {
        let last = decisions.iter().max_by_key(|decision| decision.delay())?;
        if last.delay().is_zero() {
            return None;
        }
        let delay = last.delay().saturating_add(later());
        Some(match limiter.inner.backend.sleep_until(last.step().now + delay) {
            Some(sleep) => Turn::Backend(sleep),
            None => Turn::Machine(Instant::now().checked_add(delay)),
        })
    }

    /// A future that is done when the turn has come, and not before.
    pub(crate) fn sleep(self) -> Sleep {
        match self {
            Turn::Backend(sleep) => sleep,
            #[cfg(feature = "wait")]
            Turn::Machine(Some(instant)) => Box::pin(tokio::time::sleep_until(instant.into())),
            // Further away than there is time; and without the feature nobody can ask to wait.
            Turn::Machine(_) => Box::pin(std::future::pending()),
        }
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Turn::Backend(_) => f.write_str("Turn(..)"),
            Turn::Machine(instant) => f.debug_tuple("Turn").field(instant).finish(),
        }
    }
}

/// A place among those who wait.
#[derive(Debug)]
pub(crate) struct Place(RateLimiter);

impl RateLimiter {
    /// How many wait for their turns at the moment, in layers and in [`wait_up_to`](super::Acquire::wait_up_to).
    #[cfg(feature = "wait")]
    pub fn waiting(&self) -> usize {
        self.inner.waiting.load(Ordering::Relaxed)
    }

    /// A place among those who wait, if there is one left. Taken before the decision: who has none is decided without
    /// waiting, and no turn is promised that nobody waits for.
    pub(crate) fn place(&self) -> Option<Place> {
        // Not added first and taken off again: meanwhile, somebody else would be told that there is none.
        let one_more = |taken| (taken < self.inner.max_waiting).then_some(taken + 1);
        self.inner.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(Place(self.clone()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.inner.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How many wait at once, unless a limiter is told otherwise.
pub(super) const MAX_WAITING: usize = 10_000;
