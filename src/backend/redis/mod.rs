//! The Redis backend, which enforces limits across machines. Requires the `redis` feature.

mod batch;
mod batcher;
mod breaker;
mod builder;
mod error;
#[cfg(all(tollgate_fuzzing, feature = "serde"))]
pub(super) mod fuzzing;
mod leases;
mod link;
#[cfg(all(test, tollgate_models))]
mod models;
mod notices;
mod script;
mod slot;
mod wire;

use std::sync::Arc;
use std::time::Instant;

use smallvec::SmallVec;
use tokio::sync::oneshot;

use self::batch::{Action, Operation, Outcome, QueuedTake, RowKey};
use self::batcher::Batcher;
use self::notices::RedisNoticeChannel;
use self::wire::VERSION;
use super::{
    Adjustment, Backend, BackendFuture, Error, ErrorKind, Health, LeaseBackend, NoticeChannel, OwnedTake, RowId, Steps,
    Take,
};
use crate::algorithm::{ChargeRecord, Step};
use crate::policy::{Digest, PolicyName, Secret};

pub use builder::RedisBackendBuilder;

/// Stores rows on a shared Redis (6.2 or newer) or Valkey server. See [the guide](crate::docs::redis).
///
/// ```no_run
/// # use tollgate::{Policy, Quota, RateLimiter, MINUTE, backend::RedisBackend};
/// static API: Policy = Policy::new("api", Quota::token_bucket(100, MINUTE));
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = RateLimiter::new(RedisBackend::connect("redis://127.0.0.1").await?);
/// limiter.limit(&API, "ada").await?;
/// # Ok(()) }
/// ```
///
/// - **Exact.** One script call decides a request exactly as the memory backend does, but with the server's clock.
/// - **Small.** A row is a string of 40 bytes, plus 32 for each additional quota of its policy, and for each quota that
///   has leases. Denials write nothing.
/// - **Bounded.** A decision ends by its [deadline](RedisBackendBuilder::deadline). In an outage, it fails at once.
/// - **Private.** Keys are hashed with a secret before they leave the process.
///
/// Clones share one connection.
#[derive(Clone)]
pub struct RedisBackend {
    batcher: Arc<Batcher>,
    prefix: Arc<str>,
    secret: Secret,
    channel: Option<Arc<RedisNoticeChannel>>,
}

impl RedisBackend {
    /// Connects to one server. The URL has the form `redis://user:password@host:port/db`. Use `rediss://` for TLS
    /// (requires the `redis-tls` feature) or `unix:///path` for a Unix socket.
    ///
    /// TLS connections trust the system's certificates. If the environment variable `SSL_CERT_FILE` names a file, they
    /// trust the certificates in that file instead. The crypto provider is *ring* unless the process has installed
    /// another one for rustls.
    ///
    /// # Errors
    /// Fails with [`Protocol`](ErrorKind::Protocol) if the configuration is invalid, for example because of a malformed
    /// URL. Fails with [`Unavailable`](ErrorKind::Unavailable) if a retry might help.
    ///
    /// # Panics
    /// Panics if called outside of a tokio runtime.
    pub async fn connect(url: &str) -> Result<RedisBackend, Error> {
        RedisBackend::builder().connect(url).await
    }

    /// Connects to a cluster. The nodes in `urls`, such as `["redis://10.0.0.5:6379"]`, are used to discover the rest.
    ///
    /// All charges for one key are decided together. A call that charges several keys is decided one slot at a time. If
    /// a slot denies it, the charges in earlier slots are refunded. No limit is exceeded, but other calls may be denied
    /// before the refund, and the refund may be [forfeited](crate::Receipt#what-can-be-given-back).
    ///
    /// Fails and panics in the same cases as [`connect`](RedisBackend::connect).
    pub async fn connect_cluster<U: AsRef<str>>(urls: impl IntoIterator<Item = U>) -> Result<RedisBackend, Error> {
        RedisBackend::builder().connect_cluster(urls).await
    }

    /// Returns a builder.
    pub fn builder() -> RedisBackendBuilder {
        RedisBackendBuilder::new()
    }

