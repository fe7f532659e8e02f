//! Where the numbers live: the contract between a limiter and whatever remembers its rows.
//!
//! A limiter turns each call into [takes](Take): a row, the quota that applies to it, what is asked. A [`Backend`] does
//! the [arithmetic](crate::algorithm) on its rows and remembers the outcome. [`MemoryBackend`] is the one that comes
//! with the crate.

mod bulletin;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod error;
mod future;
mod memory;
#[cfg(feature = "redis")]
mod redis;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::algorithm::{Ask, Micros, Quota, Receipt, State, Step, Verdict, step};
use crate::clock::{Clock, Sleep};
use crate::policy::{Digest, PolicyName, Secret};

pub use bulletin::{Bulletin, BulletinReader, Notice};
pub use error::{Error, ErrorKind};
pub use future::BackendFuture;
pub(crate) use memory::FewSteps;
pub use memory::{MemoryBackend, MemoryBackendBuilder};
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
///   its takes, since the call will ask for all of them again ([`verdict_of_all`]).
/// - **The same arithmetic.** A decision is what [`algorithm::step`](crate::algorithm::step) says of the row, the quota
///   and the backend's time, down to the last bit of `spent` and the microsecond of a wait.
/// - **Time is the backend's**: the process's clock in memory, the server's where several processes share rows.
/// - **Loss forgives.** A backend may lose a row; the key starts afresh. It may never invent spending, and a denied key
///   that it has no room to remember must not be allowed for that reason alone.
/// - **Cancellation.** If a returned future is dropped, the charge may have happened or not. It is never undone or
///   repeated behind the caller's back, and a charge whose outcome is unknown (a timeout) is never sent again.
/// - **Settling and resetting are posted.** They begin when they are called and are carried out even if the future is
///   dropped: whoever gives a charge back because it was dropped itself cannot wait. A backend on a network hands them
///   to a task of its own.
/// - **Unavailable is not limited.** A backend that cannot decide returns an [`Error`], never a denial.
/// - Calls do not block. A future that is [ready](BackendFuture::ready) at once is best.
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    /// Decides every take and stores all of them, or none if one is denied. One step for each take, in their order.
    ///
    /// In a refused call, the steps of takes that would have fitted leave their rows as they were.
    fn acquire(&self, takes: &[Take<'_>]) -> BackendFuture<Steps>;

    /// Decides as [`acquire`](Backend::acquire) would, and stores nothing.
    fn peek(&self, takes: &[Take<'_>]) -> BackendFuture<Steps>;

    /// Applies [`algorithm::settle`](crate::algorithm::settle) to each row by itself.
    ///
    /// It is done, even if the future is dropped at once: see the contract.
    fn settle(&self, settlements: &[Adjustment<'_>]) -> BackendFuture<()>;

    /// Forgets rows. Those that are not there are not missed.
    ///
    /// It is done, even if the future is dropped at once: see the contract.
    fn reset(&self, rows: &[RowId<'_>]) -> BackendFuture<()>;

    /// The secret under which every limiter on these rows has to hash keys, unless it is given one: of a backend that
    /// several processes share. `None`, the default, means that each limiter may draw its own.
    fn secret(&self) -> Option<Secret> {
        None
    }

    /// A future that is done once the backend's time comes to `instant`, for a backend whose time does not run as the
    /// machine's does, as under a [`ManualClock`](crate::ManualClock). `None`, the default, means that any timer will
    /// do.
    fn sleep_until(&self, instant: Micros) -> Option<Sleep> {
        let _ = instant;
        None
    }

    /// The clock of this process that it goes by, if that is not the machine's: what a limiter remembers by itself, such
    /// as blocks, goes by the same. `None`, the default, means the machine's.
    fn clock(&self) -> Option<Arc<dyn Clock>> {
        None
    }

    /// Whether asking it costs a journey, so that it is worth remembering what it said. `false` is the default.
    fn is_remote(&self) -> bool {
        false
    }

    /// Where limiters on it tell each other what changes at run time. `None`, the default: each limiter keeps that to
    /// itself.
    fn bulletin(&self) -> Option<Arc<dyn Bulletin>> {
        None
    }

    /// How it is, for whoever watches.
    fn vitals(&self) -> Vitals {
        Vitals::default()
    }
}

/// How a backend is, as far as it can tell at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Vitals {
    /// Rows that it holds in this process.
    pub rows: Option<usize>,
    /// Whether it is out of reach and calls fail at once.
    pub is_broken: Option<bool>,
    /// Notices that are still to be [told](Bulletin::tell).
    pub untold: usize,
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

            fn settle(&self, settlements: &[Adjustment<'_>]) -> BackendFuture<()> {
                (**self).settle(settlements)
            }

            fn reset(&self, rows: &[RowId<'_>]) -> BackendFuture<()> {
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

            fn bulletin(&self) -> Option<Arc<dyn Bulletin>> {
                (**self).bulletin()
            }

            fn vitals(&self) -> Vitals {
                (**self).vitals()
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
    #[inline]
    pub fn digest(&self) -> Digest {
        self.key.under(self.policy)
    }

    /// What fixes the [boundaries](Quota::seeded) of a quota that does not say where they lie.
    #[inline]
    pub(crate) fn seed(&self) -> u64 {
        self.digest().seed()
    }
}

/// One line of what is asked: so much of a row, under a quota.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_structs)] // A new field would be a new contract.
pub struct Take<'a> {
    /// The row.
    pub row: RowId<'a>,
    /// The quota, its window boundaries fixed by the row's digest if nothing else fixes them
    /// ([`Quota::seeded`]).
    pub quota: Quota,
    /// The cost, and whether the caller would wait.
    pub ask: Ask,
}

impl<'a> Take<'a> {
    /// What `ask` takes of `row` under `quota`.
    #[inline]
    pub fn new(row: RowId<'a>, quota: &Quota, ask: Ask) -> Take<'a> {
        Take { row, quota: quota.seeded(row.seed()), ask }
    }
}

/// A charge to be settled: it was taken for so much, and truly cost `actual`.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_structs)] // A new field would be a new contract.
pub struct Adjustment<'a> {
    /// The row.
    pub row: RowId<'a>,
    /// The quota under which it was charged, as in its [`Take`].
    pub quota: Quota,
    /// What the charge left.
    pub receipt: Receipt,
    /// Tokens that it truly cost.
    pub actual: u64,
}

/// The answers to a call, in the order of its takes. A single one needs no allocation.
#[derive(Clone, Debug, Default)]
pub struct Steps(SmallVec<[Step; 1]>);

impl Steps {
    /// Whether every take was granted.
    pub fn all_granted(&self) -> bool {
        self.0.iter().all(Step::is_allowed)
    }
}

impl std::ops::Deref for Steps {
    type Target = [Step];

    fn deref(&self) -> &[Step] {
        &self.0
    }
}

impl From<Step> for Steps {
    fn from(step: Step) -> Steps {
        Steps(SmallVec::from_buf([step]))
    }
}

impl FromIterator<Step> for Steps {
    fn from_iter<I: IntoIterator<Item = Step>>(steps: I) -> Steps {
        Steps(steps.into_iter().collect())
    }
}

/// The denial that a call gets which asks for several takes of one row, whose state is `before`: each take comes after
/// the ones before it, and the call succeeds when the last of them does. `None` if none is denied.
///
/// Of each take: all that is asked for up to it, within the time that it would wait itself.
pub fn verdict_of_all(before: &State, now: Micros, asked: impl IntoIterator<Item = (Quota, Ask)>) -> Option<Verdict> {
    let mut tokens = 0u64;
    let mut denial: Option<Option<Duration>> = None;
    for (quota, ask) in asked {
        tokens = tokens.saturating_add(ask.tokens());
        if let Verdict::Deny { retry } = step(&quota, before, now, ask.for_cost(tokens)).verdict {
            denial = Some(match denial {
                None => retry,
                // Never, if one of them never.
                Some(longest) => longest.zip(retry).map(|(a, b)| a.max(b)),
            });
        }
    }
    denial.map(|retry| Verdict::Deny { retry })
}
