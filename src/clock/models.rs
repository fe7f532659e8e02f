//! Models of the concurrent use of clocks. `proof/README.md` lists the mutations that each model detects.

use std::sync::Arc;

use super::*;
use crate::sync::model::{every_order, thread};

/// The times, in microseconds, at which the first and second comparisons with the system's time are made.
const FIRST: u64 = 1_100_000;
const SECOND: u64 = 2_200_000;
const HOUR: i64 = 3_600_000_000;

#[test]
fn only_one_of_two_threads_corrects_the_drift() {
    every_order(|| {
        let clock = Arc::new(SystemClock::new());
        let set = clock.began.plus(FIRST + 500_000);
        let other = {
            let clock = Arc::clone(&clock);
            thread(move || clock.follow(FIRST, 0, set))
        };
        clock.follow(FIRST, 0, set);
        other.join().unwrap();
        assert_eq!(clock.drift.load(Ordering::Relaxed), 550);
    });
}

#[test]
fn a_delayed_thread_does_not_undo_a_later_jump() {
    every_order(|| {
        let clock = Arc::new(SystemClock::new());
        let delayed = {
            let clock = Arc::clone(&clock);
            thread(move || clock.follow(FIRST, 0, clock.began.plus(FIRST + 500)))
        };
        let later = {
            let clock = Arc::clone(&clock);
            thread(move || clock.follow(SECOND, FIRST, clock.began.plus(SECOND).plus(HOUR as u64)))
        };
        delayed.join().unwrap();
        later.join().unwrap();
        let drift = clock.drift.load(Ordering::Relaxed);
        if clock.checked.load(Ordering::Relaxed) == SECOND {
            assert!((HOUR - 1000..=HOUR).contains(&drift), "{drift}");
        } else {
            assert_eq!(drift, 500);
        }
    });
}

#[test]
fn a_sleeper_is_woken_no_matter_when_the_clock_moves() {
    every_order(|| {
        let clock = ManualClock::at(Micros::new(1));
        let sleep = clock.sleep_until(Micros::new(5)).unwrap();
        let moved = clock.clone();
        let mover = thread(move || {
            moved.set(Micros::new(3));
            moved.set(Micros::new(5));
        });
        // If the sleeper is not woken, loom reports a deadlock.
        loom::future::block_on(sleep);
        mover.join().unwrap();
        assert_eq!(clock.next_wake(), None);
    });
}