    /// Returns the name of a row on the server, such as `tollgate:2:{7c0e2f8f9a1b6d3e5f4c2b1a09876543}:api`. `key` is
    /// the [digest](crate::RateLimiter::digest) of the caller's key.
    ///
    /// After [`RateLimiter::reset_policy`](crate::RateLimiter::reset_policy), the name contains a number after the
    /// closing brace. To get that name, pass the policy name returned by [`Decision::policy`](crate::Decision::policy).
    pub fn row_key(&self, policy: &PolicyName, key: Digest) -> String {
        // The version separates incompatible layouts. The text in braces puts all rows of a key in one slot.
        let generation = match policy.generation() {
            0 => String::new(),
            generation => format!("{generation:x}"),
        };
        format!("{}:{VERSION}:{{{:032x}}}{generation}:{}", self.prefix, key.to_bits(), policy.as_str())
    }

    fn row(&self, row: &RowId<'_>) -> RowKey {
        self.row_key(row.policy, row.key).into_bytes().into()
    }

    /// Returns the slot of a key, or 0 if the server is not a cluster.
    fn slot(&self, key: Digest) -> u16 {
        if self.batcher.link.has_slots() { slot::of(format!("{:032x}", key.to_bits()).as_bytes()) } else { 0 }
    }

    fn decide(&self, takes: &[Take<'_>], store: bool) -> BackendFuture<Steps> {
        if takes.len() > MAX_TAKES {
            let message = format!(
                "expected at most {MAX_TAKES} charges in one call, found {}; split it into several calls",
                takes.len()
            );
            return BackendFuture::ready(Err(Error::new(ErrorKind::Unsupported, message)));
        }
        let Some(first) = takes.first() else { return BackendFuture::ready(Ok(Steps::default())) };
        let slot = self.slot(first.row.key);
        if takes.iter().all(|take| self.slot(take.row.key) == slot) {
            return self.send(slot, self.decide_action(takes, store), Instant::now(), |outcome| outcome.steps);
        }
        let takes: Vec<OwnedTake> = takes.iter().map(OwnedTake::of).collect();
        // Runs in a task, because dropping the future could otherwise leave only some of the slots charged.
        let task = self.batcher.runtime.spawn(self.clone().decide_by_slots(takes, store));
        BackendFuture::boxed(async move { task.await.unwrap_or_else(|_| Err(runtime_ended())) })
    }

    /// Decides one slot at a time. If a slot denies its charges or fails, refunds the charges in earlier slots.
    async fn decide_by_slots(self, takes: Vec<OwnedTake>, store: bool) -> Result<Steps, Error> {
        let began = Instant::now();
        let slot_of = |i: &usize| self.slot(takes[*i].key);
        let mut order: Vec<usize> = (0..takes.len()).collect();
        order.sort_by_key(slot_of);
        let mut steps: Vec<Option<Step>> = vec![None; takes.len()];
        let (mut granted, mut charged, mut denied) = (Vec::<usize>::new(), Vec::new(), false);
        let send = |indexes: &[usize], charges| {
            let in_slot: Vec<Take<'_>> = indexes.iter().map(|i| takes[*i].take()).collect();
            self.send(slot_of(&indexes[0]), self.decide_action(&in_slot, charges), began, |outcome| outcome.steps)
        };
        let slots = || order.chunk_by(|a, b| slot_of(a) == slot_of(b));
        let peeks: Vec<_> = slots().filter(|_| !store).map(|indexes| send(indexes, false)).collect();
        let mut peeks = peeks.into_iter();
        for indexes in slots() {
            // After a denial, only peek at the remaining slots.
            let charges = store && !denied;
            let result = peeks.next().unwrap_or_else(|| send(indexes, charges)).await;
            if result.as_ref().is_ok_and(|steps| steps.all_granted()) {
                granted.extend(indexes);
                charged.extend(indexes.iter().filter(|_| charges));
            } else {
                denied = true;
                self.refund(&takes, &std::mem::take(&mut charged), &steps);
            }
            indexes.iter().zip(result?.iter()).for_each(|(i, step)| steps[*i] = Some(*step));
        }
        if denied {
            for i in granted {
                let last = &takes[i];
                let is_same =
                    |take: &&OwnedTake| (take.key, take.window, &take.policy) == (last.key, last.window, &last.policy);
                let same = takes[..=i].iter().filter(is_same);
                let tokens: u64 = same.map(|take| take.ask.tokens()).sum();
                if let Some(step) = &mut steps[i] {
                    step.state.spent = (step.state.spent - tokens as f64).max(0.0);
                }
            }
        }
        Ok(steps.into_iter().flatten().collect())
    }

    fn refund(&self, takes: &[OwnedTake], charged: &[usize], steps: &[Option<Step>]) {
        for i in charged.iter().rev() {
            let OwnedTake { policy, key, window, quota, ask, .. } = &takes[*i];
            let Some(receipt) = steps[*i].and_then(|step| ChargeRecord::new(ask.tokens(), &step)) else { continue };
            let row = RowId { policy, key: *key };
            drop(self.settle(&[Adjustment { row, window: *window, quota: *quota, receipt, actual: 0 }]));
        }
    }

    fn decide_action(&self, takes: &[Take<'_>], store: bool) -> Action {
        let mut rows = SmallVec::<[RowKey; 1]>::new();
        for take in takes {
            let row = rows.last().filter(|_| !take.part.is_first()).cloned();
            rows.push(row.unwrap_or_else(|| self.row(&take.row)));
        }
        let queued = |take: &Take<'_>| QueuedTake { window: take.window, quota: take.quota, ask: take.ask };
        Action::Decide { rows, takes: takes.iter().map(queued).collect(), store }
    }

    /// Queues an operation immediately. The future applies `read` to its outcome.
    fn send<T>(&self, slot: u16, action: Action, began: Instant, read: fn(Outcome) -> T) -> BackendFuture<T>
    where
        T: 'static,
    {
        let (sender, receiver) = oneshot::channel();
        self.batcher.send(slot, Operation { action, began, sender });
        BackendFuture::boxed(async move { receiver.await.unwrap_or_else(|_| Err(runtime_ended())).map(read) })
    }

    /// Queues all settlements or resets immediately. The future resolves to the number that took effect.
    fn send_all(&self, operations: impl Iterator<Item = (u16, Action)>) -> BackendFuture<usize> {
        let send = |(slot, action)| self.send(slot, action, Instant::now(), |outcome| outcome.took_effect);
        let sent: Vec<_> = operations.map(send).collect();
        BackendFuture::boxed(async move {
            let mut result = Ok(0);
            for done in sent {
                let took_effect = done.await;
                result = result.and_then(|sum| took_effect.map(|took_effect| sum + usize::from(took_effect)));
            }
            result
        })
    }
}

impl Backend for RedisBackend {
    fn acquire(&self, takes: &[Take<'_>]) -> BackendFuture<Steps> {
        self.decide(takes, true)
    }

    fn peek(&self, takes: &[Take<'_>]) -> BackendFuture<Steps> {
        self.decide(takes, false)
    }

    fn settle(&self, settlements: &[Adjustment<'_>]) -> BackendFuture<bool> {
        let all = settlements.len();
        let done = self.send_all(settlements.iter().map(|settlement| {
            let Adjustment { row, window, quota, receipt, actual } = *settlement;
            (self.slot(row.key), Action::Settle { row: self.row(&row), window, quota, receipt, actual })
        }));
        done.map(move |took_effect| took_effect == all)
    }

    fn reset(&self, rows: &[RowId<'_>]) -> BackendFuture<usize> {
        self.send_all(rows.iter().map(|row| (self.slot(row.key), Action::Reset { row: self.row(row) })))
    }

    fn secret(&self) -> Option<Secret> {
        Some(self.secret)
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn notice_channel(&self) -> Option<Arc<dyn NoticeChannel>> {
        self.channel.clone().map(|channel| Arc::new(channel) as Arc<dyn NoticeChannel>)
    }

    fn lease_backend(&self) -> Option<Arc<dyn LeaseBackend>> {
        Some(Arc::new(self.clone()))
    }

    fn health(&self) -> Health {
        let (pending_notices, poll_failed) = self.channel.as_ref().map_or((0, None), |channel| channel.health());
        Health { circuit_open: Some(self.batcher.circuit_open()), pending_notices, poll_failed, ..Health::default() }
    }
}

debug_fields!(RedisBackend, |it| prefix: it.prefix, link: it.batcher.link, deadline: it.batcher.deadline);

fn runtime_ended() -> Error {
    Error::new(
        ErrorKind::Unavailable,
        "the tokio runtime of this backend has shut down; connect in a runtime that outlives the backend",
    )
}

/// The maximum number of charges per call. All keys of a script call must fit on the Lua stack.
const MAX_TAKES: usize = 1000;
