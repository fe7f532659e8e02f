//! Where in-process limiters take the time from.

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

/// A source of instants.
///
/// Limiters bear any clock: one that steps back, jumps ahead or stands still costs at most one extra capacity per jump.
///
/// ```
/// use std::time::SystemTime;
/// use tollgate::algorithm::Micros;
/// use tollgate::{clock::Clock, MemoryBackend, Policy, Quota, RateLimiter, MINUTE};
///
/// /// The operating system's time, as it is, steps and all.
/// #[derive(Debug)]
/// struct WallClock;
///
/// impl Clock for WallClock {
///     fn now(&self) -> Micros {
///         SystemTime::now().into()
///     }
///     // No `sleep_until`: any timer will do.
/// }
///
/// static API: Policy = Policy::new("api", Quota::token_bucket(1, MINUTE));
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tollgate::backend::Error> {
/// assert!(WallClock.sleep_until(WallClock.now()).is_none());
/// let limiter = RateLimiter::new(MemoryBackend::builder().clock(WallClock).build());
/// assert!(limiter.try_limit(&API, "ada").await?.is_allowed());
/// # Ok(())
/// # }
/// ```
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The present. It must not block: it is called for every decision, by many threads.
    fn now(&self) -> Micros;

    /// A future that is done once this clock shows `instant`. `None`, the default, means that it runs as the machine's
    /// does, so that any timer will do.
    fn sleep_until(&self, instant: Micros) -> Option<Sleep> {
        let _ = instant;
        None
    }
}

/// What is done once a clock has come to an instant.
///
/// ```
/// use tollgate::{clock::{Clock, ManualClock, Sleep}, SECOND};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let clock = ManualClock::new();
/// let sleep: Sleep = clock.sleep_until(clock.now() + SECOND).expect("it has its own way to wait");
/// clock.advance(SECOND);
/// sleep.await;
/// # }
/// ```
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send + Sync>>;

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Micros {
        (**self).now()
    }

    fn sleep_until(&self, instant: Micros) -> Option<Sleep> {
        (**self).sleep_until(instant)
    }
}

/// The machine's time, read from the processor's time stamp counter where that can be trusted: a third of the cost of
/// [`Instant::now`](std::time::Instant::now).
///
/// It begins at the system's time and follows it. Where it is behind by more than a second (the machine slept, or its
/// clock was set forward) it catches up at once, which pays back what is due; else it makes good at most half a
/// millisecond for each second since it last looked, which it does once a second while it is asked. So windows stay
/// aligned to UTC, and a system clock that is set back locks nobody out.
///
/// ```
/// use tollgate::clock::{Clock, SystemClock};
///
/// let clock = SystemClock::new();
/// let then = clock.now();
/// assert!(clock.now() >= then);
/// ```
pub struct SystemClock {
    counter: quanta::Clock,
    /// What the counter showed at the beginning.
    origin: u64,
    began: Micros,
    /// Microseconds to add to the counter's time: what the system's time has drifted from it so far.
    drift: AtomicI64,
    /// The counter's time at which the drift was last looked at.
    checked: AtomicU64,
}

impl SystemClock {
    /// A clock that begins now. The first one of a process calibrates the counter, for some milliseconds.
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

    /// Brings the drift nearer to what the system's clock says.
    #[cold]
    fn follow(&self, ran: u64, checked: u64, system: Micros) {
        if self.checked.compare_exchange(checked, ran, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return; // Another thread does it.
        }
        let most = (ran.saturating_sub(checked) / SLOWEST_CATCH_UP) as i64;
        let corrected = |drift: i64| {
            let shown = self.began.plus(ran).get() as i64 + drift;
            let behind = system.get() as i64 - shown;
            let correction = if behind > LEAP { behind } else { behind.clamp(-most, most) };
            Some(drift + correction)
        };
        // Not loaded, then stored: whoever is held up in between for as long as until the next look would take back
        // what was corrected then.
        let _ = self.drift.fetch_update(Ordering::Relaxed, Ordering::Relaxed, corrected);
    }
}

/// Microseconds between two looks at the system's clock: a look costs more than a decision.
const FOLLOW_EVERY: u64 = 1_000_000;

/// Microseconds behind which it is not drift: time has passed unseen.
const LEAP: i64 = 1_000_000;

/// One part in so many is how much faster or slower the clock runs to catch up: 500 ppm, the most that ntpd slews by.
const SLOWEST_CATCH_UP: u64 = 2000;

impl Clock for SystemClock {
    fn now(&self) -> Micros {
        // Counters of two cores may differ by a few steps: less than nothing is nothing here.
        let ran = self.counter.delta_as_nanos(self.origin, self.counter.raw()) / 1000;
        let checked = self.checked.load(Ordering::Relaxed);
        if ran > checked + FOLLOW_EVERY {
            self.follow(ran, checked, Micros::from(SystemTime::now()));
        }
        // What has drifted back is less than has passed since the beginning, so this is no less than nothing.
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
    fn it_shows_the_systems_time() {
        let clock = SystemClock::new();
        let difference = clock.now().get().abs_diff(Micros::from(SystemTime::now()).get());
        assert!(difference < 1_000_000, "{difference} us");
    }

    #[test]
    fn it_follows_the_systems_clock_little_by_little() {
        let clock = SystemClock::new();
        // Ten seconds later it is half a second behind: half a millisecond a second is made good.
        let ran = 10_000_000;
        let set = clock.began.plus(ran + 500_000);
        clock.follow(ran, 0, set);
        assert_eq!(clock.drift.load(Ordering::Relaxed), 5_000);
        // A second thread that saw the same check due changes nothing.
        clock.follow(ran, 0, set);
        assert_eq!(clock.drift.load(Ordering::Relaxed), 5_000);
        // And back.
        clock.follow(2 * ran, ran, clock.began.plus(2 * ran));
        assert_eq!(clock.drift.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn it_leaps_forward_but_never_back() {
        let clock = SystemClock::new();
        let ran = 10_000_000;
        clock.follow(ran, 0, clock.began.plus(ran + 3_600_000_000));
        assert_eq!(clock.drift.load(Ordering::Relaxed), 3_600_000_000, "an hour asleep");
        clock.follow(2 * ran, ran, clock.began.plus(2 * ran));
        assert_eq!(clock.drift.load(Ordering::Relaxed), 3_600_000_000 - 5_000);
    }
}
