//! What callers do to a breaker at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::breaker::{Breaker, Passage, Why};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::model::{every_order, thread};

/// Longer than any pause.
const LATER: Duration = Duration::from_secs(1);

fn tripped(now: Instant) -> Arc<Breaker> {
    let breaker = Arc::new(Breaker::default());
    breaker.trip(Why::Late, now);
    breaker
}

#[test]
fn of_those_who_ask_at_once_one_probes() {
    every_order(|| {
        let now = Instant::now();
        let breaker = tripped(now);
        let askers = [(); 2].map(|()| {
            let breaker = Arc::clone(&breaker);
            thread(move || breaker.passage(now + LATER))
        });
        let mine = breaker.passage(now + LATER);
        let all = askers.map(|asker| asker.join().unwrap());
        let probes = all.iter().chain([&mine]).filter(|passage| **passage == Passage::Probe).count();
        assert_eq!(probes, 1);
        assert!(!all.contains(&Passage::Free));
    });
}

/// Calls that failed late, and a probe that came back, in whatever order.
#[test]
fn never_two_probe_at_once_and_never_nobody_can() {
    for answers in [false, true] {
        every_order(move || {
            let now = Instant::now();
            let breaker = tripped(now);
            let probing = Arc::new(AtomicUsize::new(0));
            let asker = |after: u32| {
                let (breaker, probing) = (Arc::clone(&breaker), Arc::clone(&probing));
                move || {
                    let now = now + after * LATER;
                    if breaker.passage(now) == Passage::Probe {
                        assert_eq!(probing.fetch_add(1, Ordering::SeqCst), 0, "two probe");
                        probing.fetch_sub(1, Ordering::SeqCst);
                        breaker.probed((!answers).then_some(Why::Late), now);
                    }
                }
            };
            let askers = [thread(asker(1)), thread(asker(2))];
            // Of a call that was under way when the breaker opened.
            breaker.trip(Why::Late, now);
            askers.into_iter().for_each(|asker| asker.join().unwrap());
            assert_ne!(breaker.passage(now + 9 * LATER), Passage::No, "nobody may look again");
        });
    }
}
