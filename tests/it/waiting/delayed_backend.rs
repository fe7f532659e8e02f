//! A backend whose results arrive late, like results from a remote server.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tollgate::algorithm::Micros;
use tollgate::backend::{Adjustment, Backend, BackendFuture, RowId, Steps, Take};
use tollgate::{
    MemoryBackend,
    clock::{ManualClock, Sleep},
};

/// A backend that decides and settles as soon as it is called, as the contract of `Backend` requires. The results are
/// ready only after `polls` polls.
#[derive(Debug)]
pub(crate) struct DelayedBackend {
    rows: MemoryBackend,
    polls: usize,
}

impl DelayedBackend {
    pub(crate) fn new(clock: &ManualClock, polls: usize) -> DelayedBackend {
        DelayedBackend { rows: MemoryBackend::builder().clock(clock.clone()).build(), polls }
    }

    fn delay<T: Send + Unpin + 'static>(&self, result: BackendFuture<T>) -> BackendFuture<T> {
        if self.polls == 0 { result } else { BackendFuture::boxed(Delayed { result, polls: self.polls }) }
    }
}

struct Delayed<T> {
    result: BackendFuture<T>,
    polls: usize,
}

impl<T> Future for Delayed<T> {
    type Output = <BackendFuture<T> as Future>::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.polls > 0 {
            self.polls -= 1;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Pin::new(&mut self.result).poll(context)
    }
}

impl Backend for DelayedBackend {
    fn acquire(&self, takes: &[Take<'_>]) -> BackendFuture<Steps> {
        self.delay(self.rows.acquire(takes))
    }

    fn peek(&self, takes: &[Take<'_>]) -> BackendFuture<Steps> {
        self.rows.peek(takes)
    }

    fn settle(&self, settlements: &[Adjustment<'_>]) -> BackendFuture<bool> {
        self.delay(self.rows.settle(settlements))
    }

    fn reset(&self, rows: &[RowId<'_>]) -> BackendFuture<usize> {
        self.delay(self.rows.reset(rows))
    }

    fn sleep_until(&self, instant: Micros) -> Option<Sleep> {
        self.rows.sleep_until(instant)
    }
}
