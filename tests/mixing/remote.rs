//! The second half of the adapter: two limiters on one server, as two processes have them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tollgate::algorithm::Micros;
use tollgate::backend::{
    Adjustment, Backend, BackendFuture, Error, ErrorKind, Health, LeaseBackend, NoticeChannel, RedisBackend, RowId,
    Steps, Take,
};
use tollgate::clock::{Clock, Sleep};
use tollgate::key::Secret;
use tollgate::policy::Enforce;
use tollgate::{DAY, FailureMode, LimitError, Policy, Quota, RateLimiter, Receipt};

use super::adapter;
use super::terms::{Answer, By, Kind, Line};

/// How the rows of a policy are kept. All quotas refill so slowly that a run sees no refill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) kind: Kind,
    pub(crate) capacity: u64,
    pub(crate) shards: u64,
    pub(crate) leases: bool,
}

/// How long a lease can be spent. Its holder asks for the next one before.
pub(crate) const LEASE_LIFE: Duration = tollgate::algorithm::LEASE_LIFE;

/// Two limiters on one server, each with its own connection.
pub(crate) struct Pair {
    policies: Vec<Policy>,
    /// The same policies without leases.
    plain: Vec<Policy>,
    limiters: [RateLimiter; 2],
    failing: [Arc<AtomicBool>; 2],
    receipts: Vec<Receipt>,
    marks: AtomicU64,
}

impl Pair {
    pub(crate) async fn start(url: &str, prefix: &str, shapes: &[Shape]) -> Pair {
        let failing = [false, false].map(|failing| Arc::new(AtomicBool::new(failing)));
        let mut limiters = Vec::new();
        for failing in &failing {
            let builder = RedisBackend::builder().prefix(prefix).deadline(60 * tollgate::SECOND);
            let inner = builder.notices_every(Duration::from_millis(50)).connect(url).await.unwrap();
            let backend = FailingServer { inner, failing: Arc::clone(failing) };
            let builder = RateLimiter::builder(backend).on_failure(FailureMode::Deny);
            // The second limiter remembers no denials, so that it can spend what is left.
            let builder = if limiters.is_empty() { builder } else { builder.block_cache(0) };
            limiters.push(builder.build());
        }
        let policies = (0..).zip(shapes).map(|(number, shape)| policy(number, shape)).collect();
        let without = (0..).zip(shapes).map(|(number, shape)| policy(number, &Shape { leases: false, ..*shape }));
        let plain = without.collect();
        let limiters = limiters.try_into().unwrap_or_else(|_| unreachable!("there are two"));
        Pair { policies, plain, limiters, failing, receipts: Vec::new(), marks: AtomicU64::new(0) }
    }

    pub(crate) async fn limit(&self, at: usize, policy: usize, key: u8, cost: u64) -> Option<Line> {
        let call = self.limiters[at].try_acquire(&self.policies[policy], u64::from(key)).cost(cost);
        call.await.ok().map(|decision| adapter::line(&decision))
    }

    /// Spends a token without a lease and without what the limiter remembers. Returns whether there was one.
    pub(crate) async fn spend(&self, policy: usize, key: u8) -> bool {
        self.limiters[1].try_limit(&self.plain[policy], u64::from(key)).await.unwrap().is_allowed()
    }

    /// Holds tokens. Returns `None` if the server failed. The receipts have the numbers 0, 1 and so on.
    pub(crate) async fn hold(&mut self, at: usize, policy: usize, key: u8, cost: u64) -> Option<bool> {
        let held = self.limiters[at].acquire(&self.policies[policy], u64::from(key)).cost(cost).hold().await;
        match held {
            Ok(reservation) => {
                self.receipts.push(reservation.into_receipt());
                Some(true)
            }
            Err(LimitError::Denied(_)) => Some(false),
            Err(_) => None,
        }
    }

    pub(crate) async fn settle(&self, receipt: usize, actual: u64) -> Answer {
        adapter::flag(self.receipts[receipt].settle(actual).await)
    }

    pub(crate) async fn credit(&self, at: usize, policy: usize, key: u8, tokens: u64) -> Answer {
        adapter::flag(self.limiters[at].credit(&self.policies[policy], u64::from(key), tokens).await)
    }

    pub(crate) async fn reset(&self, at: usize, policy: usize, key: u8) -> Answer {
        adapter::flag(self.limiters[at].reset(&self.policies[policy], u64::from(key)).await)
    }

