//! The local clock of a limiter. Blocks, pauses and the block cache use this clock.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use crate::algorithm::{Micros, whole_micros};
use crate::clock::{Clock, Sleep};

/// The backend's clock if the backend runs in this process, or the system clocks otherwise.
#[derive(Debug)]
pub(super) struct LocalTime {
    clock: Option<Arc<dyn Clock>>,
    began: Instant,
}

impl LocalTime {
    pub(super) fn new(clock: Option<Arc<dyn Clock>>) -> LocalTime {
        LocalTime { clock, began: Instant::now() }
    }

    /// Returns the local time, which is measured from an arbitrary instant.
    pub(super) fn now(&self) -> Micros {
        match &self.clock {
            Some(clock) => clock.now(),
            None => BEGIN.plus(whole_micros(self.began.elapsed())),
        }
    }

    /// Returns a future that completes at a [calendar](LocalTime::calendar) time, or `None` if any timer can be used.
    pub(super) fn sleep_until(&self, instant: Micros) -> Option<Sleep> {
        self.clock.as_ref()?.sleep_until(instant)
    }

    pub(super) fn calendar(&self) -> Micros {
        match &self.clock {
            Some(clock) => clock.now(),
            None => Micros::from(SystemTime::now()),
        }
    }
}

/// The local time when a limiter is built: 100 years, so that changes made earlier also have positive local times.
const BEGIN: Micros = Micros::new(100 * 365 * 86_400_000_000);
