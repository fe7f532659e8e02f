//! Clocks for limiters whose backend runs in this process.

mod manual;
#[cfg(all(test, tollgate_models))]
mod models;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::SystemTime;

use crate::algorithm::Micros;
use crate::sync::atomic::{AtomicI64, AtomicU64, Ordering};

pub use manual::ManualClock;

/// A source of the current time.
///
/// Limiters work with any clock, even one that is stopped. Each jump of the clock allows at most one additional burst
/// of the quota's capacity.
///
/// ```
/// use tollgate::{algorithm::Micros, clock::Clock, MemoryBackend, RateLimiter};
///
/// #[derive(Debug)]
/// struct WallClock;
///
/// impl Clock for WallClock {
///     fn now(&self) -> Micros {
///         std::time::SystemTime::now().into()
///     }
/// }
///
/// let limiter = RateLimiter::new(MemoryBackend::builder().clock(WallClock).build());
/// ```
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Returns the current time. This method is called for each decision, from many threads. It must not block.
    fn now(&self) -> Micros;

    /// Returns a future that completes once this clock reaches `instant`. The default implementation returns `None`,
    /// which means that the clock runs at the speed of the system clock and that any timer can be used.
    fn sleep_until(&self, instant: Micros) -> Option<Sleep> {
        let _ = instant;
        None
    }
}

/// A future that completes when a clock reaches an instant.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send + Sync>>;

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Micros {
        (**self).now()
    }

    fn sleep_until(&self, instant: Micros) -> Option<Sleep> {
        (**self).sleep_until(instant)
    }
}

/// A clock that follows the system's time. If the processor's time stamp counter is reliable, the clock reads this
/// counter, which takes a third as long as [`Instant::now`](std::time::Instant::now).
///
/// At most once a second, the clock compares itself with the system's time. If it is more than a second behind, for
/// example because the machine was asleep or the system clock was set forward, it jumps forward. Otherwise, it adjusts
/// itself by at most half a millisecond per second. Windows therefore stay aligned to UTC, and setting the system clock
/// back does not lock callers out.
pub struct SystemClock {
    counter: quanta::Clock,
    origin: u64,
    began: Micros,
    /// The number of microseconds to add to the counter's time to get the system's time.
    drift: AtomicI64,
    checked: AtomicU64,
}

impl SystemClock {
    /// Creates a clock. The first clock of a process calibrates the counter, which takes a few milliseconds.
    pub fn new() -> SystemClock {
        let counter = quanta::Clock::new();
        SystemClock {
            origin: counter.raw(),
            counter,
            began: Micros::from(SystemTime::now()),
            drift: AtomicI64::new(0),
            checked: AtomicU64::new(0),
        }
    }

    #[cold]
    fn follow(&self, ran: u64, checked: u64, system: Micros) {
        if self.checked.compare_exchange(checked, ran, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return; // Another thread is correcting the drift.
        }
        let max_slew = (ran.saturating_sub(checked) / MAX_SLEW_DIVISOR) as i64;
        let corrected = |drift: i64| {
            let shown = self.began.plus(ran).get() as i64 + drift;
            let behind = system.get() as i64 - shown;
            let correction = if behind > LEAP_THRESHOLD { behind } else { behind.clamp(-max_slew, max_slew) };
            Some(drift + correction)
        };
        // With a separate load and store, a thread that is delayed between them could undo a later correction.
        let _ = self.drift.fetch_update(Ordering::Relaxed, Ordering::Relaxed, corrected);
    }
}

/// The number of microseconds between reads of the system's time, which take longer than a decision.
const FOLLOW_INTERVAL: u64 = 1_000_000;

/// The largest lag in microseconds that counts as drift. If the lag is larger, the clock jumps.
const LEAP_THRESHOLD: i64 = 1_000_000;

/// To correct itself, the clock runs at most 1/2000 faster or slower. This is 500 ppm, ntpd's maximum slew rate.
const MAX_SLEW_DIVISOR: u64 = 2000;

impl Clock for SystemClock {
    fn now(&self) -> Micros {
        // The counters of two cores may differ by a few ticks; `delta_as_nanos` returns 0 for a negative difference.
        let ran = self.counter.delta_as_nanos(self.origin, self.counter.raw()) / 1000;
        let checked = self.checked.load(Ordering::Relaxed);
        if ran > checked + FOLLOW_INTERVAL {
            self.follow(ran, checked, Micros::from(SystemTime::now()));
        }
        // Negative corrections are smaller than the time since the start, so the sum is not negative.
        Micros::new((self.began.get() + ran).wrapping_add_signed(self.drift.load(Ordering::Relaxed)))
    }
}

impl Default for SystemClock {
    fn default() -> SystemClock {
        SystemClock::new()
    }
}

impl fmt::Debug for SystemClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SystemClock").field(&self.now()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_clock_shows_the_systems_time() {
        let clock = SystemClock::new();
        let difference = clock.now().get().abs_diff(Micros::from(SystemTime::now()).get());
        assert!(difference < 1_000_000, "{difference} us");
    }

    #[test]
    fn small_differences_are_corrected_gradually() {
        let clock = SystemClock::new();
        // After ten seconds, the clock is half a second behind. It is corrected by half a millisecond per second.
        let ran = 10_000_000;
        let set = clock.began.plus(ran + 500_000);
        clock.follow(ran, 0, set);
        assert_eq!(clock.drift.load(Ordering::Relaxed), 5_000);
        clock.follow(ran, 0, set);
        assert_eq!(clock.drift.load(Ordering::Relaxed), 5_000);
        clock.follow(2 * ran, ran, clock.began.plus(2 * ran));
        assert_eq!(clock.drift.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_clock_jumps_forward_but_never_back() {
        let clock = SystemClock::new();
        let ran = 10_000_000;
        clock.follow(ran, 0, clock.began.plus(ran + 3_600_000_000));
        assert_eq!(clock.drift.load(Ordering::Relaxed), 3_600_000_000, "after an hour of sleep");
        clock.follow(2 * ran, ran, clock.began.plus(2 * ran));
        assert_eq!(clock.drift.load(Ordering::Relaxed), 3_600_000_000 - 5_000);
    }
}
