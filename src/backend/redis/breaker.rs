//! A circuit breaker: when the server cannot be reached, calls fail at once until a probe finds it back.
//!
//! An outage costs the calls that were under way one deadline, and everybody else nothing: no request is used to find out whether
//! the server is back. Probes are made by a task of their own, and only while somebody asks.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

#[derive(Debug, Default)]
pub(super) struct Breaker(Mutex<Option<Open>>);

#[derive(Debug)]
struct Open {
    /// When the next probe may be made.
    until: Instant,
    pause: Duration,
    probing: bool,
}

/// Whether a call may be made.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Passage {
    Free,
    /// No; and it is for the caller to probe.
    Probe,
    No,
}

impl Breaker {
    pub(super) fn passage(&self, now: Instant) -> Passage {
        match &mut *self.state() {
            None => Passage::Free,
            Some(open) if !open.probing && now >= open.until => {
                open.probing = true;
                Passage::Probe
            }
            Some(_) => Passage::No,
        }
    }

    /// The server did not answer a call.
    pub(super) fn trip(&self, now: Instant) {
        let mut state = self.state();
        if state.is_none() {
            *state = Some(Open { until: now + FIRST_PAUSE, pause: FIRST_PAUSE, probing: false });
        }
    }

    /// What came of a probe.
    pub(super) fn probed(&self, answered: bool, now: Instant) {
        let mut state = self.state();
        if answered {
            *state = None;
        } else if let Some(open) = &mut *state {
            open.pause = (open.pause * 2).min(LONGEST_PAUSE);
            open.until = now + open.pause;
            open.probing = false;
        }
    }

    fn state(&self) -> MutexGuard<'_, Option<Open>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// A server that is back is noticed within this, and the time of a probe.
const LONGEST_PAUSE: Duration = Duration::from_millis(400);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_probe_at_a_time_and_ever_longer_pauses() {
        let (breaker, begin) = (Breaker::default(), Instant::now());
        assert_eq!(breaker.passage(begin), Passage::Free);
        breaker.trip(begin);
        assert_eq!(breaker.passage(begin), Passage::No);
        let mut now = begin;
        for pause in [50, 100, 200, 400, 400] {
            now += Duration::from_millis(pause - 1);
            assert_eq!(breaker.passage(now), Passage::No);
            now += Duration::from_millis(1);
            assert_eq!(breaker.passage(now), Passage::Probe);
            assert_eq!(breaker.passage(now), Passage::No, "another is at it");
            breaker.trip(now);
            breaker.probed(false, now);
        }
        now += LONGEST_PAUSE;
        assert_eq!(breaker.passage(now), Passage::Probe);
        breaker.probed(true, now);
        assert_eq!(breaker.passage(now), Passage::Free);
    }
}
