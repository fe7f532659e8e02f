//! A backend as a store in the network would be: what is asked happens at the call, and is confirmed a while later.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use tollgate::backend::{Adjustment, Backend, BackendFuture, RowId, Steps, Take};
use tollgate::{
    MemoryBackend,
    backend::{Error, ErrorKind},
    clock::ManualClock,
};

#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) rows: MemoryBackend,
    /// How often an answer is not there yet.
    pub(crate) polls: usize,
    /// Whether it does not settle.
    pub(crate) fails: bool,
    pub(crate) log: Arc<Log>,
}

/// Settlements and resets.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) begun: AtomicUsize,
    pub(crate) confirmed: AtomicUsize,
}

impl Store {
    pub(crate) fn new(clock: ManualClock, polls: usize) -> Store {
        let rows = MemoryBackend::builder().clock(clock).build();
        Store { rows, polls, fails: false, log: Arc::default() }
    }

    fn later<T: Send + 'static>(&self, answer: BackendFuture<T>, done: impl Fn() + Send + 'static) -> BackendFuture<T> {
        let mut polls = self.polls;
        BackendFuture::boxed(async move {
            poll_fn(|context| {
                if polls == 0 {
                    return Poll::Ready(());
                }
                polls -= 1;
                context.waker().wake_by_ref();
                Poll::Pending
            })
            .await;
            done();
            answer.await
        })
    }

    fn settled<T: Send + 'static>(&self, done: impl FnOnce() -> BackendFuture<T>) -> BackendFuture<T> {
        let log = Arc::clone(&self.log);
        log.begun.fetch_add(1, Ordering::Relaxed);
        let answer = if self.fails {
            BackendFuture::ready(Err(Error::new(ErrorKind::Unavailable, "10.0.0.7 refuses the connection")))
        } else {
            done()
        };
        self.later(answer, move || {
            log.confirmed.fetch_add(1, Ordering::Relaxed);
        })
    }
}

impl Backend for Store {
    fn acquire(&self, takes: &[Take<'_>]) -> BackendFuture<Steps> {
        self.later(self.rows.acquire(takes), || ())
    }

    fn peek(&self, takes: &[Take<'_>]) -> BackendFuture<Steps> {
        self.later(self.rows.peek(takes), || ())
    }

    fn settle(&self, settlements: &[Adjustment<'_>]) -> BackendFuture<bool> {
        self.settled(|| self.rows.settle(settlements))
    }

    fn reset(&self, rows: &[RowId<'_>]) -> BackendFuture<usize> {
        self.settled(|| self.rows.reset(rows))
    }
}
