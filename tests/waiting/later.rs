//! A backend whose answers take a while, as a network's do.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tollgate::algorithm::Micros;
use tollgate::backend::{Adjustment, Backend, BackendFuture, RowId, Steps, Take};
use tollgate::{
    MemoryBackend,
    clock::{ManualClock, Sleep},
};

/// Decides and settles at the call, as the contract says, and keeps the answer back for so many polls.
#[derive(Debug)]
pub(crate) struct Later {
    rows: MemoryBackend,
    polls: usize,
}

impl Later {
    pub(crate) fn new(clock: &ManualClock, polls: usize) -> Later {
        Later { rows: MemoryBackend::builder().clock(clock.clone()).build(), polls }
    }

    fn keep_back<T: Send + Unpin + 'static>(&self, answer: BackendFuture<T>) -> BackendFuture<T> {
        if self.polls == 0 { answer } else { BackendFuture::boxed(KeptBack { answer, polls: self.polls }) }
    }
}

struct KeptBack<T> {
    answer: BackendFuture<T>,
    polls: usize,
}

impl<T> Future for KeptBack<T> {
    type Output = <BackendFuture<T> as Future>::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.polls > 0 {
            self.polls -= 1;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Pin::new(&mut self.answer).poll(context)
    }
}

impl Backend for Later {
    fn acquire(&self, takes: &[Take<'_>]) -> BackendFuture<Steps> {
        self.keep_back(self.rows.acquire(takes))
    }

    fn peek(&self, takes: &[Take<'_>]) -> BackendFuture<Steps> {
        self.rows.peek(takes)
    }

    fn settle(&self, settlements: &[Adjustment<'_>]) -> BackendFuture<bool> {
        self.keep_back(self.rows.settle(settlements))
    }

    fn reset(&self, rows: &[RowId<'_>]) -> BackendFuture<usize> {
        self.keep_back(self.rows.reset(rows))
    }

    fn sleep_until(&self, instant: Micros) -> Option<Sleep> {
        self.rows.sleep_until(instant)
    }
}
