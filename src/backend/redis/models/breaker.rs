//! Models of concurrent use of the circuit breaker.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::breaker::{Breaker, Permit, TripReason};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::model::{every_order, thread};

const LATER: Duration = Duration::from_secs(1);

fn tripped(now: Instant) -> Arc<Breaker> {
    let breaker = Arc::new(Breaker::default());
    breaker.trip(TripReason::Timeout, now);
    breaker
}

#[test]
fn only_one_of_several_concurrent_callers_starts_a_probe() {
    every_order(|| {
        let now = Instant::now();
        let breaker = tripped(now);
        let callers = [(); 2].map(|()| {
            let breaker = Arc::clone(&breaker);
            thread(move || breaker.permit(now + LATER))
        });
        let mine = breaker.permit(now + LATER);
        let all = callers.map(|caller| caller.join().unwrap());
        let probes = all.iter().chain([&mine]).filter(|permit| **permit == Permit::Probe).count();
        assert_eq!(probes, 1);
        assert!(!all.contains(&Permit::Granted));
    });
}

#[test]
fn at_most_one_probe_runs_and_another_can_follow() {
    for answers in [false, true] {
        every_order(move || {
            let now = Instant::now();
            let breaker = tripped(now);
            let probing = Arc::new(AtomicUsize::new(0));
            let caller = |after: u32| {
                let (breaker, probing) = (Arc::clone(&breaker), Arc::clone(&probing));
                move || {
                    let now = now + after * LATER;
                    if breaker.permit(now) == Permit::Probe {
                        assert_eq!(probing.fetch_add(1, Ordering::SeqCst), 0, "two probes are running");
                        probing.fetch_sub(1, Ordering::SeqCst);
                        breaker.probed((!answers).then_some(TripReason::Timeout), now);
                    }
                }
            };
            let callers = [thread(caller(1)), thread(caller(2))];
            // A call that was in flight when the breaker opened also fails.
            breaker.trip(TripReason::Timeout, now);
            callers.into_iter().for_each(|caller| caller.join().unwrap());
            assert_ne!(breaker.permit(now + 9 * LATER), Permit::Refused, "the breaker never permits another probe");
        });
    }
}