    pub(crate) async fn reset_policy(&self, at: usize, policy: usize) {
        self.limiters[at].reset_policy(&self.policies[policy]).await.unwrap();
    }

    /// Returns the tokens that are left, as a check reads them. `None` if the check is answered from memory, because a
    /// denial is remembered for a second, whatever the other limiter gives back.
    pub(crate) async fn remaining(&self, at: usize, policy: usize, key: u8) -> Option<u64> {
        let check = self.limiters[at].try_acquire(&self.policies[policy], u64::from(key)).cost(0).check();
        let line = adapter::line(&check.await.ok()?);
        line.remaining.filter(|_| line.by != By::Remembered)
    }

    /// Pauses and resumes a key without waiting for the server.
    pub(crate) fn pause_and_resume(&self, at: usize, policy: usize, key: u8) {
        let (limiter, policy) = (&self.limiters[at], &self.policies[policy]);
        drop(limiter.pause(policy, u64::from(key), tollgate::HOUR));
        drop(limiter.resume(policy, u64::from(key)));
    }

    /// Waits until both limiters have received all that was published: each publishes a mark, which comes last.
    pub(crate) async fn noticed(&self) {
        for limiter in &self.limiters {
            let share = 1.0 / (2 + self.marks.fetch_add(1, Ordering::Relaxed)) as f64;
            let mark = Enforce::Share(share);
            limiter.set_enforcement(&MARKS, mark).await.unwrap();
            while self.limiters.iter().any(|limiter| limiter.enforcement(&MARKS) != mark) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }

    pub(crate) fn fail(&self, at: usize, failing: bool) {
        self.failing[at].store(failing, Ordering::Relaxed);
    }

    /// Gives the leased tokens of both limiters back.
    pub(crate) async fn shut_down(&self) {
        for limiter in &self.limiters {
            limiter.shutdown().await.unwrap();
        }
    }
}

fn policy(number: usize, shape: &Shape) -> Policy {
    let years = 36_000 * DAY;
    let quota = match shape.kind {
        Kind::Bucket => Quota::token_bucket(shape.capacity, years),
        Kind::Fixed => Quota::fixed_window(shape.capacity, years),
        Kind::Sliding => Quota::sliding_window(shape.capacity, years),
    };
    let policy = Policy::try_new(format!("policy{number}"), quota.shards(shape.shards)).unwrap();
    if shape.leases { policy.leases() } else { policy }
}

/// A policy under which nothing is charged.
static MARKS: Policy = Policy::new("marks", Quota::per_second(1));

/// A backend that fails on demand, before it calls the server.
#[derive(Debug)]
struct FailingServer {
    inner: RedisBackend,
    failing: Arc<AtomicBool>,
}

impl FailingServer {
    fn or_fail<T: Send + 'static>(&self, answer: impl FnOnce(&RedisBackend) -> BackendFuture<T>) -> BackendFuture<T> {
        if self.failing.load(Ordering::Relaxed) {
            return BackendFuture::ready(Err(Error::new(ErrorKind::Unavailable, "the server is down")));
        }
        answer(&self.inner)
    }
}

impl Backend for FailingServer {
    fn acquire(&self, takes: &[Take<'_>]) -> BackendFuture<Steps> {
        self.or_fail(|inner| inner.acquire(takes))
    }

    fn peek(&self, takes: &[Take<'_>]) -> BackendFuture<Steps> {
        self.or_fail(|inner| inner.peek(takes))
    }

    fn settle(&self, settlements: &[Adjustment<'_>]) -> BackendFuture<bool> {
        self.or_fail(|inner| inner.settle(settlements))
    }

    fn reset(&self, rows: &[RowId<'_>]) -> BackendFuture<usize> {
        self.or_fail(|inner| inner.reset(rows))
    }

    fn secret(&self) -> Option<Secret> {
        self.inner.secret()
    }

    fn sleep_until(&self, instant: Micros) -> Option<Sleep> {
        self.inner.sleep_until(instant)
    }

    fn clock(&self) -> Option<Arc<dyn Clock>> {
        self.inner.clock()
    }

    fn is_remote(&self) -> bool {
        self.inner.is_remote()
    }

    fn notice_channel(&self) -> Option<Arc<dyn NoticeChannel>> {
        self.inner.notice_channel()
    }

    fn lease_backend(&self) -> Option<Arc<dyn LeaseBackend>> {
        self.inner.lease_backend()
    }

    fn health(&self) -> Health {
        self.inner.health()
    }
}
