//! Rows in Redis or Valkey: the same limits across machines. Feature `redis`.
//!
//! One script call decides all charges of a request on the server's clock, all or none. How it is set up, what it needs
//! of a server and what an outage does is told in [`docs::redis`](crate::docs::redis).

mod batch;
mod breaker;
mod builder;
mod error;
#[cfg(all(tollgate_fuzzing, feature = "serde"))]
pub(super) mod fuzzing;
mod lanes;
mod link;
#[cfg(all(test, tollgate_models))]
mod models;
mod notices;
mod script;
mod slot;
mod wire;

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::oneshot;

use self::batch::{Answer, Kind, Operation, Row};
use self::lanes::Lanes;
use self::notices::Board;
use self::wire::VERSION;
use super::{
    Adjustment, Backend, BackendFuture, Error, ErrorKind, Health, NoticeChannel, OwnedTake, RowId, Steps, Take,
};
use crate::algorithm::{ChargeRecord, Step};
use crate::policy::{Digest, PolicyName, Secret};

pub use builder::RedisBackendBuilder;

/// Rows on a Redis or Valkey server (6.2 or newer), shared by all processes that use it.
///
/// ```no_run
/// use tollgate::backend::RedisBackend;
/// use tollgate::{Policy, Quota, RateLimiter, MINUTE};
///
/// static API: Policy = Policy::new("api", Quota::token_bucket(100, MINUTE));
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = RateLimiter::new(RedisBackend::connect("redis://127.0.0.1").await?);
/// limiter.limit(&API, "ada").await?;
/// # Ok(())
/// # }
/// ```
///
/// - **Exact.** A decision is one call of a script, by the server's clock, with the arithmetic of every other backend,
///   down to the last bit. Decisions that wait at the same moment travel in one call, each decided for itself, in the
///   order in which they came.
/// - **Small.** A row is one string of 40 bytes that expires when it is worthless, a little later at most. A denial
///   writes nothing.
/// - **Bounded.** A decision takes no longer than the [deadline](RedisBackendBuilder::deadline). When the server does
///   not answer, calls fail at once until it is back; nothing that may have been charged is sent again.
/// - **Private.** Keys are hashed under a secret before they leave the process.
///
/// Clones share everything.
#[derive(Clone)]
pub struct RedisBackend {
    lanes: Arc<Lanes>,
    prefix: Arc<str>,
    secret: Secret,
    board: Option<Arc<Board>>,
}

