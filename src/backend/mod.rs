//! Backends store the rows of limiters, and decide whether to grant charges to these rows.
//!
//! Applications need only the backends, their builders, [`Error`] and [`ErrorKind`]. Everything else is for authors of
//! backends and is unstable until 1.0: any minor version may change it.

pub(crate) mod bytes;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod error;
mod future;
mod lease;
mod memory;
mod notices;
#[cfg(feature = "redis")]
mod redis;

use std::fmt;
use std::sync::Arc;

use crate::algorithm::{Ask, ChargeRecord, Micros, Quota, Step};
use crate::clock::{Clock, Sleep};
use crate::policy::{ChargedQuota, Decision, Digest, MAX_WINDOWS, Part, PolicyName, Secret};

pub use crate::algorithm::Steps;
pub use error::{Error, ErrorKind};
pub use future::BackendFuture;
pub use lease::{LeaseBackend, LeaseHolder, LeaseRequest};
pub use memory::{MemoryBackend, MemoryBackendBuilder};
pub use notices::{Notice, NoticeChannel, NoticeSubscriber};
#[cfg(all(tollgate_fuzzing, feature = "redis", feature = "serde"))]
pub use redis::fuzzing::{Answered, Operation, decided, notices, value_of};
#[cfg(feature = "redis")]
pub use redis::{RedisBackend, RedisBackendBuilder};

