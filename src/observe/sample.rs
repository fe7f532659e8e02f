//! So many events a second, and how many were left out.

use crate::algorithm::Micros;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Lets so many pass in each second of a clock, and counts the others. Exact under any number of threads.
#[derive(Debug, Default)]
pub(super) struct Sample {
    /// The second, and how many have passed in it: in one word, so that both change together.
    passed: AtomicU64,
    left_out: AtomicU64,
}

impl Sample {
    /// Whether one may pass now: how many were left out since the last one that did, or `None`.
    pub(super) fn pass(&self, now: Micros, most: u32) -> Option<u64> {
        let next = |passed: u64| {
            let (second, count) = self::second(now, passed);
            (count < most).then(|| pack(second, count + 1))
        };
        match self.passed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) {
            Ok(_) => Some(self.left_out.swap(0, Ordering::Relaxed)),
            Err(_) => {
                self.left_out.fetch_add(1, Ordering::Relaxed);
                None
            }
        }
    }
}

/// The second to count in, and how many have passed in it.
fn second(now: Micros, passed: u64) -> (u32, u32) {
    // Of a number of seconds the last 32 bits do: only the difference to another is looked at.
    let now = (now.get() / 1_000_000) as u32;
    let (known, count) = ((passed >> 32) as u32, passed as u32);
    let ahead = now.wrapping_sub(known) as i32;
    // Who looked at the clock before the second turned, and came after, counts in the new one: else each such thread
    // would begin both anew.
    if (-LATE..=0).contains(&ahead) { (known, count) } else { (now, 0) }
}

fn pack(second: u32, count: u32) -> u64 {
    u64::from(second) << 32 | u64::from(count)
}

/// Seconds behind which it is not a thread that is late, but the clock that was set back.
const LATE: i32 = 10;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    fn passes(sample: &Sample, millis: u64, calls: usize) -> Vec<Option<u64>> {
        (0..calls).map(|_| sample.pass(Micros::new(millis * 1000), 2)).collect()
    }

    #[test]
    fn so_many_pass_a_second_and_the_next_tells_how_many_did_not() {
        let sample = Sample::default();
        assert_eq!(passes(&sample, 100_000, 4), [Some(0), Some(0), None, None]);
        assert_eq!(passes(&sample, 100_999, 1), [None]);
        assert_eq!(passes(&sample, 101_000, 3), [Some(3), Some(0), None]);
        assert_eq!(passes(&sample, 200_000, 1), [Some(1)]);
    }

    #[test]
    fn threads_at_once_pass_exactly_as_many() {
        const MOST: u32 = 4_000_000;
        let sample = Sample::default();
        let all_at_once = Barrier::new(8);
        let thread = || {
            all_at_once.wait();
            let passed = (0..MOST / 4).filter_map(|_| sample.pass(Micros::new(0), MOST));
            passed.fold((0, 0), |(passed, left_out), more| (passed + 1, left_out + more))
        };
        let (mut passed, mut left_out) = (0, 0);
        for (more, told) in std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(thread)).collect();
            threads.into_iter().map(|thread| thread.join().expect("a count")).collect::<Vec<_>>()
        }) {
            (passed, left_out) = (passed + more, left_out + told);
        }
        left_out += sample.left_out.load(Ordering::Relaxed);
        assert_eq!((passed, left_out), (u64::from(MOST), u64::from(MOST)));
    }

    #[test]
    fn a_late_thread_counts_in_the_second_that_has_begun() {
        let sample = Sample::default();
        assert_eq!(passes(&sample, 101_000, 1), [Some(0)]);
        assert_eq!(passes(&sample, 100_999, 2), [Some(0), None]);
        assert_eq!(passes(&sample, 101_001, 1), [None]);
    }

    #[test]
    fn a_clock_that_was_set_does_not_silence_it() {
        let sample = Sample::default();
        for millis in [1_000_000_000, 0, u64::MAX / 1000, 5_000_000] {
            assert_eq!(passes(&sample, millis, 3)[1..], [Some(0), None], "{millis}");
        }
    }
}
