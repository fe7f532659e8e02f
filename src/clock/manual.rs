//! A clock for tests.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::{Clock, Sleep};
use crate::algorithm::{Micros, whole_micros};
use crate::sync::{Mutex, MutexGuard, PoisonError};

/// A clock for testing limits without waiting. It moves only when it is set or advanced. All clones show the same time.
/// Waiting requests continue in the order of their due times; [testing](crate::docs::testing) shows how to test them.
///
/// ```
/// use tollgate::{clock::ManualClock, MemoryBackend, Policy, Quota, RateLimiter, HOUR};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::backend::Error> {
/// static RESET_MAIL: Policy = Policy::new("reset-mail", Quota::token_bucket(1, HOUR));
///
/// let clock = ManualClock::new();
/// let limiter = RateLimiter::new(MemoryBackend::builder().clock(clock.clone()).build());
/// assert!(limiter.try_limit(&RESET_MAIL, "ada").await?.is_allowed());
/// assert!(!limiter.try_limit(&RESET_MAIL, "ada").await?.is_allowed());
/// clock.advance(HOUR);
/// assert!(limiter.try_limit(&RESET_MAIL, "ada").await?.is_allowed());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct ManualClock(Arc<Mutex<ClockState>>);

struct ClockState {
    now: Micros,
    sleepers: BTreeMap<(Micros, u64), Waker>,
    next_id: u64,
}

impl ManualClock {
    /// Creates a clock set to 2026-01-01T00:00:00Z.
    pub fn new() -> ManualClock {
        ManualClock::at(Micros::new(1_767_225_600_000_000))
    }

    /// Creates a clock set to `instant`.
    pub fn at(instant: Micros) -> ManualClock {
        ManualClock(Arc::new(Mutex::new(ClockState { now: instant, sleepers: BTreeMap::new(), next_id: 0 })))
    }

    /// Advances the time by `duration`, rounded up to whole microseconds, and wakes the requests that are due by then.
    pub fn advance(&self, duration: Duration) {
        self.change(|now| now.plus(whole_micros(duration)));
    }

    /// Sets the clock forward or back to `instant`, and wakes the requests that are due by then.
    pub fn set(&self, instant: Micros) {
        self.change(|_| instant);
    }

    /// Returns the earliest instant that a request is waiting for, or `None` if no request is waiting. To wake all
    /// requests one after another, keep setting the clock to the returned instant until this method returns `None`.
    pub fn next_wake(&self) -> Option<Micros> {
        // `sleepers` does not contain sleeps that have completed or have never been polled.
        self.state().sleepers.keys().next().map(|(instant, _)| *instant)
    }

    fn change(&self, change: impl FnOnce(Micros) -> Micros) {
        let mut state = self.state();
        state.now = change(state.now);
        let now = state.now;
        let later = state.sleepers.split_off(&(now, u64::MAX));
        let due = std::mem::replace(&mut state.sleepers, later);
        drop(state);
        // The lock is released before tasks are woken, because they may read the time.
        due.into_values().for_each(Waker::wake);
    }

    fn state(&self) -> MutexGuard<'_, ClockState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Micros {
        self.state().now
    }

    fn sleep_until(&self, instant: Micros) -> Option<Sleep> {
        let mut state = self.state();
        state.next_id += 1;
        Some(Box::pin(Sleeper { clock: self.clone(), wake_at: (instant, state.next_id) }))
    }
}

impl Default for ManualClock {
    fn default() -> ManualClock {
        ManualClock::new()
    }
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ManualClock").field(&self.now()).finish()
    }
}

/// A future that completes when the clock reaches an instant. Dropping it unregisters the waker.
struct Sleeper {
    clock: ManualClock,
    wake_at: (Micros, u64),
}

impl Future for Sleeper {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.clock.state();
        if state.now >= self.wake_at.0 {
            return Poll::Ready(());
        }
        state.sleepers.insert(self.wake_at, context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.clock.state().sleepers.remove(&self.wake_at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::task::Wake;

    #[test]
    fn a_manual_clock_saturates_at_the_last_instant() {
        let clock = ManualClock::at(Micros::MAX);
        clock.advance(Duration::MAX);
        assert_eq!(clock.now(), Micros::MAX);
    }

    #[test]
    fn sleepers_wake_in_the_order_of_their_due_times_and_are_then_removed() {
        struct SendOnWake(u64, std::sync::mpsc::Sender<u64>);
        impl Wake for SendOnWake {
            fn wake(self: Arc<Self>) {
                let _ = self.1.send(self.0);
            }
        }
        let clock = ManualClock::new();
        let (send, woken) = channel();
        let mut sleepers: Vec<Sleep> = Vec::new();
        for seconds in [3, 1, 2, 2] {
            let number = sleepers.len() as u64;
            let mut sleep = clock.sleep_until(clock.now() + Duration::from_secs(seconds)).expect("a sleep");
            let waker = Waker::from(Arc::new(SendOnWake(number, send.clone())));
            assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            sleepers.push(sleep);
        }
        assert_eq!(clock.next_wake(), Some(clock.now() + Duration::from_secs(1)));
        clock.advance(Duration::from_secs(2));
        assert_eq!(woken.try_iter().collect::<Vec<_>>(), [1, 2, 3]);
        let mut context = Context::from_waker(Waker::noop());
        assert!(sleepers[1].as_mut().poll(&mut context).is_ready());
        assert!(sleepers[0].as_mut().poll(&mut context).is_pending());
        drop(sleepers);
        assert_eq!(clock.next_wake(), None);
    }

    #[test]
    fn next_wake_ignores_sleeps_that_were_never_polled() {
        let clock = ManualClock::new();
        let mut sleeps =
            [1, 2].map(|seconds| clock.sleep_until(clock.now() + Duration::from_secs(seconds)).expect("a sleep"));
        assert_eq!(clock.next_wake(), None);
        let mut context = Context::from_waker(Waker::noop());
        assert!(sleeps[1].as_mut().poll(&mut context).is_pending());
        assert_eq!(clock.next_wake(), Some(clock.now() + Duration::from_secs(2)));
        clock.advance(Duration::from_secs(2));
        assert_eq!(clock.next_wake(), None, "already woken");
        assert!(sleeps.iter_mut().all(|sleep| sleep.as_mut().poll(&mut context).is_ready()));
    }
}
