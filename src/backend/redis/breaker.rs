//! The circuit breaker. After the server becomes unreachable, calls fail immediately until a probe gets a reply.
//!
//! In an outage, only calls that are already in flight wait. Later calls can start probes, which run in separate tasks.

use std::time::{Duration, Instant};

use redis::RedisError;

use crate::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
pub(super) struct Breaker(Mutex<Option<Open>>);

#[derive(Debug)]
struct Open {
    /// The earliest instant at which the next probe may start.
    until: Instant,
    pause: Duration,
    probing: bool,
    reason: TripReason,
}

#[derive(Clone, Debug)]
pub(super) enum TripReason {
    Timeout,
    Failed(RedisError),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Permit {
    Granted,
    /// The call is refused, and the caller must start a probe.
    Probe,
    Refused,
}

impl Breaker {
    pub(super) fn permit(&self, now: Instant) -> Permit {
        match &mut *self.state() {
            None => Permit::Granted,
            Some(open) if !open.probing && now >= open.until => {
                open.probing = true;
                Permit::Probe
            }
            Some(_) => Permit::Refused,
        }
    }

    /// Returns why the breaker is open, or `None` if it is closed. Unlike `permit`, never starts a probe.
    pub(super) fn trip_reason(&self) -> Option<TripReason> {
        self.state().as_ref().map(|open| open.reason.clone())
    }

    pub(super) fn trip(&self, reason: TripReason, now: Instant) {
        let mut state = self.state();
        if state.is_none() {
            *state = Some(Open { until: now + FIRST_PAUSE, pause: FIRST_PAUSE, probing: false, reason });
        }
    }

    /// Ends a probe. If `failure` is `None`, the server replied, and the breaker closes. Otherwise, the pause doubles.
    pub(super) fn probed(&self, failure: Option<TripReason>, now: Instant) {
        let mut state = self.state();
        let Some(reason) = failure else {
            *state = None;
            return;
        };
        if let Some(open) = &mut *state {
            open.pause = (open.pause * 2).min(MAX_PAUSE);
            open.until = now + open.pause;
            open.probing = false;
            open.reason = reason;
        }
    }

    fn state(&self) -> MutexGuard<'_, Option<Open>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// With this pause and the minimum probe timeout, a recovered server is detected within a second.
const MAX_PAUSE: Duration = Duration::from_millis(250);

/// The minimum timeout of a probe, including the time to connect. If the backend's deadline is longer, the deadline is
/// used instead.
pub(super) const PROBE_TIMEOUT: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_run_one_at_a_time_at_growing_intervals() {
        let (breaker, begin) = (Breaker::default(), Instant::now());
        assert_eq!(breaker.permit(begin), Permit::Granted);
        breaker.trip(TripReason::Timeout, begin);
        assert_eq!(breaker.permit(begin), Permit::Refused);
        let mut now = begin;
        for pause in [50, 100, 200, 250, 250] {
            now += Duration::from_millis(pause - 1);
            assert_eq!(breaker.permit(now), Permit::Refused);
            now += Duration::from_millis(1);
            assert_eq!(breaker.permit(now), Permit::Probe);
            assert_eq!(breaker.permit(now), Permit::Refused, "a second probe started");
            breaker.trip(TripReason::Timeout, now);
            breaker.probed(Some(TripReason::Timeout), now);
        }
        now += MAX_PAUSE;
        assert_eq!(breaker.permit(now), Permit::Probe);
        breaker.probed(None, now);
        assert_eq!(breaker.permit(now), Permit::Granted);
    }

    /// Regression: a call that was queued when the breaker opened was chosen to start a probe, but never did.
    #[test]
    fn reading_the_trip_reason_does_not_claim_the_probe() {
        let (breaker, begin) = (Breaker::default(), Instant::now());
        assert!(breaker.trip_reason().is_none());
        breaker.trip(TripReason::Timeout, begin);
        assert!(breaker.trip_reason().is_some());
        assert_eq!(breaker.permit(begin + FIRST_PAUSE), Permit::Probe);
    }
}
