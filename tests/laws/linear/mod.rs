//! Random multi-threaded histories of the memory backend: concurrent charges to up to three rows, checks, settlements,
//! resets and clock advances. Each history must be linearizable. The operating system's scheduler determines the
//! interleavings.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

mod checker;

use checker::{Event, Ticks, backend, order, overlaps, run_operations};

const HISTORIES: u64 = 3000;
const THREADS: u64 = 3;
const OPERATIONS: usize = 8;

struct Counter(AtomicU64);

impl Ticks for Counter {
    fn tick(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst)
    }
}

#[test]
fn concurrent_operations_are_linearizable() {
    let mut overlapping = 0;
    for history in 0..HISTORIES {
        let (backend, clock) = backend();
        let (ticks, barrier) = (Counter(AtomicU64::new(0)), AtomicU64::new(0));
        let events: Vec<Event> = thread::scope(|scope| {
            let run = |number: u64| {
                let (backend, clock, ticks, barrier) = (&backend, &clock, &ticks, &barrier);
                move || {
                    // Wait for the other threads, so that all threads start together.
                    barrier.fetch_add(1, Ordering::SeqCst);
                    while barrier.load(Ordering::SeqCst) < THREADS {
                        thread::yield_now();
                    }
                    run_operations(backend, clock, ticks, OPERATIONS, history * THREADS + number)
                }
            };
            let threads: Vec<_> = (0..THREADS).map(|number| scope.spawn(run(number))).collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("a thread panicked")).collect()
        });
        overlapping += usize::from(overlaps(&events) > 0);
        assert!(order(&events).is_some(), "history {history} is not linearizable: {events:#?}");
    }
    println!("{HISTORIES} histories, {overlapping} of them with concurrent operations");
}
