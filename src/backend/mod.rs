//! Where the numbers live: the contract between a limiter and whatever remembers its rows.
//!
//! A limiter turns each call into [takes](Take): a row, the quota that applies to it, what is asked. A [`Backend`] does
//! the [arithmetic](crate::algorithm) on its rows and remembers the outcome. [`MemoryBackend`] is the one that comes
//! with the crate.

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
use crate::policy::{Decision, Digest, PolicyName, Secret};

pub use crate::algorithm::Steps;
pub use error::{Error, ErrorKind};
pub use future::BackendFuture;
pub use memory::{MemoryBackend, MemoryBackendBuilder};
pub use notices::{Notice, NoticeChannel, NoticeSubscriber};
#[cfg(all(tollgate_fuzzing, feature = "redis", feature = "serde"))]
pub use redis::fuzzing::{Answered, Operation, decided, notices, value_of};
#[cfg(feature = "redis")]
pub use redis::{RedisBackend, RedisBackendBuilder};

/// A place where rows live, and where charges on them are decided.
///
/// # Contract
/// This trait is between implementers of backends and this crate; those who limit call
/// [`RateLimiter`](crate::RateLimiter). An implementation passes the suite in `tollgate::backend::conformance` (feature
/// `conformance`).
///
/// - **Atomic.** [`acquire`](Backend::acquire) decides all takes of a call against one instant, each seeing what the
///   takes before it would spend, and stores all of them, or none if one is denied. Two calls on the same row never
///   both see the state from before either.
/// - **A row named twice** in a call is charged for both takes or neither; the retry time of a denial is that of all
///   its takes, since the call will ask for all of them again.
/// - **The same arithmetic.** A decision is what [`algorithm::step_all`](crate::algorithm::step_all) says of the rows, the
///   takes and the backend's time, down to the last bit of `spent` and the microsecond of a wait: lock the rows, load them,
///   call it, and store them.
/// - **Time is the backend's**: the process's clock in memory, the server's where several processes share rows.
/// - **Loss forgives.** A backend may lose a row; the key starts afresh. It may never invent spending, and a denied key
///   that it has no room to remember must not be allowed for that reason alone.
/// - **At the call.** Acquiring, settling and resetting begin when they are called, and are carried out even if the future
///   is dropped unpolled: a client cannot avoid a charge by leaving, and a caller that gives a charge back because it was
///   dropped itself cannot await. A backend on a network hands them to a task of its own.
/// - **Once.** A charge is never undone or repeated behind the caller's back, and a charge whose outcome is unknown (a
///   timeout) is never sent again. A backend may give up a charge that waits too long for its turn: then it is not made,
///   and the future is an [`Error`].
/// - **Unavailable is not limited.** A backend that cannot decide returns an [`Error`], never a denial.
/// - Calls do not block. A future that is [ready](BackendFuture::ready) at once is best.
///
/// A backend that counts the calls to another one. Whoever wraps a backend passes on all that it says of itself, the
/// methods with a default included:
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use std::sync::Arc;
/// use tollgate::algorithm::Micros;
/// use tollgate::backend::{Adjustment, Backend, BackendFuture, NoticeChannel, RowId, Steps, Take, Health};
/// use tollgate::{clock::{Clock, Sleep}, key::Secret, policy::PolicyName, MemoryBackend, Policy, Quota, RateLimiter, MINUTE};
///
/// #[derive(Debug)]
/// struct Counted<B> {
///     inner: B,
///     calls: Arc<AtomicU64>,
/// }
///
/// impl<B: Backend> Backend for Counted<B> {
///     fn acquire(&self, takes: &[Take<'_>]) -> BackendFuture<Steps> {
///         self.calls.fetch_add(1, Ordering::Relaxed);
///         self.inner.acquire(takes)
///     }
///
///     fn peek(&self, takes: &[Take<'_>]) -> BackendFuture<Steps> {
///         self.inner.peek(takes)
///     }
///
///     fn settle(&self, settlements: &[Adjustment<'_>]) -> BackendFuture<bool> {
///         self.inner.settle(settlements)
///     }
///
///     fn reset(&self, rows: &[RowId<'_>]) -> BackendFuture<usize> {
///         self.inner.reset(rows)
///     }
///
///     fn secret(&self) -> Option<Secret> {
///         self.inner.secret()
///     }
///
///     fn sleep_until(&self, instant: Micros) -> Option<Sleep> {
///         self.inner.sleep_until(instant)
///     }
///
///     fn clock(&self) -> Option<Arc<dyn Clock>> {
///         self.inner.clock()
///     }
///
///     fn is_remote(&self) -> bool {
///         self.inner.is_remote()
///     }
///
///     fn notice_channel(&self) -> Option<Arc<dyn NoticeChannel>> {
///         self.inner.notice_channel()
///     }
///
///     fn health(&self) -> Health {
///         self.inner.health()
///     }
///
///     fn rows_by_policy(&self) -> Vec<(PolicyName, usize)> {
///         self.inner.rows_by_policy()
///     }
/// }
///
/// static API: Policy = Policy::new("api", Quota::token_bucket(10, MINUTE));
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tollgate::LimitError> {
/// let calls = Arc::new(AtomicU64::new(0));
/// let limiter = RateLimiter::new(Counted { inner: MemoryBackend::new(), calls: Arc::clone(&calls) });
/// limiter.limit(&API, "ada").await?;
/// limiter.remaining(&API, "ada").await?; // looks, and takes nothing
/// assert_eq!(calls.load(Ordering::Relaxed), 1);
/// assert_eq!(limiter.stats().rows, Some(1));
/// # Ok(())
/// # }
/// ```
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    /// Decides every take and stores all of them, or none if one is denied. One step for each take, in their order.
    ///
    /// In a refused call, the steps of takes that would have fitted leave their rows as they were. No takes are no
    /// steps. It is done, even if the future is dropped at once: see the contract.
    ///
    /// # Errors
    /// The future's, if it cannot decide: never for a denial.
    fn acquire(&self, takes: &[Take<'_>]) -> BackendFuture<Steps>;

    /// Decides as [`acquire`](Backend::acquire) would, and stores nothing.
    ///
    /// # Errors
    /// As there.
    fn peek(&self, takes: &[Take<'_>]) -> BackendFuture<Steps>;

    /// Applies [`algorithm::settle`](crate::algorithm::settle) to each row separately. Returns whether every settlement took
    /// effect: `false` if the rules forfeit what one of them was to give back
    /// ([`algorithm::takes_effect`](crate::algorithm::takes_effect)).
    ///
    /// It is done, even if the future is dropped at once: see the contract.
    ///
    /// # Errors
    /// The future's, if it cannot be told whether it was done.
    fn settle(&self, settlements: &[Adjustment<'_>]) -> BackendFuture<bool>;

    /// Forgets rows, and returns how many of them were there. A row that is repaid may be there or not. Each row is counted
    /// once, also if it is named twice.
    ///
    /// It is done, even if the future is dropped at once: see the contract.
    ///
    /// # Errors
    /// The future's, if it cannot be told whether it was done.
    fn reset(&self, rows: &[RowId<'_>]) -> BackendFuture<usize>;

    /// The secret under which every limiter on these rows has to hash keys, unless it is given one: of a backend that
    /// several processes share. `None`, the default, means that each limiter may draw its own.
    fn secret(&self) -> Option<Secret> {
        None
    }

    /// A future that is done once the backend's time comes to `instant`, for a backend whose time does not run as the
    /// machine's does, as under a [`ManualClock`](crate::clock::ManualClock). `None`, the default, means that any timer will
    /// do.
    fn sleep_until(&self, instant: Micros) -> Option<Sleep> {
        let _ = instant;
        None
    }

    /// The clock of this process that it goes by, if that is not the machine's: what a limiter remembers by itself,
    /// such as blocks, goes by the same. `None`, the default, means the machine's.
    fn clock(&self) -> Option<Arc<dyn Clock>> {
        None
    }

    /// Whether asking it costs a journey, so that it is worth remembering what it said. `false` is the default.
    fn is_remote(&self) -> bool {
        false
    }

    /// Where limiters on it tell each other what changes at run time. `None`, the default: each limiter keeps that to
    /// itself.
    fn notice_channel(&self) -> Option<Arc<dyn NoticeChannel>> {
        None
    }

    /// How it is doing, for whoever watches: what [`RateLimiter::stats`](crate::RateLimiter::stats) passes on. The
    /// default knows nothing.
    fn health(&self) -> Health {
        Health::default()
    }

    /// The rows that it holds in this process for each policy, most first. Policies beyond a bound
    /// are counted together as `(others)`. The default is none.
    fn rows_by_policy(&self) -> Vec<(PolicyName, usize)> {
        Vec::new()
    }
}

/// How a backend is doing, as far as it can tell at once.
///
/// ```
/// use tollgate::backend::Backend;
/// use tollgate::MemoryBackend;
///
/// let vitals = MemoryBackend::new().health();
/// assert_eq!((vitals.rows, vitals.circuit_open, vitals.pending_notices), (Some(0), None, 0));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// Rows that it holds in this process.
    pub rows: Option<usize>,
    /// Rows that it dropped to make room, before they were repaid.
    pub evictions: Option<u64>,
    /// Charges of callers without a row of their own, decided on a row that several of them share.
    pub overflowed: Option<u64>,
    /// Whether it is out of reach and calls fail at once.
    pub circuit_open: Option<bool>,
    /// Notices that are still to be [told](NoticeChannel::publish_later).
    pub pending_notices: usize,
    /// Whether what others tell could not be read when that was tried last; `None` where nobody reads.
    pub poll_failed: Option<bool>,
}

macro_rules! pass_on {
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

pass_on! {
    /// A backend chosen at run time.
    impl Backend for Box<dyn Backend>
}

pass_on! {
    /// A backend that is looked at from elsewhere too.
    impl<B: Backend + ?Sized> Backend for Arc<B>
}

/// Which row: a key under a policy.
///
/// ```
/// use tollgate::backend::RowId;
/// use tollgate::{key::Secret, policy::PolicyName, Key};
///
/// let (api, login) = (PolicyName::new("api"), PolicyName::new("login"));
/// let key = Secret::random().digest(&Key::from("ada"));
/// let (one, other) = (RowId { policy: &api, key }, RowId { policy: &login, key });
/// assert_ne!(one.digest(), other.digest());
/// ```
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_structs)] // A key and a policy are what a row is.
pub struct RowId<'a> {
    /// The policy.
    pub policy: &'a PolicyName,
    /// The key, the same under every policy.
    pub key: Digest,
}

impl RowId<'_> {
    /// One digest for key and policy together, for tables that hold the rows of all policies.
    pub fn digest(&self) -> Digest {
        self.key.under(self.policy)
    }

    /// A quota whose [boundaries](crate::algorithm::seeded) are this row's, if nothing else says where they lie.
    pub(crate) fn seeded(&self, quota: &Quota) -> Quota {
        if quota.wants_seed() { quota.seeded(self.digest().seed()) } else { *quota }
    }
}

/// One line of what is asked: so much of a row, under a quota.
///
/// ```
/// use tollgate::algorithm::Ask;
/// use tollgate::backend::{Backend, RowId, Take};
/// use tollgate::{key::Secret, policy::PolicyName, Key, MemoryBackend, Quota, DAY};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tollgate::backend::Error> {
/// let (policy, key) = (PolicyName::new("daily"), Secret::random().digest(&Key::from("ada")));
/// let take = Take::new(RowId { policy: &policy, key }, &Quota::fixed_window(500, DAY), Ask::cost(3));
/// assert!(take.quota.phase().is_some()); // this key's days
///
/// let steps = MemoryBackend::new().acquire(&[take]).await?;
/// assert!(steps.all_granted());
/// assert_eq!(steps[0].state.spent, 3.0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_structs)] // A new field would be a new contract.
pub struct Take<'a> {
    /// The row.
    pub row: RowId<'a>,
    /// The quota, its window boundaries fixed by the row's digest if nothing else fixes them
    /// ([`algorithm::seeded`](crate::algorithm::seeded)).
    pub quota: Quota,
    /// The cost, and whether the caller would wait.
    pub ask: Ask,
}

impl<'a> Take<'a> {
    /// What `ask` takes of `row` under `quota`.
    #[inline]
    pub fn new(row: RowId<'a>, quota: &Quota, ask: Ask) -> Take<'a> {
        Take { row, quota: row.seeded(quota), ask }
    }

    /// What is answered to the caller.
    #[inline]
    pub(crate) fn decision(&self, step: &Step, all_granted: bool) -> Decision {
        Decision::new(self.row.policy.clone(), self.row.key, self.quota, self.ask.tokens(), *step, all_granted)
    }
}

/// A take that outlives its call.
#[derive(Clone, Debug)]
pub(crate) struct OwnedTake {
    pub(crate) policy: PolicyName,
    pub(crate) key: Digest,
    pub(crate) quota: Quota,
    pub(crate) ask: Ask,
}

impl OwnedTake {
    pub(crate) fn of(take: &Take<'_>) -> OwnedTake {
        OwnedTake { policy: take.row.policy.clone(), key: take.row.key, quota: take.quota, ask: take.ask }
    }

    pub(crate) fn take(&self) -> Take<'_> {
        Take { row: RowId { policy: &self.policy, key: self.key }, quota: self.quota, ask: self.ask }
    }
}

/// A charge to be settled: it was taken for so much, and truly cost `actual`.
///
/// ```
/// use tollgate::algorithm::{Ask, ChargeRecord};
/// use tollgate::backend::{Adjustment, Backend, RowId, Take};
/// use tollgate::{key::Secret, policy::PolicyName, Key, MemoryBackend, Quota, MINUTE};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tollgate::backend::Error> {
/// let backend = MemoryBackend::new();
/// let (policy, key) = (PolicyName::new("tokens"), Secret::random().digest(&Key::from("ada")));
/// let row = RowId { policy: &policy, key };
/// let take = Take::new(row, &Quota::token_bucket(1_000_000, MINUTE), Ask::cost(1000));
/// let steps = backend.acquire(&[take]).await?;
///
/// let receipt = ChargeRecord::new(1000, &steps[0]).expect("granted");
/// backend.settle(&[Adjustment { row, quota: take.quota, receipt, actual: 501_000 }]).await?;
/// assert!(backend.peek(&[take]).await?[0].state.spent > 400_000.0); // a little is paid back already
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_structs)] // A new field would be a new contract.
pub struct Adjustment<'a> {
    /// The row.
    pub row: RowId<'a>,
    /// The quota under which it was charged, as in its [`Take`].
    pub quota: Quota,
    /// What the charge left.
    pub receipt: ChargeRecord,
    /// Tokens that it truly cost.
    pub actual: u64,
}