/// Stores rows, and decides whether to grant charges to these rows.
///
/// Implementations must pass the test suite in `tollgate::backend::conformance` (feature `conformance`).
///
/// # Contract
/// - **Atomic.** [`acquire`](Backend::acquire) decides all takes of a call at one instant, in order: each take sees
///   what the earlier takes would spend. Concurrent calls on the same row are decided one after another. If several
///   takes share a window and one is denied, its retry time is the wait after which all of them can be granted.
/// - **Exact.** Decisions match those of [`algorithm::step_all`](crate::algorithm::step_all) for the same rows, takes
///   and time. `spent` is bit-identical, and waits agree to the microsecond.
/// - **One clock.** The backend determines the time. If processes share rows on a server, that server's clock is used.
/// - **Rows may be lost.** If a row is lost, its key has its full quota again. A backend must never record unspent
///   tokens as spent, and should keep denying exhausted keys when its storage is full.
/// - **Eager.** `acquire`, `settle` and `reset` start when they are called, and finish even if the future is dropped,
///   so a client cannot avoid a charge by disconnecting. A network backend spawns a task for this purpose.
/// - **At most once.** A backend never repeats a charge, not even after a timeout, and never undoes a charge that it
///   has reported as granted. A charge that waits too long in a queue may fail without being made.
/// - **Non-blocking.** Methods do not block. They return a [ready](BackendFuture::ready) future where possible.
///
/// A wrapper must forward all methods, even those with a default implementation. This wrapper counts `acquire` calls:
///
/// ```
/// # use tollgate::{algorithm::Micros, backend::*, clock::{Clock, Sleep}, key::Secret, policy::PolicyName};
/// use std::sync::{Arc, atomic::{AtomicU64, Ordering}};
///
/// #[derive(Debug)]
/// struct Counted<B> { inner: B, calls: AtomicU64 }
///
/// impl<B: Backend> Backend for Counted<B> {
///     fn acquire(&self, takes: &[Take<'_>]) -> BackendFuture<Steps> {
///         self.calls.fetch_add(1, Ordering::Relaxed);
///         self.inner.acquire(takes)
///     }
///     fn peek(&self, takes: &[Take<'_>]) -> BackendFuture<Steps> { self.inner.peek(takes) }
///     fn settle(&self, settlements: &[Adjustment<'_>]) -> BackendFuture<bool> { self.inner.settle(settlements) }
///     fn reset(&self, rows: &[RowId<'_>]) -> BackendFuture<usize> { self.inner.reset(rows) }
///     fn secret(&self) -> Option<Secret> { self.inner.secret() }
///     fn sleep_until(&self, instant: Micros) -> Option<Sleep> { self.inner.sleep_until(instant) }
///     fn clock(&self) -> Option<Arc<dyn Clock>> { self.inner.clock() }
///     fn is_remote(&self) -> bool { self.inner.is_remote() }
///     fn notice_channel(&self) -> Option<Arc<dyn NoticeChannel>> { self.inner.notice_channel() }
///     fn lease_backend(&self) -> Option<Arc<dyn LeaseBackend>> { self.inner.lease_backend() }
///     fn health(&self) -> Health { self.inner.health() }
///     fn rows_by_policy(&self) -> Vec<(PolicyName, usize)> { self.inner.rows_by_policy() }
///     fn save_rows(&self) -> Option<SavedRows> { self.inner.save_rows() }
///     fn load_rows(&self, bytes: &[u8]) -> Result<LoadedRows, Error> { self.inner.load_rows(bytes) }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a backend",
    note = "connecting to a server is `async` and may fail: write `RedisBackend::connect(url).await?`"
)]
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    /// Decides all takes. Charges the rows only if every take is granted. Returns one step for each take, in order. If
    /// any take is denied, the steps for the takes that would have been granted contain the unchanged rows.
    ///
    /// # Errors
    /// The future fails if the backend cannot decide. A denial is not an error.
    fn acquire(&self, takes: &[Take<'_>]) -> BackendFuture<Steps>;

    /// Works like [`acquire`](Backend::acquire), but stores nothing.
    fn peek(&self, takes: &[Take<'_>]) -> BackendFuture<Steps>;

    /// Applies [`algorithm::settle`](crate::algorithm::settle) to each row separately. Returns `true` if all
    /// settlements [took effect](crate::algorithm::takes_effect), and `false` if a refund was forfeited.
    ///
    /// # Errors
    /// The future fails if the backend does not know whether the settlements were made.
    fn settle(&self, settlements: &[Adjustment<'_>]) -> BackendFuture<bool>;

    /// Removes rows and all their windows, and returns how many distinct rows existed. Expired rows may be counted.
    ///
    /// # Errors
    /// The future fails if the backend does not know whether the rows were removed.
    fn reset(&self, rows: &[RowId<'_>]) -> BackendFuture<usize>;

    /// Returns the secret with which limiters hash keys unless they set their own. `None`, the default, means that each
    /// limiter generates a random secret. A backend that several processes share must therefore return a secret.
    fn secret(&self) -> Option<Secret> {
        None
    }

    /// Returns a future that completes when the backend's time reaches `instant`. `None`, the default, means that
    /// limiters use an ordinary timer, which does not follow a [`ManualClock`](crate::clock::ManualClock).
    fn sleep_until(&self, instant: Micros) -> Option<Sleep> {
        let _ = instant;
        None
    }

    /// Returns the clock for the limiters' own state, such as blocks. `None`, the default, means the system clock.
    fn clock(&self) -> Option<Arc<dyn Clock>> {
        None
    }

    /// Returns whether each call makes a network round trip. If so, limiters remember denials. Defaults to `false`.
    fn is_remote(&self) -> bool {
        false
    }

    /// Returns the channel for run-time changes. `None`, the default, means that each change affects only one limiter.
    fn notice_channel(&self) -> Option<Arc<dyn NoticeChannel>> {
        None
    }

    /// Returns the interface through which limiters lease tokens. `None`, the default, means that the backend decides
    /// every call, even under a policy with [leases](crate::Policy::leases).
    fn lease_backend(&self) -> Option<Arc<dyn LeaseBackend>> {
        None
    }

    /// Returns the health that [`RateLimiter::stats`](crate::RateLimiter::stats) reports.
    fn health(&self) -> Health {
        Health::default()
    }

    /// Returns the number of rows per policy in this process, largest first. Some policies may be combined as
    /// `(others)`.
    fn rows_by_policy(&self) -> Vec<(PolicyName, usize)> {
        Vec::new()
    }

    /// Returns the rows of this process for [`RateLimiter::save`](crate::RateLimiter::save), in a format that only
    /// [`load_rows`](Backend::load_rows) reads. This call must not block decisions in other threads for its entire
    /// duration. `None`, the default, means that the rows cannot be saved.
    fn save_rows(&self) -> Option<SavedRows> {
        None
    }

    /// Adds rows that were saved by [`save_rows`](Backend::save_rows) on a backend with the same
    /// [`secret`](Backend::secret). Existing rows are not changed.
    ///
    /// # Errors
    /// Fails and adds no rows if the bytes are invalid. By default, fails with [`Unsupported`](ErrorKind::Unsupported).
    fn load_rows(&self, bytes: &[u8]) -> Result<LoadedRows, Error> {
        let _ = bytes;
        Err(Error::new(ErrorKind::Unsupported, "this backend cannot load rows; use a MemoryBackend"))
    }
}

/// The rows of a backend as bytes, returned by [`Backend::save_rows`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs)] // A new field would change the contract.
pub struct SavedRows {
    /// The number of rows.
    pub rows: usize,
    /// The rows in the backend's own format.
    pub bytes: Vec<u8>,
}

/// How many saved rows [`Backend::load_rows`] added and skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs)] // A new field would change the contract.
pub struct LoadedRows {
    /// The number of rows that were added.
    pub loaded: usize,
    /// The number of rows that were skipped because they have expired since they were saved.
    pub expired: usize,
    /// The number of rows that were skipped because the backend already has a row for the same key.
    pub existing: usize,
    /// The number of rows that were skipped because the backend is full.
    pub dropped: usize,
}

/// The health of a backend, as far as it can be determined without a network call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// The number of rows in this process.
    pub rows: Option<usize>,
    /// The number of rows that were evicted before they expired.
    pub evictions: Option<u64>,
    /// The number of charges that went to an overflow row. Several keys share each overflow row.
    pub overflowed: Option<u64>,
    /// Whether the circuit breaker is open. If it is, calls fail immediately.
    pub circuit_open: Option<bool>,
    /// The number of notices [waiting to be published](NoticeChannel::publish_later).
    pub pending_notices: usize,
    /// Whether the last poll for notices failed; `None` if the backend does not poll.
    pub poll_failed: Option<bool>,
}

macro_rules! delegate {
    ($(#[$doc:meta])* impl $($backend:tt)*) => {
        $(#[$doc])*
        #[deny(clippy::missing_trait_methods)]
        impl $($backend)* {
            fn acquire(&self, takes: &[Take<'_>]) -> BackendFuture<Steps> {
                (**self).acquire(takes)
            }

            fn peek(&self, takes: &[Take<'_>]) -> BackendFuture<Steps> {
                (**self).peek(takes)
            }

            fn settle(&self, settlements: &[Adjustment<'_>]) -> BackendFuture<bool> {
                (**self).settle(settlements)
            }

            fn reset(&self, rows: &[RowId<'_>]) -> BackendFuture<usize> {
                (**self).reset(rows)
            }

            fn secret(&self) -> Option<Secret> {
                (**self).secret()
            }

            fn sleep_until(&self, instant: Micros) -> Option<Sleep> {
                (**self).sleep_until(instant)
            }

            fn clock(&self) -> Option<Arc<dyn Clock>> {
                (**self).clock()
            }

            fn is_remote(&self) -> bool {
                (**self).is_remote()
            }

            fn notice_channel(&self) -> Option<Arc<dyn NoticeChannel>> {
                (**self).notice_channel()
            }

            fn lease_backend(&self) -> Option<Arc<dyn LeaseBackend>> {
                (**self).lease_backend()
            }

            fn health(&self) -> Health {
                (**self).health()
            }

            fn rows_by_policy(&self) -> Vec<(PolicyName, usize)> {
                (**self).rows_by_policy()
            }

            fn save_rows(&self) -> Option<SavedRows> {
                (**self).save_rows()
            }

            fn load_rows(&self, bytes: &[u8]) -> Result<LoadedRows, Error> {
                (**self).load_rows(bytes)
            }
        }
    };
}

delegate! {
    /// A backend that is chosen at run time.
    impl Backend for Box<dyn Backend>
}

delegate! {
    /// A shared backend.
    impl<B: Backend + ?Sized> Backend for Arc<B>
}

/// Identifies the row of a key under a policy. See [`Take`] for an example.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_structs)] // A key and a policy always identify a row.
pub struct RowId<'a> {
    /// The policy.
    pub policy: &'a PolicyName,
    /// The digest of the key, which is the same under every policy.
    pub key: Digest,
}

impl RowId<'_> {
    /// The maximum number of windows per row. Every [`Take::window`] is below this number.
    pub const MAX_WINDOWS: usize = MAX_WINDOWS;

    /// Returns a digest of the key, policy and [generation](RowId::generation), for tables that several policies share.
    pub fn digest(&self) -> Digest {
        self.lasting_digest().at_generation(self.policy.generation())
    }

    /// Returns the generation of the policy's rows, which is 0 until
    /// [`RateLimiter::reset_policy`](crate::RateLimiter::reset_policy) changes it. A backend that does not identify
    /// rows by their [digest](RowId::digest) must keep the rows of different generations apart.
    pub const fn generation(&self) -> u64 {
        self.policy.generation()
    }

    /// Returns a digest of the key and the policy, which is the same in all generations.
    pub(crate) fn lasting_digest(&self) -> Digest {
        self.key.under(self.policy)
    }

    /// Derives the quota's [window boundaries](crate::algorithm::seeded) from this row, unless the quota sets them.
    pub(crate) fn seeded(&self, quota: &Quota) -> Quota {
        if quota.wants_seed() { quota.seeded(self.lasting_digest().seed()) } else { *quota }
    }
}

/// A charge to one window of a row under a quota.
///
/// A charge under a policy with several [quotas](crate::policy::Quotas) has one take per quota, each in its own window.
///
/// ```
/// use tollgate::{algorithm::{Ask, ChargeRecord}, backend::{Adjustment, Backend, RowId, Take}};
/// use tollgate::{key::Secret, policy::PolicyName, Key, MemoryBackend, Quota, DAY};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::backend::Error> {
/// let backend = MemoryBackend::new();
/// let row = RowId { policy: &PolicyName::new("daily"), key: Secret::random().digest(&Key::from("ada")) };
/// let take = Take::new(row, &Quota::fixed_window(500, DAY), Ask::cost(3));
/// let steps = backend.acquire(&[take]).await?;
/// assert!(steps.all_granted() && steps[0].state.spent == 3.0);
///
/// let receipt = ChargeRecord::new(3, &steps[0]).expect("granted");
/// let settlement = Adjustment { row, window: take.window, quota: take.quota, receipt, actual: 100 };
/// assert!(backend.settle(&[settlement]).await?);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_structs)] // A new field would change the contract.
pub struct Take<'a> {
    /// The row.
    pub row: RowId<'a>,
    /// The index of the window, which is below [`RowId::MAX_WINDOWS`]. It is 0 if the policy has only one quota.
    pub window: u8,
    /// The quota. Unless it sets its window boundaries, they are [derived](crate::algorithm::seeded) from the row.
    pub quota: Quota,
    /// The cost, and the longest wait that the caller accepts.
    pub ask: Ask,
    pub(crate) part: Part,
}

impl<'a> Take<'a> {
    /// Creates a take for `ask` under `quota`, from window 0 of `row`.
    #[inline]
    pub fn new(row: RowId<'a>, quota: &Quota, ask: Ask) -> Take<'a> {
        Take::part(row, 0, quota, ask, Part::WHOLE)
    }

    #[inline]
    pub(crate) fn part(row: RowId<'a>, window: u8, quota: &Quota, ask: Ask, part: Part) -> Take<'a> {
        Take { row, window, quota: row.seeded(quota), ask, part }
    }

    /// Sets the window.
    ///
    /// # Panics
    /// Panics if `window` is not below [`RowId::MAX_WINDOWS`].
    #[must_use]
    #[track_caller]
    pub fn at_window(mut self, window: u8) -> Take<'a> {
        assert!(usize::from(window) < MAX_WINDOWS, "tollgate: expected a window below {MAX_WINDOWS}, found {window}");
        self.window = window;
        self
    }

    /// Returns the caller's key, from which the row's key is derived.
    pub(crate) fn key(&self) -> Digest {
        self.quota.shard_index().map_or(self.row.key, |index| self.row.key.shard(index))
    }

    /// Returns the same take from the given shard, or the undivided take if the quota has only one shard.
    pub(crate) fn at_shard(&self, index: u8) -> Take<'a> {
        let take = self.whole();
        if take.quota.get_shards() == 1 {
            return take;
        }
        let row = RowId { key: take.row.key.shard(index), ..take.row };
        Take { row, quota: take.quota.shard(index), ..take }
    }

    /// Reverses [`at_shard`](Take::at_shard).
    pub(crate) fn whole(&self) -> Take<'a> {
        let Some(index) = self.quota.shard_index() else { return *self };
        let row = RowId { key: self.row.key.shard(index), ..self.row };
        Take { row, quota: self.quota.whole(), part: Part { shard: 0, ..self.part }, ..*self }
    }

    /// Returns a digest of the key, the policy and the window, for tables that contain all windows.
    pub(crate) fn digest(&self) -> Digest {
        self.row.digest().window(self.window)
    }

    /// Returns the digest that this take would have in the given shard, without computing the shard's quota.
    pub(crate) fn digest_at_shard(&self, index: u8) -> Digest {
        RowId { key: self.key().shard(index), ..self.row }.digest().window(self.window)
    }

    #[inline]
    pub(crate) fn decision(&self, step: &Step, all_granted: bool) -> Decision {
        Decision::new(self.charged(), *step, all_granted)
    }

    #[inline]
    pub(crate) fn charged(&self) -> ChargedQuota {
        let RowId { policy, key: row_key } = self.row;
        let (quota, cost) = (self.quota, self.ask.tokens());
        ChargedQuota { policy: policy.clone(), row_key, quota, cost, window: self.window, part: self.part }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct OwnedTake {
    pub(crate) policy: PolicyName,
    pub(crate) key: Digest,
    pub(crate) window: u8,
    pub(crate) quota: Quota,
    pub(crate) ask: Ask,
    part: Part,
}

impl OwnedTake {
    pub(crate) fn of(take: &Take<'_>) -> OwnedTake {
        let Take { row: RowId { policy, key }, window, quota, ask, part } = *take;
        OwnedTake { policy: policy.clone(), key, window, quota, ask, part }
    }

    pub(crate) fn take(&self) -> Take<'_> {
        let OwnedTake { ref policy, key, window, quota, ask, part } = *self;
        Take { row: RowId { policy, key }, window, quota, ask, part }
    }
}

/// A settlement, which replaces the cost of an earlier charge with `actual`. See [`Take`] for an example.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_structs)] // A new field would change the contract.
pub struct Adjustment<'a> {
    /// The row.
    pub row: RowId<'a>,
    /// The window of the charge, as in its [`Take`].
    pub window: u8,
    /// The quota of the charge, as in its [`Take`].
    pub quota: Quota,
    /// The record of the charge.
    pub receipt: ChargeRecord,
    /// The actual cost in tokens.
    pub actual: u64,
}
