//! Limits the number of events per second and counts the suppressed events.

use crate::algorithm::Micros;
use crate::sync::{Mutex, PoisonError};

/// Lets at most a given number of events through per second. The limit is exact with any number of threads.
#[derive(Debug, Default)]
pub(super) struct Sampler(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    second: u64,
    passed: u32,
    /// The number of events suppressed since the last event that passed.
    suppressed: u64,
}

impl Sampler {
    /// If an event may pass, returns the number of events suppressed before it.
    pub(super) fn pass(&self, now: Micros, max: u32) -> Option<u64> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let second = now.get() / 1_000_000;
        // An event from a late thread, which read the clock before the second changed, counts in the new second.
        // Otherwise, the late thread would reset the counts, and the next thread would reset them again.
        if !(second..=second + MAX_LATE_SECONDS).contains(&counts.second) {
            (counts.second, counts.passed) = (second, 0);
        }
        if counts.passed < max {
            counts.passed += 1;
            return Some(std::mem::take(&mut counts.suppressed));
        }
        counts.suppressed += 1;
        None
    }
}

/// The maximum number of seconds by which a thread may be late. A larger difference means that the clock was set back.
const MAX_LATE_SECONDS: u64 = 10;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    fn passes(sample: &Sampler, millis: u64, calls: usize) -> Vec<Option<u64>> {
        (0..calls).map(|_| sample.pass(Micros::new(millis * 1000), 2)).collect()
    }

    #[test]
    fn events_beyond_the_limit_are_suppressed_and_counted() {
        let sample = Sampler::default();
        assert_eq!(passes(&sample, 100_000, 4), [Some(0), Some(0), None, None]);
        assert_eq!(passes(&sample, 100_999, 1), [None]);
        assert_eq!(passes(&sample, 101_000, 3), [Some(3), Some(0), None]);
        assert_eq!(passes(&sample, 200_000, 1), [Some(1)]);
    }

    #[test]
    fn the_limit_is_exact_with_eight_threads() {
        const MAX: u32 = 4_000_000;
        let sample = Sampler::default();
        let all_at_once = Barrier::new(8);
        let thread = || {
            all_at_once.wait();
            let passed = (0..MAX / 4).filter_map(|_| sample.pass(Micros::new(0), MAX));
            passed.fold((0, 0), |(passed, suppressed), more| (passed + 1, suppressed + more))
        };
        let (mut passed, mut suppressed) = (0, 0);
        for (more, more_suppressed) in std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(thread)).collect();
            threads.into_iter().map(|thread| thread.join().expect("a thread panicked")).collect::<Vec<_>>()
        }) {
            (passed, suppressed) = (passed + more, suppressed + more_suppressed);
        }
        suppressed += sample.0.lock().expect("a thread panicked").suppressed;
        assert_eq!((passed, suppressed), (u64::from(MAX), u64::from(MAX)));
    }

    #[test]
    fn an_event_from_a_late_thread_counts_in_the_new_second() {
        let sample = Sampler::default();
        assert_eq!(passes(&sample, 101_000, 1), [Some(0)]);
        assert_eq!(passes(&sample, 100_999, 2), [Some(0), None]);
        assert_eq!(passes(&sample, 101_001, 1), [None]);
    }

    #[test]
    fn events_pass_after_the_clock_is_changed() {
        let sample = Sampler::default();
        for millis in [1_000_000_000, 0, u64::MAX / 1000, 5_000_000] {
            assert_eq!(passes(&sample, millis, 3)[1..], [Some(0), None], "{millis}");
        }
    }
}
