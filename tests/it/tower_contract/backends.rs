//! Backends that behave like remote backends.

use std::sync::Arc;

use tokio::sync::Notify;
use tollgate::backend::{Adjustment, Backend, BackendFuture, RowId, Steps, Take};
use tollgate::{
    MemoryBackend, RateLimiter,
    backend::{Error, ErrorKind},
    clock::ManualClock,
};

/// Creates two limiters with stopped clocks. One decides immediately, and the other decides after a delay.
pub(crate) fn limiters() -> [RateLimiter; 2] {
    [RateLimiter::new(rows()), RateLimiter::new(Delayed { rows: rows(), delay: Delay::Yields(2) })]
}

/// Creates a limiter that completes one call for each notification of `gate`.
pub(crate) fn gated(gate: &Arc<Notify>) -> RateLimiter {
    RateLimiter::new(Delayed { rows: rows(), delay: Delay::Until(Arc::clone(gate)) })
}

fn rows() -> MemoryBackend {
    MemoryBackend::builder().clock(ManualClock::new()).build()
}

#[derive(Debug)]
struct Delayed {
    rows: MemoryBackend,
    delay: Delay,
}

#[derive(Clone, Debug)]
enum Delay {
    Yields(usize),
    Until(Arc<Notify>),
}

impl Delayed {
    fn delayed<T: Send + 'static>(&self, answer: BackendFuture<T>) -> BackendFuture<T> {
        let delay = self.delay.clone();
        BackendFuture::boxed(async move {
            match delay {
                Delay::Yields(count) => {
                    for _ in 0..count {
                        tokio::task::yield_now().await;
                    }
                }
                Delay::Until(gate) => gate.notified().await,
            }
            answer.await
        })
    }
}

impl Backend for Delayed {
    fn acquire(&self, takes: &[Take<'_>]) -> BackendFuture<Steps> {
        self.delayed(self.rows.acquire(takes))
    }

    fn peek(&self, takes: &[Take<'_>]) -> BackendFuture<Steps> {
        self.delayed(self.rows.peek(takes))
    }

    fn settle(&self, settlements: &[Adjustment<'_>]) -> BackendFuture<bool> {
        self.delayed(self.rows.settle(settlements))
    }

    fn reset(&self, rows: &[RowId<'_>]) -> BackendFuture<usize> {
        self.delayed(self.rows.reset(rows))
    }
}

/// A backend that always fails, immediately or after yielding once.
#[derive(Debug)]
pub(crate) struct Broken {
    pub(crate) immediate: bool,
}

impl Broken {
    fn fail<T: Send + 'static>(&self) -> BackendFuture<T> {
        let error = Err(Error::new(ErrorKind::Unavailable, "redis://10.0.0.7 refused the connection"));
        if self.immediate {
            return BackendFuture::ready(error);
        }
        BackendFuture::boxed(async {
            tokio::task::yield_now().await;
            error
        })
    }
}

impl Backend for Broken {
    fn acquire(&self, _takes: &[Take<'_>]) -> BackendFuture<Steps> {
        self.fail()
    }

    fn peek(&self, _takes: &[Take<'_>]) -> BackendFuture<Steps> {
        self.fail()
    }

    fn settle(&self, _settlements: &[Adjustment<'_>]) -> BackendFuture<bool> {
        self.fail()
    }

    fn reset(&self, _rows: &[RowId<'_>]) -> BackendFuture<usize> {
        self.fail()
    }
}
