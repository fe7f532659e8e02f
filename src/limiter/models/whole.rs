//! Models of whole limiters on a backend with one row.

use std::sync::Arc;

use super::super::observer::{Blocked, Decided};
use super::super::*;
use crate::algorithm::{HOUR, MINUTE, Micros, Quota, State, Steps, settle, step};
use crate::backend::{Adjustment, Take};
use crate::policy::{DecidedBy, Reason, Signal};
use crate::sync::Mutex;
use crate::sync::atomic::Ordering;
use crate::sync::model::{every_order, thread};

const NOW: Micros = Micros::new(1_700_000_000_000_000);
static API: Policy = Policy::new("api", Quota::token_bucket(2, HOUR));

#[derive(Clone, Debug, Default)]
struct OneRow(Arc<RowState>);

#[derive(Debug, Default)]
struct RowState {
    row: Mutex<State>,
    settled: AtomicUsize,
    remote: bool,
}

impl OneRow {
    fn remote() -> OneRow {
        OneRow(Arc::new(RowState { remote: true, ..RowState::default() }))
    }
}

impl Backend for OneRow {
    fn acquire(&self, takes: &[Take<'_>]) -> BackendFuture<Steps> {
        let mut row = self.0.row.lock().unwrap();
        let step = step(&takes[0].quota, &row, NOW, takes[0].ask);
        *row = step.state;
        BackendFuture::ready(Ok(step.into()))
    }

    fn peek(&self, takes: &[Take<'_>]) -> BackendFuture<Steps> {
        let row = self.0.row.lock().unwrap();
        BackendFuture::ready(Ok(step(&takes[0].quota, &row, NOW, takes[0].ask).into()))
    }

    fn settle(&self, all: &[Adjustment<'_>]) -> BackendFuture<bool> {
        for adjustment in all {
            self.0.settled.fetch_add(1, Ordering::Relaxed);
            let mut row = self.0.row.lock().unwrap();
            *row = settle(&adjustment.quota, &row, &adjustment.receipt, NOW, adjustment.actual);
        }
        BackendFuture::ready(Ok(true))
    }

    fn reset(&self, _rows: &[RowId<'_>]) -> BackendFuture<usize> {
        *self.0.row.lock().unwrap() = State::default();
        BackendFuture::ready(Ok(1))
    }

    fn is_remote(&self) -> bool {
        self.0.remote
    }
}

fn now<T, E: std::fmt::Debug>(future: impl IntoFuture<Output = Result<T, E>>) -> T {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future.into_future()).poll(&mut context) {
        std::task::Poll::Ready(answer) => answer.unwrap(),
        std::task::Poll::Pending => panic!("not ready on the first poll"),
    }
}

#[test]
fn no_call_is_allowed_once_a_block_takes_effect() {
    every_order(|| {
        let limiter = RateLimiter::new(OneRow::default());
        let blocking = {
            let limiter = limiter.clone();
            thread(move || now(limiter.block(Signal::key("eve"), HOUR)))
        };
        // The same caller makes two calls. If the first call is denied, the second is also denied.
        let is_blocked = || now(limiter.try_check(&API, "eve")).reason() == Reason::Blocked;
        let calls = [is_blocked(), is_blocked()];
        assert!(calls[1] || !calls[0]);
        blocking.join().unwrap();
        assert!(is_blocked());
    });
}

#[test]
fn no_call_uses_the_old_quota_once_a_change_takes_effect() {
    every_order(|| {
        let limiter = RateLimiter::new(OneRow::default());
        // The main thread makes the change: loom remembers only the last access to an atomic, and `set_quota` reads the
        // count before writing it. In a spawned thread, this read would hide the calls' reads.
        let calls = {
            let limiter = limiter.clone();
            thread(move || [(); 2].map(|()| now(limiter.try_limit(&API, "ada")).capacity()))
        };
        now(limiter.set_quota(&API, Quota::token_bucket(9, HOUR)));
        let limits = calls.join().unwrap();
        assert!(limits[0] == 2 || limits[1] == 9, "{limits:?}");
        assert_eq!(now(limiter.try_limit(&API, "ada")).capacity(), 9);
    });
}

#[test]
fn concurrent_calls_take_as_many_slots_as_max_waiting_allows() {
    every_order(|| {
        let limiter = RateLimiter::builder(OneRow::default()).max_waiting(2).build();
        let others = [(); 2].map(|()| {
            let limiter = limiter.clone();
            thread(move || limiter.wait_slot())
        });
        let mine = limiter.wait_slot();
        let others = others.map(|other| other.join().unwrap());
        assert_eq!(others.iter().chain([&mine]).flatten().count(), 2);
        drop((others, mine));
        assert_eq!(limiter.waiting(), 0);
    });
}

/// A call that is denied a slot does not reduce the number of slots that concurrent calls can take.
#[test]
fn a_released_slot_goes_to_exactly_one_of_two_calls() {
    every_order(|| {
        let limiter = RateLimiter::builder(OneRow::default()).max_waiting(1).build();
        let taken = limiter.wait_slot();
        let other = {
            let limiter = limiter.clone();
            thread(move || limiter.wait_slot())
        };
        drop(taken);
        let mine = limiter.wait_slot();
        let other = other.join().unwrap();
        assert_ne!(mine.is_some(), other.is_some());
    });
}

#[test]
fn clones_of_a_receipt_settle_a_charge_only_once() {
    every_order(|| {
        let backend = OneRow::default();
        let limiter = RateLimiter::new(backend.clone());
        let usage = now(limiter.acquire(&API, "ada").cost(2).hold()).into_receipt();
        let other = {
            let usage = usage.clone();
            thread(move || now(usage.settle(1)))
        };
        now(usage.settle(0));
        other.join().unwrap();
        assert_eq!(backend.0.settled.load(Ordering::Relaxed), 1);
    });
}

/// On a remote backend, a call after a reset is decided based on the current row.
#[test]
fn denials_from_before_a_reset_are_not_cached_after_the_reset() {
    every_order(|| {
        let backend = OneRow::remote();
        // Another limiter charges the row, so the limiter under test has not cached it.
        assert!(now(RateLimiter::new(backend.clone()).try_acquire(&API, "eve").cost(2)).is_allowed());
        let limiter = RateLimiter::builder(backend).block_cache(4).build();
        let asking = {
            let limiter = limiter.clone();
            thread(move || drop(now(limiter.try_check(&API, "eve"))))
        };
        now(limiter.reset(&API, "eve"));
        asking.join().unwrap();
        let decision = now(limiter.try_limit(&API, "eve"));
        assert!(decision.is_allowed() && decision.decided_by() == DecidedBy::Backend);
    });
}

#[test]
fn denials_from_before_a_cancellation_are_not_cached_after_the_cancellation() {
    every_order(|| {
        let limiter = RateLimiter::builder(OneRow::remote()).block_cache(4).build();
        let held = now(limiter.acquire(&API, "eve").cost(2).hold());
        let asking = {
            let limiter = limiter.clone();
            thread(move || drop(now(limiter.try_check(&API, "eve"))))
        };
        now(held.cancel());
        asking.join().unwrap();
        assert!(now(limiter.try_limit(&API, "eve")).is_allowed());
    });
}

#[test]
fn concurrent_denials_cause_one_block_and_one_notification() {
    every_order(|| {
        let count = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let rules = AutoBlock::of_names([API.name().clone()]).threshold(2).within(MINUTE).block_for(HOUR);
        let limiter = RateLimiter::builder(OneRow::default())
            .auto_block(rules)
            .observer(BlockCounter(Arc::clone(&count)))
            .build();
        assert!(now(limiter.try_acquire(&API, "eve").cost(2)).is_allowed());
        let other = {
            let limiter = limiter.clone();
            thread(move || now(limiter.try_limit(&API, "eve")).is_allowed())
        };
        assert!(!now(limiter.try_limit(&API, "eve")).is_allowed());
        assert!(!other.join().unwrap());
        assert_eq!(count.load(std::sync::atomic::Ordering::Relaxed), 1);
        assert_eq!(now(limiter.try_limit(&API, "eve")).reason(), Reason::Blocked);
    });
}

#[derive(Debug)]
struct BlockCounter(Arc<std::sync::atomic::AtomicUsize>);

impl Observer for BlockCounter {
    fn decided(&self, _observed: &Decided<'_>) {}

    fn blocked(&self, _blocked: &Blocked<'_>) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}
