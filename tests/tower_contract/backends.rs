//! Backends that a store in the network may be like.

use std::sync::Arc;

use tokio::sync::Notify;
use tollgate::backend::{Adjustment, Backend, BackendFuture, RowId, Steps, Take};
use tollgate::{
    MemoryBackend, RateLimiter,
    backend::{Error, ErrorKind},
    clock::ManualClock,
};

/// Limiters whose answers are there at once, and after a while. Their clocks stand still.
pub(crate) fn limiters() -> [RateLimiter; 2] {
    [RateLimiter::new(rows()), RateLimiter::new(Later { rows: rows(), wait: Wait::Turns(2) })]
}

/// A limiter that answers one call for each notification.
pub(crate) fn gated(gate: &Arc<Notify>) -> RateLimiter {
    RateLimiter::new(Later { rows: rows(), wait: Wait::For(Arc::clone(gate)) })
}

fn rows() -> MemoryBackend {
    MemoryBackend::builder().clock(ManualClock::new()).build()
}

/// Decides in memory and keeps the answer back for a while.
#[derive(Debug)]
struct Later {
    rows: MemoryBackend,
    wait: Wait,
}

#[derive(Clone, Debug)]
enum Wait {
    Turns(usize),
    For(Arc<Notify>),
}

impl Later {
    fn keep_back<T: Send + 'static>(&self, answer: BackendFuture<T>) -> BackendFuture<T> {
        let wait = self.wait.clone();
        BackendFuture::boxed(async move {
            match wait {
                Wait::Turns(turns) => {
                    for _ in 0..turns {
                        tokio::task::yield_now().await;
                    }
                }
                Wait::For(gate) => gate.notified().await,
            }
            answer.await
        })
    }
}

impl Backend for Later {
    fn acquire(&self, takes: &[Take<'_>]) -> BackendFuture<Steps> {
        self.keep_back(self.rows.acquire(takes))
    }

    fn peek(&self, takes: &[Take<'_>]) -> BackendFuture<Steps> {
        self.keep_back(self.rows.peek(takes))
    }

    fn settle(&self, settlements: &[Adjustment<'_>]) -> BackendFuture<bool> {
        self.keep_back(self.rows.settle(settlements))
    }

    fn reset(&self, rows: &[RowId<'_>]) -> BackendFuture<usize> {
        self.keep_back(self.rows.reset(rows))
    }
}

/// Never decides: at once, or after a turn.
#[derive(Debug)]
pub(crate) struct Broken {
    pub(crate) at_once: bool,
}

impl Broken {
    fn fail<T: Send + 'static>(&self) -> BackendFuture<T> {
        let error = Err(Error::new(ErrorKind::Unavailable, "redis://10.0.0.7 refuses the connection"));
        if self.at_once {
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
