//! Backends: the contract between a limiter and the storage of its rows.
//!
//! A limiter turns each call into [takes](Take): a row, its quota and the tokens asked for. A [`Backend`] does the
//! [arithmetic](crate::algorithm) and stores the rows. [`MemoryBackend`] keeps them in the process.
//!
//! Applications need the backends, their builders, [`Error`] and [`ErrorKind`]. Everything else is for authors of
//! backends, and unstable until 1.0: any minor version may change it.

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod error;
mod future;
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
pub use memory::{MemoryBackend, MemoryBackendBuilder};
pub use notices::{Notice, NoticeChannel, NoticeSubscriber};
#[cfg(all(tollgate_fuzzing, feature = "redis", feature = "serde"))]
pub use redis::fuzzing::{Answered, Operation, decided, notices, value_of};
#[cfg(feature = "redis")]
pub use redis::{RedisBackend, RedisBackendBuilder};

/// Stores rows, and decides charges on them.
///
/// This trait is for implementers of backends; applications call [`RateLimiter`](crate::RateLimiter). Implementations
/// must pass the suite in `tollgate::backend::conformance` (feature `conformance`).
///
/// # Contract
/// - **Atomic.** [`acquire`](Backend::acquire) decides all takes of a call at one instant, each after what the takes
///   before it would spend, and stores all of them, or none if one is denied. Two calls on a row never both see the
///   same prior state. If two takes name one window of a row, the retry time of a denial covers both.
/// - **Exact.** Decisions equal those of [`algorithm::step_all`](crate::algorithm::step_all) on the locked rows, the
///   takes and the time, to the last bit of `spent` and the microsecond of a wait.
/// - **One clock.** Time is the backend's: the process's clock in memory, the server's where processes share rows.
/// - **Lost rows forgive.** A backend may lose a row; its key starts afresh. It must never invent spending, nor allow a
///   denied key only because it has no room to remember it.
/// - **Eager.** Acquiring, settling and resetting start when called, and finish even if the future is dropped unpolled:
///   a client cannot avoid a charge by disconnecting, and a dropped caller can still refund. A network backend spawns a
///   task.
/// - **At most once.** A charge is never undone or repeated without the caller's knowledge, and never sent again after
///   a timeout. A charge that has waited too long in a queue may fail with an [`Error`]; it is then not made.
/// - **Errors are not denials.** A backend that cannot decide returns an [`Error`].
/// - **Non-blocking.** Calls do not block; return a [ready](BackendFuture::ready) future where possible.
///
/// A backend that counts the calls to another one. A wrapper forwards every method, including those with a default:
///
/// ```
/// # use tollgate::{algorithm::Micros, clock::{Clock, Sleep}, key::Secret, policy::PolicyName};
/// # use tollgate::{MemoryBackend, Policy, Quota, RateLimiter, MINUTE};
/// # use tollgate::backend::{Adjustment, Backend, BackendFuture, NoticeChannel, RowId, Steps, Take, Health};
/// use std::sync::{Arc, atomic::{AtomicU64, Ordering}};
///
/// #[derive(Debug)]
/// struct Counted<B> { inner: B, calls: Arc<AtomicU64> }
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
///     fn health(&self) -> Health { self.inner.health() }
///     fn rows_by_policy(&self) -> Vec<(PolicyName, usize)> { self.inner.rows_by_policy() }
/// }
///
/// # static API: Policy = Policy::new("api", Quota::token_bucket(10, MINUTE));
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::LimitError> {
/// let calls = Arc::new(AtomicU64::new(0));
/// let limiter = RateLimiter::new(Counted { inner: MemoryBackend::new(), calls: Arc::clone(&calls) });
/// limiter.limit(&API, "ada").await?;
/// limiter.remaining(&API, "ada").await?; // only peeks
/// assert_eq!(calls.load(Ordering::Relaxed), 1);
/// assert_eq!(limiter.stats().rows, Some(1));
/// # Ok(()) }
/// ```
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    /// Decides every take, and stores all of them, or none if one is denied. Returns one step for each take, in order.
    /// In a denied call, steps that would have been granted show their rows unchanged.
    ///
    /// # Errors
    /// The future fails if the backend cannot decide, never for a denial.
    fn acquire(&self, takes: &[Take<'_>]) -> BackendFuture<Steps>;

    /// Decides as [`acquire`](Backend::acquire) would, with the same errors, and stores nothing.
    fn peek(&self, takes: &[Take<'_>]) -> BackendFuture<Steps>;

    /// Applies [`algorithm::settle`](crate::algorithm::settle) to each row separately. Returns whether all of them
    /// [took effect](crate::algorithm::takes_effect): `false` if a refund was forfeited.
    ///
    /// # Errors
    /// The future fails if the backend does not know whether the settlements were made.
    fn settle(&self, settlements: &[Adjustment<'_>]) -> BackendFuture<bool>;

    /// Removes rows with all their windows, and returns how many rows existed. A row named twice counts once; an expired row may count.
    ///
    /// # Errors
    /// The future fails if the backend does not know whether the rows were removed.
    fn reset(&self, rows: &[RowId<'_>]) -> BackendFuture<usize>;

    /// Returns the default secret with which limiters hash keys; required if processes share the rows. `None`, the
    /// default, lets each limiter draw its own.
    fn secret(&self) -> Option<Secret> {
        None
    }

    /// Returns a future that completes when the backend's time reaches `instant`, if its time is not the machine's, as
    /// with a [`ManualClock`](crate::clock::ManualClock). `None`, the default: any timer will do.
    fn sleep_until(&self, instant: Micros) -> Option<Sleep> {
        let _ = instant;
        None
    }

    /// Returns the clock of this process that the backend follows. Limiters use it for their own state, such as blocks.
    /// `None`, the default, means the machine's clock.
    fn clock(&self) -> Option<Arc<dyn Clock>> {
        None
    }

    /// Whether a call makes a network round trip, so that remembering denials pays. Defaults to `false`.
    fn is_remote(&self) -> bool {
        false
    }

    /// Returns the channel for run-time changes. `None`, the default: changes stay within each limiter.
    fn notice_channel(&self) -> Option<Arc<dyn NoticeChannel>> {
        None
    }

    /// Returns the health for [`RateLimiter::stats`](crate::RateLimiter::stats). Defaults to [`Health::default`].
    fn health(&self) -> Health {
        Health::default()
    }

    /// Returns the number of rows in this process for each policy, largest first. Policies beyond a bound are counted
    /// together as `(others)`. Defaults to an empty list.
    fn rows_by_policy(&self) -> Vec<(PolicyName, usize)> {
        Vec::new()
    }
}

/// The health of a backend, as far as it knows without asking a server.
///
/// ```
/// use tollgate::backend::{Backend, MemoryBackend};
/// let health = MemoryBackend::new().health();
/// assert_eq!((health.rows, health.circuit_open, health.pending_notices), (Some(0), None, 0));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// Rows held in this process.
    pub rows: Option<usize>,
    /// Rows dropped to make room before they expired.
    pub evictions: Option<u64>,
    /// Charges decided on an overflow row that several keys share.
    pub overflowed: Option<u64>,
    /// Whether the circuit breaker is open, so that calls fail immediately.
    pub circuit_open: Option<bool>,
    /// Notices [to be published](NoticeChannel::publish_later).
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

            fn health(&self) -> Health {
                (**self).health()
            }

            fn rows_by_policy(&self) -> Vec<(PolicyName, usize)> {
                (**self).rows_by_policy()
            }
        }
    };
}

delegate! {
    /// A backend chosen at run time.
    impl Backend for Box<dyn Backend>
}

delegate! {
    /// A shared backend.
    impl<B: Backend + ?Sized> Backend for Arc<B>
}

/// Identifies a row: a key under a policy. See [`Take`] for an example.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_structs)] // A key and a policy are what a row is.
pub struct RowId<'a> {
    /// The policy.
    pub policy: &'a PolicyName,
    /// The key, the same under every policy.
    pub key: Digest,
}

impl RowId<'_> {
    /// The windows of a row: a [`Take::window`] is below this number.
    pub const MAX_WINDOWS: usize = MAX_WINDOWS;

    /// Returns one digest of key and policy, for tables that hold the rows of all policies.
    pub fn digest(&self) -> Digest {
        self.key.under(self.policy)
    }

    /// Derives the [window boundaries](crate::algorithm::seeded) from this row, unless the quota fixes them.
    pub(crate) fn seeded(&self, quota: &Quota) -> Quota {
        if quota.wants_seed() { quota.seeded(self.digest().seed()) } else { *quota }
    }
}

/// A charge on one window of a row under a quota, as the backend sees it.
///
/// A row has a [state](crate::algorithm::State) for each window. A charge under a policy of several
/// [quotas](crate::policy::Quotas) is a take for each of them, on different windows of one row.
///
/// ```
/// use tollgate::{algorithm::{Ask, ChargeRecord}, backend::{Adjustment, Backend, RowId, Take}};
/// use tollgate::{key::Secret, policy::PolicyName, Key, MemoryBackend, Quota, DAY};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::backend::Error> {
/// let backend = MemoryBackend::new();
/// let row = RowId { policy: &PolicyName::new("daily"), key: Secret::random().digest(&Key::from("ada")) };
/// let take = Take::new(row, &Quota::fixed_window(500, DAY), Ask::cost(3));
/// assert!(take.quota.get_start().is_some()); // the boundaries of this key's days
/// let steps = backend.acquire(&[take]).await?;
/// assert!(steps.all_granted() && steps[0].state.spent == 3.0);
///
/// let receipt = ChargeRecord::new(3, &steps[0]).expect("granted");
/// let settlement = Adjustment { row, window: take.window, quota: take.quota, receipt, actual: 100 };
/// assert!(backend.settle(&[settlement]).await?);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_structs)] // A new field would be a new contract.
pub struct Take<'a> {
    /// The row.
    pub row: RowId<'a>,
    /// The window of the row, below [`RowId::MAX_WINDOWS`]. 0 under a policy of one quota.
    pub window: u8,
    /// The quota; the row's digest fixes its window boundaries if nothing else does ([`algorithm::seeded`](crate::algorithm::seeded)).
    pub quota: Quota,
    /// The cost, and how long the caller would wait.
    pub ask: Ask,
    /// The take's place among those of its charge.
    pub(crate) part: Part,
}

impl<'a> Take<'a> {
    /// A take of `ask` from window 0 of `row` under `quota`.
    #[inline]
    pub fn new(row: RowId<'a>, quota: &Quota, ask: Ask) -> Take<'a> {
        Take::part(row, 0, quota, ask, Part::WHOLE)
    }

    #[inline]
    pub(crate) fn part(row: RowId<'a>, window: u8, quota: &Quota, ask: Ask, part: Part) -> Take<'a> {
        Take { row, window, quota: row.seeded(quota), ask, part }
    }

    /// Replaces the window.
    ///
    /// # Panics
    /// If it is not below [`RowId::MAX_WINDOWS`].
    #[must_use]
    #[track_caller]
    pub fn at_window(mut self, window: u8) -> Take<'a> {
        assert!(
            usize::from(window) < MAX_WINDOWS,
            "tollgate: expected a window below {MAX_WINDOWS}, found {window}"
        );
        self.window = window;
        self
    }

    /// Returns one digest of key, policy and window, for tables that hold all windows.
    pub(crate) fn digest(&self) -> Digest {
        self.row.digest().window(self.window)
    }

    /// The decision that the caller gets.
    #[inline]
    pub(crate) fn decision(&self, step: &Step, all_granted: bool) -> Decision {
        Decision::new(self.charged(), *step, all_granted)
    }

    /// The charge and its quota, for the decision.
    #[inline]
    pub(crate) fn charged(&self) -> ChargedQuota {
        let RowId { policy, key } = self.row;
        let (quota, cost) = (self.quota, self.ask.tokens());
        ChargedQuota { policy: policy.clone(), key, quota, cost, window: self.window, part: self.part }
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

/// A settlement: replaces the cost of an earlier charge by `actual`. See [`Take`] for an example.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_structs)] // A new field would be a new contract.
pub struct Adjustment<'a> {
    /// The row.
    pub row: RowId<'a>,
    /// The window that was charged, as in its [`Take`].
    pub window: u8,
    /// The quota under which it was charged, as in its [`Take`].
    pub quota: Quota,
    /// The record of the charge.
    pub receipt: ChargeRecord,
    /// The actual cost in tokens.
    pub actual: u64,
}
