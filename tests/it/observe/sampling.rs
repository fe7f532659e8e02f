//! Log events are sampled to keep a flood of requests from filling the log.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tollgate::algorithm::Micros;
use tollgate::observe::Tracing;
use tollgate::{HOUR, Policy, Quota, SECOND, clock::Clock, protection::AutoBlock};
use tracing::{Dispatch, Level};

use super::backends::FlakyBackend;
use super::log::Log;
use crate::support::now;

static ONE: Policy = Policy::new("one", Quota::token_bucket(1, HOUR));
static OTHER: Policy = Policy::new("other", Quota::token_bucket(1, HOUR));

fn suppressed(log: &Log, name: &str) -> Vec<u64> {
    log.named(name).iter().map(super::log::Line::suppressed).collect()
}

#[tokio::test]
async fn ten_denials_per_second_are_logged_and_the_rest_are_counted() {
    let backend = FlakyBackend::new();
    let clock = backend.clock();
    let limiter = backend.limiter().observer(Tracing::new().clock(clock.clone())).build();
    let log = Log::new(Level::INFO);
    let _subscribed = log.subscribe();
    let deny = async |policy, times| {
        for _ in 0..times {
            assert!(!limiter.try_acquire(policy, 7).cost(2).await.unwrap().is_allowed());
        }
    };
    deny(&ONE, 10).await;
    assert_eq!(suppressed(&log, "denied"), [0; 10]);
    clock.advance(SECOND * 999 / 1000);
    deny(&ONE, 3).await;
    assert_eq!(suppressed(&log, "denied"), [0; 0]);
    deny(&OTHER, 11).await;
    assert_eq!(suppressed(&log, "denied"), [0; 10]);
    clock.advance(SECOND / 1000);
    deny(&ONE, 11).await;
    assert_eq!(suppressed(&log, "denied"), [3, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    clock.advance(HOUR);
    deny(&ONE, 1).await;
    deny(&OTHER, 1).await;
    assert_eq!(suppressed(&log, "denied"), [1, 1]);
}

#[tokio::test]
async fn the_number_of_events_per_second_can_be_set() {
    for limit in [0, 1, 25] {
        let backend = FlakyBackend::new();
        let limiter =
            backend.limiter().observer(Tracing::new().per_second(limit).clock(backend.clock().clone())).build();
        let log = Log::new(Level::INFO);
        let _subscribed = log.subscribe();
        for _ in 0..30 {
            drop(limiter.try_acquire(&ONE, 7).cost(2).await.unwrap());
        }
        assert_eq!(suppressed(&log, "denied").len(), limit as usize);
    }
}

#[tokio::test]
async fn failures_are_sampled_during_an_outage() {
    let backend = FlakyBackend::new();
    let clock = backend.clock();
    let limiter = backend.limiter().observer(Tracing::new().clock(clock.clone())).build();
    let log = Log::new(Level::INFO);
    let _subscribed = log.subscribe();
    backend.set_down(true);
    for (calls, logged) in [(25, vec![0; 10]), (25, vec![15, 0, 0, 0, 0, 0, 0, 0, 0, 0]), (1, vec![15])] {
        for _ in 0..calls {
            assert!(limiter.try_limit(&ONE, 7).await.is_err());
        }
        assert_eq!(suppressed(&log, "failed"), logged);
        clock.advance(SECOND);
    }
}

#[tokio::test]
async fn blocks_are_sampled_together_across_policies() {
    let backend = FlakyBackend::new();
    let clock = backend.clock();
    let auto = AutoBlock::new([&ONE, &OTHER]).threshold(1);
    let limiter = backend.limiter().auto_block(auto).observer(Tracing::new().clock(clock.clone())).build();
    let log = Log::new(Level::WARN);
    let _subscribed = log.subscribe();
    for caller in 0..30 {
        drop(limiter.try_acquire(if caller % 2 == 0 { &ONE } else { &OTHER }, caller).cost(2).await.unwrap());
    }
    assert_eq!(suppressed(&log, "blocked"), [0; 10]);
    clock.advance(SECOND);
    drop(limiter.try_acquire(&ONE, "last").cost(2).await.unwrap());
    assert_eq!(suppressed(&log, "blocked"), [20]);
}

#[tokio::test]
async fn policies_after_the_first_512_are_sampled_together() {
    let backend = FlakyBackend::new();
    let limiter = backend.limiter().observer(Tracing::new().clock(backend.clock().clone())).build();
    let log = Log::new(Level::INFO);
    let _subscribed = log.subscribe();
    for number in 0..2000 {
        let policy = Policy::try_new(format!("customer-{number}"), Quota::token_bucket(1, HOUR)).unwrap();
        drop(limiter.try_acquire(&policy, 7).cost(2).await.unwrap());
    }
    assert_eq!(suppressed(&log, "denied").len(), 512 + 10);
}

#[test]
fn sampling_is_exact_with_eight_threads() {
    let backend = FlakyBackend::new();
    let clock = backend.clock();
    let limiter = backend.limiter().observer(Tracing::new().clock(clock.clone())).build();
    let log = Log::new(Level::INFO);
    let dispatch = Dispatch::new(log.clone());
    for round in 0..20 {
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    tracing::dispatcher::with_default(&dispatch, || {
                        (0..500).for_each(|_| drop(now(limiter.try_acquire(&ONE, 7).cost(2))));
                    });
                });
            }
        });
        // An event suppressed while another event is being recorded is counted by a later event, possibly in the next
        // second.
        let lines = suppressed(&log, "denied");
        assert_eq!(lines.len(), 10, "round {round}");
        clock.advance(SECOND);
        tracing::dispatcher::with_default(&dispatch, || drop(now(limiter.try_acquire(&ONE, 7).cost(2))));
        let left_out = lines.iter().sum::<u64>() + suppressed(&log, "denied")[0];
        assert_eq!(left_out, 8 * 500 - 10, "round {round}");
        clock.advance(SECOND);
    }
}