impl RedisBackend {
    /// Connects to one server: `redis://user:password@host:port/db`, `rediss://` for TLS (feature `redis-tls`),
    /// `unix:///path`.
    ///
    /// Over TLS, the system's certificates are believed, and those in the file that `SSL_CERT_FILE` names. Unless the
    /// process has [installed](https://docs.rs/rustls/latest/rustls/crypto/struct.CryptoProvider.html) another provider
    /// of cryptography for rustls, *ring* is.
    ///
    /// # Errors
    /// If the URL is none, or the server does not answer: of kind [`Protocol`](ErrorKind::Protocol) for what is to be
    /// mended, [`Unavailable`](ErrorKind::Unavailable) if another try may help.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub async fn connect(url: &str) -> Result<RedisBackend, Error> {
        RedisBackend::builder().connect(url).await
    }

    /// Connects to a cluster; some of its nodes will do, it tells the others.
    ///
    /// All charges of one key are in one slot and decided together. Charges of several keys in one call are acquired
    /// slot by slot, and given back if a later one is denied: it never admits too much, but what was given back may
    /// have stood in another call's way for a moment, and what [cannot be given
    /// back](crate::Receipt#what-can-be-given-back) is lost.
    ///
    /// ```no_run
    /// use tollgate::backend::RedisBackend;
    /// use tollgate::RateLimiter;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::backend::Error> {
    /// let nodes = ["redis://10.0.0.5:6379", "redis://10.0.0.6:6379"];
    /// let limiter = RateLimiter::new(RedisBackend::connect_cluster(nodes).await?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`connect`](RedisBackend::connect).
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub async fn connect_cluster<U: AsRef<str>>(urls: impl IntoIterator<Item = U>) -> Result<RedisBackend, Error> {
        RedisBackend::builder().connect_cluster(urls).await
    }

    /// A backend with choices: prefix, deadline, secret, when to connect. See [`RedisBackendBuilder`].
    pub fn builder() -> RedisBackendBuilder {
        RedisBackendBuilder::new()
    }

    /// The key of a row on the server, for looking at it with `redis-cli`: policy and
    /// [digest](crate::RateLimiter::digest).
    ///
    /// ```no_run
    /// # use tollgate::{backend::RedisBackend, Key, Policy, Quota, RateLimiter, MINUTE};
    /// # fn look(backend: RedisBackend, limiter: RateLimiter, api: Policy) {
    /// println!("{}", backend.row_key(api.name(), limiter.digest(Some(&Key::from("ada")))));
    /// // tollgate:2:{7c0e2f8f9a1b6d3e5f4c2b1a09876543}:api
    /// # }
    /// ```
    pub fn row_key(&self, policy: &PolicyName, key: Digest) -> String {
        // The number is the format's: another one will not be mistaken for it. The braces are a cluster's: what is in
        // the first pair decides the slot, so all rows of a key share one.
        format!("{}:{VERSION}:{{{:032x}}}:{}", self.prefix, key.to_bits(), policy.as_str())
    }

    fn row(&self, row: &RowId<'_>) -> Row {
        self.row_key(row.policy, row.key).into_bytes().into()
    }

    fn lane(&self, key: Digest) -> u16 {
        if self.lanes.link.has_slots() { slot::of(format!("{:032x}", key.to_bits()).as_bytes()) } else { 0 }
    }

    fn decide(&self, takes: &[Take<'_>], store: bool) -> BackendFuture<Steps> {
        if takes.len() > MOST_TAKES {
            let message = format!(
                "{} charges in one call; at most {MOST_TAKES} are decided together, so make several calls",
                takes.len()
            );
            return BackendFuture::ready(Err(Error::new(ErrorKind::Unsupported, message)));
        }
        let Some(first) = takes.first() else { return BackendFuture::ready(Ok(Steps::default())) };
        let lane = self.lane(first.row.key);
        if takes.iter().all(|take| self.lane(take.row.key) == lane) {
            return self.send(lane, self.kind(takes, store), Instant::now(), |answer| answer.steps);
        }
        let takes: Vec<OwnedTake> = takes.iter().map(OwnedTake::of).collect();
        // A task of its own: dropped half-way, some slots would be charged and others not.
        let task = self.lanes.runtime.spawn(self.clone().decide_by_slots(takes, store));
        BackendFuture::boxed(async move { task.await.unwrap_or_else(|_| Err(ended())) })
    }

    /// Slot by slot, in the order of their numbers; what was charged is given back when a later one denies or fails.
    async fn decide_by_slots(self, takes: Vec<OwnedTake>, store: bool) -> Result<Steps, Error> {
        // One deadline for all of them.
        let began = Instant::now();
        let lane = |i: &usize| self.lane(takes[*i].key);
        let mut order: Vec<usize> = (0..takes.len()).collect();
        order.sort_by_key(lane);
        let mut steps: Vec<Option<Step>> = vec![None; takes.len()];
        let (mut granted, mut charged, mut denied) = (Vec::new(), Vec::new(), false);
        for slot in order.chunk_by(|a, b| lane(a) == lane(b)) {
            let here: Vec<Take<'_>> = slot.iter().map(|i| takes[*i].take()).collect();
            // After a denial the others are only asked what they would say.
            let charges = store && !denied;
            let answer = self.send(lane(&slot[0]), self.kind(&here, charges), began, |answer| answer.steps).await;
            if answer.as_ref().is_ok_and(|answer| answer.all_granted()) {
                granted.extend(slot);
                charged.extend(slot.iter().filter(|_| charges));
            } else {
                denied = true;
                // Once, whatever comes after.
                self.give_back(&takes, &std::mem::take(&mut charged), &steps);
            }
            slot.iter().zip(answer?.iter()).for_each(|(i, step)| steps[*i] = Some(*step));
        }
        if denied {
            // Given back, or never charged: the rows are as they were, as far as anybody can tell.
            for i in granted {
                let same = takes[..=i].iter().filter(|take| take.key == takes[i].key && take.policy == takes[i].policy);
                let tokens: u64 = same.map(|take| take.ask.tokens()).sum();
                if let Some(step) = &mut steps[i] {
                    step.state.spent = (step.state.spent - tokens as f64).max(0.0);
                }
            }
        }
        Ok(steps.into_iter().flatten().collect())
    }

    /// Posted: nobody waits for it.
    fn give_back(&self, takes: &[OwnedTake], charged: &[usize], steps: &[Option<Step>]) {
        for i in charged.iter().rev() {
            let OwnedTake { policy, key, quota, ask } = &takes[*i];
            let Some(receipt) = steps[*i].and_then(|step| ChargeRecord::new(ask.tokens(), &step)) else { continue };
            drop(self.settle(&[Adjustment { row: RowId { policy, key: *key }, quota: *quota, receipt, actual: 0 }]));
        }
    }

    fn kind(&self, takes: &[Take<'_>], store: bool) -> Kind {
        Kind::Decide {
            rows: takes.iter().map(|take| self.row(&take.row)).collect(),
            takes: takes.iter().map(|take| (take.quota, take.ask)).collect(),
            store,
        }
    }

    /// Sends an operation at once; the future is what `read` takes of its answer.
    fn send<T>(&self, lane: u16, kind: Kind, began: Instant, read: fn(Answer) -> T) -> BackendFuture<T>
    where
        T: 'static,
    {
        let (answer, receiver) = oneshot::channel();
        self.lanes.send(lane, Operation { kind, began, answer });
        BackendFuture::boxed(async move { receiver.await.unwrap_or_else(|_| Err(ended())).map(read) })
    }

    /// Sends settlements and resets. All are on their way before any is waited for: they are carried out even if the future is
    /// dropped. The future returns how many of them took effect.
    fn post(&self, operations: impl Iterator<Item = (u16, Kind)>) -> BackendFuture<usize> {
        let sent: Vec<_> =
            operations.map(|(lane, kind)| self.send(lane, kind, Instant::now(), |answer| answer.took_effect)).collect();
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
        let done = self.post(settlements.iter().map(|settlement| {
            let Adjustment { row, quota, receipt, actual } = *settlement;
            (self.lane(row.key), Kind::Settle { row: self.row(&row), quota, receipt, actual })
        }));
        done.map(move |took_effect| took_effect == all)
    }

    fn reset(&self, rows: &[RowId<'_>]) -> BackendFuture<usize> {
        self.post(rows.iter().map(|row| (self.lane(row.key), Kind::Reset { row: self.row(row) })))
    }

    fn secret(&self) -> Option<Secret> {
        Some(self.secret)
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn notice_channel(&self) -> Option<Arc<dyn NoticeChannel>> {
        self.board.clone().map(|board| Arc::new(board) as Arc<dyn NoticeChannel>)
    }

    fn health(&self) -> Health {
        let (pending_notices, poll_failed) = self.board.as_ref().map_or((0, None), |board| board.health());
        Health { circuit_open: Some(self.lanes.circuit_open()), pending_notices, poll_failed, ..Health::default() }
    }
}

debug_fields!(RedisBackend, |it| prefix: it.prefix, link: it.lanes.link, deadline: it.lanes.deadline);

fn ended() -> Error {
    Error::new(
        ErrorKind::Unavailable,
        "the tokio runtime on which this backend was connected has ended; connect on one that lasts",
    )
}

/// Charges in one call: a script's keys have to fit on its stack.
const MOST_TAKES: usize = 1000;
