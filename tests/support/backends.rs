//! Backends that fail, answer late or store nothing.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use tokio::sync::Notify;
use tollgate::MemoryBackend;
use tollgate::algorithm::{Micros, State, step};
use tollgate::backend::{Adjustment, Backend, BackendFuture, Error, ErrorKind, RowId, Steps, Take};
use tollgate::clock::{Clock, ManualClock, Sleep};

/// Implements `Backend` with one expression for the results of all four calls.
macro_rules! answer_all {
    ($backend:ty, |$self:ident| $answer:expr) => {
        impl Backend for $backend {
            fn acquire(&$self, _: &[Take<'_>]) -> BackendFuture<Steps> {
                $answer
            }

            fn peek(&$self, _: &[Take<'_>]) -> BackendFuture<Steps> {
                $answer
            }

            fn settle(&$self, _: &[Adjustment<'_>]) -> BackendFuture<bool> {
                $answer
            }

            fn reset(&$self, _: &[RowId<'_>]) -> BackendFuture<usize> {
                $answer
            }
        }
    };
}

/// A backend whose calls all fail.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FailingBackend {
    /// Whether calls fail immediately, or only after their futures have yielded once.
    pub(crate) immediate: bool,
    /// What the error says. Clients must not see it.
    pub(crate) message: &'static str,
}

impl FailingBackend {
    pub(crate) const IMMEDIATE: FailingBackend = FailingBackend { immediate: true, message: "cannot reach 10.0.0.7" };
    pub(crate) const LATE: FailingBackend = FailingBackend { immediate: false, ..FailingBackend::IMMEDIATE };

    fn fail<T: Send + 'static>(self) -> BackendFuture<T> {
        let cause = std::io::Error::other("connection refused");
        let error = Err(Error::new(ErrorKind::Unavailable, self.message).with_source(cause));
        if self.immediate {
            return BackendFuture::ready(error);
        }
        BackendFuture::boxed(async {
            pending(1).await;
            error
        })
    }
}

answer_all!(FailingBackend, |self| self.fail());

/// A backend that never answers.
#[derive(Debug)]
pub(crate) struct SilentBackend;

answer_all!(SilentBackend, |self| BackendFuture::boxed(std::future::pending()));

/// A backend that simulates a network. Calls take effect when they are made, as the contract of `Backend` requires, but
/// are answered later.
#[derive(Debug)]
pub(crate) struct DelayedBackend {
    pub(crate) rows: MemoryBackend,
    pub(crate) delay: Delay,
    /// Whether settlements and resets fail.
    pub(crate) fails: bool,
    pub(crate) log: Arc<Log>,
}

#[derive(Clone, Debug)]
pub(crate) enum Delay {
    /// Each result is `Pending` so many times before it is ready.
    Polls(usize),
    /// Each result is ready once a permit has been notified.
    Until(Arc<Notify>),
}

/// The number of settlements and resets.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) begun: AtomicUsize,
    pub(crate) confirmed: AtomicUsize,
}

impl DelayedBackend {
    pub(crate) fn new(clock: &ManualClock, polls: usize) -> DelayedBackend {
        DelayedBackend::with(clock, Delay::Polls(polls))
    }

    pub(crate) fn with(clock: &ManualClock, delay: Delay) -> DelayedBackend {
        let rows = MemoryBackend::builder().clock(clock.clone()).build();
        DelayedBackend { rows, delay, fails: false, log: Arc::default() }
    }

    fn delay_decision(&self, steps: BackendFuture<Steps>) -> BackendFuture<Steps> {
        if matches!(self.delay, Delay::Polls(0)) { steps } else { self.delay(steps, || ()) }
    }

    fn delay<T: Send + 'static>(
        &self,
        result: BackendFuture<T>,
        done: impl FnOnce() + Send + 'static,
    ) -> BackendFuture<T> {
        let delay = self.delay.clone();
        BackendFuture::boxed(async move {
            match delay {
                Delay::Polls(polls) => pending(polls).await,
                Delay::Until(gate) => gate.notified().await,
            }
            done();
            result.await
        })
    }

    fn record<T: Send + 'static>(&self, call: impl FnOnce() -> BackendFuture<T>) -> BackendFuture<T> {
        let log = Arc::clone(&self.log);
        log.begun.fetch_add(1, Ordering::Relaxed);
        let result = if self.fails { FailingBackend::IMMEDIATE.fail() } else { call() };
        self.delay(result, move || {
            log.confirmed.fetch_add(1, Ordering::Relaxed);
        })
    }
}

/// Is `Pending` so many times, and asks to be polled again each time.
async fn pending(mut polls: usize) {
    poll_fn(|context| {
        if polls == 0 {
            return Poll::Ready(());
        }
        polls -= 1;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl Backend for DelayedBackend {
    fn acquire(&self, takes: &[Take<'_>]) -> BackendFuture<Steps> {
        self.delay_decision(self.rows.acquire(takes))
    }

    fn peek(&self, takes: &[Take<'_>]) -> BackendFuture<Steps> {
        self.delay_decision(self.rows.peek(takes))
    }

    fn settle(&self, settlements: &[Adjustment<'_>]) -> BackendFuture<bool> {
        self.record(|| self.rows.settle(settlements))
    }

    fn reset(&self, rows: &[RowId<'_>]) -> BackendFuture<usize> {
        self.record(|| self.rows.reset(rows))
    }

    fn sleep_until(&self, instant: Micros) -> Option<Sleep> {
        self.rows.sleep_until(instant)
    }
}

/// A backend that is fast because it stores no rows: each call finds a fresh one.
#[derive(Debug)]
pub(crate) struct NoRows(pub(crate) ManualClock);

impl Backend for NoRows {
    fn acquire(&self, takes: &[Take<'_>]) -> BackendFuture<Steps> {
        let now = self.0.now();
        let steps = takes.iter().map(|take| step(&take.quota, &State::default(), now, take.ask));
        BackendFuture::ready(Ok(steps.collect()))
    }

    fn peek(&self, takes: &[Take<'_>]) -> BackendFuture<Steps> {
        self.acquire(takes)
    }

    fn settle(&self, _: &[Adjustment<'_>]) -> BackendFuture<bool> {
        BackendFuture::ready(Ok(true))
    }

    fn reset(&self, _: &[RowId<'_>]) -> BackendFuture<usize> {
        BackendFuture::ready(Ok(0))
    }

    fn clock(&self) -> Option<Arc<dyn Clock>> {
        Some(Arc::new(self.0.clone()))
    }
}
