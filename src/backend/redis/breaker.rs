//! A circuit breaker: when the server cannot be reached, calls fail at once until a probe finds it back.
//!
//! An outage costs the calls that were under way one deadline, and everybody else nothing: no request is used to find
//! out whether the server is back. Probes are made by a task of their own, and only while somebody asks.

use std::time::{Duration, Instant};

use redis::RedisError;

use crate::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
pub(super) struct Breaker(Mutex<Option<Open>>);

#[derive(Debug)]
struct Open {
    /// When the next probe may be made.
    until: Instant,
    pause: Duration,
    probing: bool,
    why: Why,
}

/// What was wrong when somebody last tried.
#[derive(Clone, Debug)]
pub(super) enum Why {
    Late,
    Failed(RedisError),
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

    /// Why no call may be made, for those that have got past [`passage`](Breaker::passage) already; they do not probe.
    pub(super) fn why(&self) -> Option<Why> {
        self.state().as_ref().map(|open| open.why.clone())
    }

    /// The server did not answer a call.
    pub(super) fn trip(&self, why: Why, now: Instant) {
        let mut state = self.state();
        if state.is_none() {
            *state = Some(Open { until: now + FIRST_PAUSE, pause: FIRST_PAUSE, probing: false, why });
        }
    }

    /// What came of a probe: `None` if the server answered.
    pub(super) fn probed(&self, failed: Option<Why>, now: Instant) {
        let mut state = self.state();
        let Some(why) = failed else {
            *state = None;
            return;
        };
        if let Some(open) = &mut *state {
            open.pause = (open.pause * 2).min(LONGEST_PAUSE);
            open.until = now + open.pause;
            open.probing = false;
            open.why = why;
        }
    }

    fn state(&self) -> MutexGuard<'_, Option<Open>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// A server that is back is noticed within this, and the time of a probe: together less than a second.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// How long a probe waits for its answer, connecting included.
pub(super) const PROBE: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_probe_at_a_time_and_ever_longer_pauses() {
        let (breaker, begin) = (Breaker::default(), Instant::now());
        assert_eq!(breaker.passage(begin), Passage::Free);
        breaker.trip(Why::Late, begin);
        assert_eq!(breaker.passage(begin), Passage::No);
        let mut now = begin;
        for pause in [50, 100, 200, 250, 250] {
            now += Duration::from_millis(pause - 1);
            assert_eq!(breaker.passage(now), Passage::No);
            now += Duration::from_millis(1);
            assert_eq!(breaker.passage(now), Passage::Probe);
            assert_eq!(breaker.passage(now), Passage::No, "another is at it");
            breaker.trip(Why::Late, now);
            breaker.probed(Some(Why::Late), now);
        }
        now += LONGEST_PAUSE;
        assert_eq!(breaker.passage(now), Passage::Probe);
        breaker.probed(None, now);
        assert_eq!(breaker.passage(now), Passage::Free);
    }

    /// A call that waited in a queue while the breaker opened once took the probe for itself, and made none: nobody
    /// ever looked again.
    #[test]
    fn asking_why_leaves_the_probe_to_others() {
        let (breaker, begin) = (Breaker::default(), Instant::now());
        assert!(breaker.why().is_none());
        breaker.trip(Why::Late, begin);
        assert!(breaker.why().is_some());
        assert_eq!(breaker.passage(begin + FIRST_PAUSE), Passage::Probe);
    }
}
