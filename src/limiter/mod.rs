//! The limiter, which finds the quotas that apply to a call and asks a backend to decide the call.

mod acquire;
mod agents;
mod all;
mod block_cache;
mod builder;
mod charge;
mod control;
mod credit;
mod decide;
pub(crate) mod deny;
mod enforcement;
mod error;
mod failure;
mod future;
pub(crate) mod guard;
#[cfg(feature = "admin")]
mod inspect;
mod leases;
pub(crate) mod listing;
mod local;
pub(crate) mod mistake;
mod mistake_tracker;
#[cfg(all(test, tollgate_models))]
mod models;
mod notices;
pub(crate) mod observer;
mod overrides;
mod pause;
mod queue;
mod read;
mod receipt;
mod reservation;
mod saved;
mod shards;
mod snapshot;
#[cfg(test)]
mod tests;
mod tier_names;
mod waiting;

use std::future::IntoFuture;
use std::sync::Arc;

use self::block_cache::BlockCache;
use self::failure::Failure;
use self::guard::Guard;
use self::leases::Leases;
use self::local::LocalTime;
use self::mistake_tracker::MistakeTracker;
use self::overrides::Overrides;
use self::queue::Queues;
use self::shards::Shards;
use self::tier_names::TierNames;
use crate::algorithm::Ask;
use crate::backend::{Backend, BackendFuture, Error, MemoryBackend, RowId};
use crate::policy::{Allowed, Decision, Digest, Key, Policy, Secret, Signals, Subject};
use crate::sync::atomic::AtomicUsize;

pub use acquire::Acquire;
pub use builder::RateLimiterBuilder;
pub use charge::Charge;
pub use control::Stats;
pub(crate) use decide::CallContext;
pub(crate) use deny::DenyList;
pub use error::LimitError;
pub use failure::FailureMode;
pub use future::DecisionFuture;
pub(crate) use guard::AutoBlock;

#[cfg(feature = "admin")]
pub(crate) use listing::Block;
pub use listing::{SetEnforcement, SetQuota};
pub(crate) use observer::Observer;
pub use overrides::SetQuotaError;
pub use receipt::Receipt;
pub use reservation::Reservation;
pub use saved::{Loaded, Saved, StateError, StateErrorKind};
pub use snapshot::Snapshot;
pub(crate) use waiting::WaitSlot;

/// A rate limiter, which charges keys according to policies and records their usage in a backend.
///
/// Cloning a limiter is cheap, and the clones share its rows. A [layer](crate::RateLimitLayer) creates its own limiter
/// unless you pass one to it. For the steps of a decision, see [design](crate::docs::design#the-path-of-a-decision).
///
/// ```
/// use tollgate::{Charge, Policy, Quota, RateLimiter, DAY, HOUR};
///
/// static LOGIN: Policy = Policy::new("login", Quota::token_bucket(5, HOUR));
/// static CHAT: Policy = Policy::new("chat", Quota::token_bucket(10_000, DAY));
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = RateLimiter::default();
///
/// // Spend one token. `limit` returns a denial as an error; `try_limit` returns it as a decision.
/// limiter.limit(&LOGIN, "ada").await?;
/// assert_eq!(limiter.try_limit(&LOGIN, "ada").await?.remaining(), 3);
/// limiter.limit_now(&LOGIN, "ada")?; // without awaiting
///
/// // Charge several policies together. Either all charges are made, or none are.
/// limiter.limit_all([Charge::new(&LOGIN, "ada"), Charge::new(&CHAT, "ada").cost(1200)]).await?;
/// assert_eq!(limiter.remaining(&CHAT, "ada").await?, 8800);
///
/// assert!(limiter.reset(&LOGIN, "ada").await?); // the password was correct
/// assert_eq!(limiter.check(&LOGIN, "ada").await?.remaining(), 5); // spends nothing
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct RateLimiter {
    inner: Arc<Inner>,
}

struct Inner {
    backend: Box<dyn Backend>,
    hash: Secret,
    anonymous: Digest,
    failure: Failure,
    queues: Queues,
    waiting: AtomicUsize,
    max_waiting: usize,
    guard: Guard,
    overrides: Overrides,
    shards: Shards,
    leases: Option<Arc<Leases>>,
    block_cache: Option<BlockCache>,
    observers: Vec<Arc<dyn Observer>>,
    observes_keys: bool,
    tier_names: TierNames,
    mistakes: MistakeTracker,
    time: LocalTime,
}