#[test]
fn out_of_order_clock_readings_do_not_reset_the_event_count() {
    #[derive(Debug)]
    struct AlternatingClock(Arc<AtomicUsize>);
    impl Clock for AlternatingClock {
        fn now(&self) -> Micros {
            Micros::new(1_767_225_600_000_000 + 1_000_000 * (self.0.fetch_add(1, Ordering::Relaxed) % 2) as u64)
        }
    }
    let limiter =
        FlakyBackend::new().limiter().observer(Tracing::new().clock(AlternatingClock(Arc::default()))).build();
    let log = Log::new(Level::INFO);
    let _subscribed = log.subscribe();
    for _ in 0..1000 {
        drop(now(limiter.try_acquire(&ONE, 7).cost(2)));
    }
    assert_eq!(suppressed(&log, "denied").len(), 1 + 10, "expected one event in the first second and ten in the next");
}

#[test]
fn disabled_events_do_not_read_the_clock() {
    #[derive(Debug)]
    struct CountingClock(Arc<AtomicUsize>);
    impl Clock for CountingClock {
        fn now(&self) -> Micros {
            self.0.fetch_add(1, Ordering::Relaxed);
            Micros::new(0)
        }
    }
    let reads = Arc::new(AtomicUsize::new(0));
    let limiter =
        FlakyBackend::new().limiter().observer(Tracing::new().clock(CountingClock(Arc::clone(&reads)))).build();
    {
        let log = Log::new(Level::WARN);
        let _subscribed = log.subscribe();
        drop(now(limiter.try_limit(&ONE, 7)));
        (0..20).for_each(|_| drop(now(limiter.try_limit(&ONE, 7))));
        assert_eq!((log.take().len(), reads.load(Ordering::Relaxed)), (0, 0));
    }
    let log = Log::new(Level::INFO);
    let _subscribed = log.subscribe();
    drop(now(limiter.try_limit(&ONE, 7)));
    assert_eq!((suppressed(&log, "denied"), reads.load(Ordering::Relaxed)), (vec![0], 1));
}
