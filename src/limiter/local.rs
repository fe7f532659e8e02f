//! The time of what a limiter remembers by itself: blocks, and what a remote backend said.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use crate::algorithm::{Micros, whole_micros};
use crate::clock::{Clock, Sleep};

/// A clock that is never set, or the one that the backend goes by, if that is one of this process's.
#[derive(Debug)]
pub(super) struct LocalTime {
    clock: Option<Arc<dyn Clock>>,
    began: Instant,
}

impl LocalTime {
    pub(super) fn new(clock: Option<Arc<dyn Clock>>) -> LocalTime {
        LocalTime { clock, began: Instant::now() }
    }

    /// The present, counted from anywhere.
    pub(super) fn now(&self) -> Micros {
        match &self.clock {
            Some(clock) => clock.now(),
            None => Micros::new(1).plus(whole_micros(self.began.elapsed())),
        }
    }

    /// A future that is done at an instant of the [calendar](LocalTime::calendar). `None`: any timer will do.
    pub(super) fn sleep_until(&self, instant: Micros) -> Option<Sleep> {
        self.clock.as_ref()?.sleep_until(instant)
    }

    /// The present by the calendar.
    pub(super) fn calendar(&self) -> Micros {
        match &self.clock {
            Some(clock) => clock.now(),
            None => Micros::from(SystemTime::now()),
        }
    }
}
