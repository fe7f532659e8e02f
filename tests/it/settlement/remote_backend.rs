//! A backend that simulates a network. Operations take effect when they are called, but are confirmed later.

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
pub(crate) struct RemoteBackend {
    pub(crate) rows: MemoryBackend,
    /// How many times each result is `Pending` before it is ready.
    pub(crate) polls: usize,
    pub(crate) fails: bool,
    pub(crate) log: Arc<Log>,
}

#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) begun: AtomicUsize,
    pub(crate) confirmed: AtomicUsize,
}

impl RemoteBackend {
    pub(crate) fn new(clock: ManualClock, polls: usize) -> RemoteBackend {
        let rows = MemoryBackend::builder().clock(clock).build();
        RemoteBackend { rows, polls, fails: false, log: Arc::default() }
    }

    fn delay<T: Send + 'static>(&self, result: BackendFuture<T>, done: impl Fn() + Send + 'static) -> BackendFuture<T> {
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
            result.await
        })
    }

    fn record<T: Send + 'static>(&self, done: impl FnOnce() -> BackendFuture<T>) -> BackendFuture<T> {
        let log = Arc::clone(&self.log);
        log.begun.fetch_add(1, Ordering::Relaxed);
        let result = if self.fails {
            BackendFuture::ready(Err(Error::new(ErrorKind::Unavailable, "connection refused by 10.0.0.7")))
        } else {
            done()
        };
        self.delay(result, move || {
            log.confirmed.fetch_add(1, Ordering::Relaxed);
        })
    }
}

impl Backend for RemoteBackend {
    fn acquire(&self, takes: &[Take<'_>]) -> BackendFuture<Steps> {
        self.delay(self.rows.acquire(takes), || ())
    }

    fn peek(&self, takes: &[Take<'_>]) -> BackendFuture<Steps> {
        self.delay(self.rows.peek(takes), || ())
    }

    fn settle(&self, settlements: &[Adjustment<'_>]) -> BackendFuture<bool> {
        self.record(|| self.rows.settle(settlements))
    }

    fn reset(&self, rows: &[RowId<'_>]) -> BackendFuture<usize> {
        self.record(|| self.rows.reset(rows))
    }
}