impl RateLimiter {
    /// Creates a limiter on `backend` with the default settings of [`RateLimiterBuilder`].
    pub fn new(backend: impl Backend) -> RateLimiter {
        RateLimiter::builder(backend).build()
    }

    /// Returns a builder for a limiter on `backend`.
    pub fn builder(backend: impl Backend) -> RateLimiterBuilder {
        RateLimiterBuilder::new(backend)
    }

    /// Spends one of `subject`'s tokens under `policy`. A denial is returned as an error.
    ///
    /// # Errors
    /// Fails if the call is denied, or if the backend fails and the policy's [`FailureMode`] does not allow the call.
    pub fn limit(&self, policy: &Policy, subject: impl Into<Subject>) -> DecisionFuture {
        self.acquire(policy, subject).into_future()
    }

    /// Like [`limit`](RateLimiter::limit), but returns a denial as a [`Decision`]. The compiler warns if the decision
    /// is ignored:
    ///
    /// ```compile_fail
    /// # #![deny(unused_must_use)]
    /// # async fn login(limiter: tollgate::RateLimiter, policy: tollgate::Policy) {
    /// limiter.try_limit(&policy, "ada").await.unwrap();
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if the backend cannot decide.
    pub fn try_limit(&self, policy: &Policy, subject: impl Into<Subject>) -> DecisionFuture<Result<Decision, Error>> {
        self.try_acquire(policy, subject).into_future()
    }

    /// Like [`limit`](RateLimiter::limit), but for code that cannot await, such as a gRPC interceptor.
    ///
    /// # Errors
    /// Fails if the call is denied, or if the backend cannot decide. If a remote backend would have to decide, the
    /// error's kind is [`Unsupported`](crate::backend::ErrorKind::Unsupported), and nothing is charged.
    pub fn limit_now(&self, policy: &Policy, subject: impl Into<Subject>) -> Result<Allowed, LimitError> {
        let none = Signals::new();
        let context = CallContext { waits: false, ..CallContext::of(true, &none) };
        let answer = self.decide(&[(policy, &subject.into(), Ask::cost(1))], context).try_ready();
        future::only_allowed(self, answer.unwrap_or_else(|_| Err(decide::cannot_wait())))
    }

    /// Prepares a call with options, such as a [cost](Acquire::cost), a [reservation](Acquire::reserve), or a charge
    /// that can be [given back](Acquire::hold). A denial is returned as an error.
    pub fn acquire<'a>(&'a self, policy: &'a Policy, subject: impl Into<Subject>) -> Acquire<'a> {
        Acquire::new(self, Charge::new(policy, subject), future::only_allowed)
    }

    /// Like [`acquire`](RateLimiter::acquire), but returns a denial as a [`Decision`].
    pub fn try_acquire<'a>(
        &'a self,
        policy: &'a Policy,
        subject: impl Into<Subject>,
    ) -> Acquire<'a, Result<Decision, Error>> {
        Acquire::new(self, Charge::new(policy, subject), future::only)
    }

    /// Deletes the row of `subject` under `policy`, so that the whole quota is available again. The row is deleted even
    /// if the future is dropped. Blocks stay in effect. Returns whether a row was found; a fully refilled row may
    /// already be gone. See [`remaining`](RateLimiter::remaining) for how to identify a client that is limited by a
    /// layer.
    ///
    /// # Errors
    /// Fails if the backend fails.
    pub fn reset(&self, policy: &Policy, subject: impl Into<Subject>) -> BackendFuture<bool> {
        let subject = subject.into();
        let name = self.inner.overrides.current(policy.name());
        let row = RowId { policy: &name, key: self.row_key(subject.key()) };
        let applied = self.quotas(policy, subject);
        let shards = policy.lists().chain([&applied]).map(|quotas| quotas[0].get_shards()).max();
        self.inner.reset(&[(row, shards.unwrap_or(1) as u8)])
    }

    pub(crate) fn row_key(&self, key: Option<&Key>) -> Digest {
        match key {
            Some(key) => self.inner.hash.digest(key),
            None => self.inner.anonymous,
        }
    }

    pub(crate) fn deny_list(&self) -> Option<&DenyList> {
        self.inner.guard.deny()
    }

    #[cfg(feature = "serde")]
    pub(crate) fn counts_denials(&self) -> bool {
        self.inner.guard.counts()
    }

    pub(crate) fn wants_signals(&self) -> bool {
        self.inner.guard.wants_signals()
    }
}

impl Default for RateLimiter {
    /// Creates a limiter on a new [`MemoryBackend`].
    fn default() -> RateLimiter {
        RateLimiter::new(MemoryBackend::new())
    }
}
