//! A backend that counts its calls and simulates the travel times to and from a server.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::oneshot;
use tollgate::backend::{
    Adjustment, Backend, BackendFuture, Health, LeaseBackend, LoadedRows, NoticeChannel, RowId, SavedRows, Steps, Take,
};
use tollgate::{
    MemoryBackend,
    backend::{Error, ErrorKind},
    clock::{Clock, ManualClock, Sleep},
    key::Secret,
    policy::PolicyName,
};

#[derive(Debug)]
pub(crate) struct TestBackend {
    pub(crate) rows: MemoryBackend,
    clock: ManualClock,
    is_remote: bool,
    calls: AtomicUsize,
    writes: AtomicUsize,
    /// The travel times of a call and of its reply.
    travel_times: Mutex<(Duration, Duration)>,
    /// Whether replies are held back. `held` contains the senders that release them.
    holds: AtomicBool,
    held: Mutex<Vec<oneshot::Sender<()>>>,
    pub(crate) fails: AtomicBool,
}

impl TestBackend {
    pub(crate) fn local(clock: &ManualClock) -> Arc<TestBackend> {
        TestBackend::new(clock, false)
    }

    pub(crate) fn remote(clock: &ManualClock) -> Arc<TestBackend> {
        TestBackend::new(clock, true)
    }

    fn new(clock: &ManualClock, is_remote: bool) -> Arc<TestBackend> {
        Arc::new(TestBackend {
            rows: MemoryBackend::builder().clock(clock.clone()).build(),
            clock: clock.clone(),
            is_remote,
            calls: AtomicUsize::new(0),
            writes: AtomicUsize::new(0),
            travel_times: Mutex::default(),
            holds: AtomicBool::new(false),
            held: Mutex::default(),
            fails: AtomicBool::new(false),
        })
    }

    /// Returns the number of decisions requested since this method was last called.
    pub(crate) fn take_calls(&self) -> usize {
        self.calls.swap(0, Ordering::Relaxed)
    }

    /// Returns the number of calls that may write rows.
    pub(crate) fn writes(&self) -> usize {
        self.writes.load(Ordering::Relaxed)
    }

    pub(crate) fn set_travel_times(&self, outbound: Duration, inbound: Duration) {
        *self.travel_times.lock().unwrap() = (outbound, inbound);
    }

    /// Holds back all replies until they are released.
    pub(crate) fn hold_replies(&self) {
        self.holds.store(true, Ordering::Relaxed);
    }

    pub(crate) fn release_replies(&self) {
        self.holds.store(false, Ordering::Relaxed);
        for held in self.held.lock().unwrap().drain(..) {
            // The receiver may have been dropped.
            let _ = held.send(());
        }
    }

    fn write(&self) -> &MemoryBackend {
        self.writes.fetch_add(1, Ordering::Relaxed);
        &self.rows
    }

    fn ask(&self, ask: impl FnOnce() -> BackendFuture<Steps>) -> BackendFuture<Steps> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if self.fails.load(Ordering::Relaxed) {
            return BackendFuture::ready(Err(Error::new(ErrorKind::Unavailable, "10.0.0.7 refused the connection")));
        }
        let (outbound, inbound) = *self.travel_times.lock().unwrap();
        self.clock.advance(outbound);
        let answer = ask();
        self.clock.advance(inbound);
        if !self.holds.load(Ordering::Relaxed) {
            return answer;
        }
        let (release, released) = oneshot::channel();
        self.held.lock().unwrap().push(release);
        BackendFuture::boxed(async move {
            let _ = released.await;
            answer.await
        })
    }
}

#[deny(clippy::missing_trait_methods)]
impl Backend for TestBackend {
    fn acquire(&self, takes: &[Take<'_>]) -> BackendFuture<Steps> {
        self.ask(|| self.write().acquire(takes))
    }

    fn peek(&self, takes: &[Take<'_>]) -> BackendFuture<Steps> {
        self.ask(|| self.rows.peek(takes))
    }

    fn settle(&self, settlements: &[Adjustment<'_>]) -> BackendFuture<bool> {
        self.write().settle(settlements)
    }

    fn reset(&self, rows: &[RowId<'_>]) -> BackendFuture<usize> {
        self.write().reset(rows)
    }

    fn secret(&self) -> Option<Secret> {
        self.rows.secret()
    }

    fn sleep_until(&self, instant: tollgate::algorithm::Micros) -> Option<Sleep> {
        self.rows.sleep_until(instant)
    }

    fn clock(&self) -> Option<Arc<dyn Clock>> {
        self.rows.clock()
    }

    fn is_remote(&self) -> bool {
        self.is_remote
    }

    fn notice_channel(&self) -> Option<Arc<dyn NoticeChannel>> {
        self.rows.notice_channel()
    }

    fn lease_backend(&self) -> Option<Arc<dyn LeaseBackend>> {
        self.rows.lease_backend()
    }

    fn health(&self) -> Health {
        self.rows.health()
    }

    fn rows_by_policy(&self) -> Vec<(PolicyName, usize)> {
        self.rows.rows_by_policy()
    }

    fn save_rows(&self) -> Option<SavedRows> {
        self.rows.save_rows()
    }

    fn load_rows(&self, bytes: &[u8]) -> Result<LoadedRows, Error> {
        self.rows.load_rows(bytes)
    }
}
