//! What a limiter tells those who watch it.

use std::sync::Arc;
use std::time::Duration;

use super::mistake::Mistake;
use crate::backend::Error;
use crate::policy::{Decision, DenyRule, Digest, PolicyName};

/// Somebody who is told of every decision, as data: for logs, metrics, alerts, bills.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use std::sync::Arc;
/// use tollgate::{observe::{Decided, Observer}, MemoryBackend, Policy, Quota, RateLimiter, MINUTE};
///
/// #[derive(Default)]
/// struct Denials(AtomicU64);
///
/// impl Observer for Denials {
///     fn decided(&self, observed: &Decided<'_>) {
///         if !observed.decision().is_allowed() {
///             self.0.fetch_add(1, Ordering::Relaxed);
///         }
///     }
/// }
///
/// static API: Policy = Policy::new("api", Quota::token_bucket(1, MINUTE));
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::backend::Error> {
/// let denials = Arc::new(Denials::default());
/// let limiter = RateLimiter::builder(MemoryBackend::new()).observer(Arc::clone(&denials)).build();
/// for _ in 0..2 {
///     drop(limiter.try_limit(&API, "ada").await?);
/// }
/// assert_eq!(denials.0.load(Ordering::Relaxed), 1);
/// # Ok(()) }
/// ```
///
/// A call whose future is dropped before a remote backend has answered is charged, and observers are not notified of its
/// decision.
///
/// It is called where the decision is made, in the midst of a request: it must not block, and had better be quick. A
/// limiter without observers spends nothing on them. `tollgate::observe` has observers for `tracing` and `metrics`.
pub trait Observer: Send + Sync + 'static {
    /// A charge was decided; each charge of a call by itself.
    fn decided(&self, observed: &Decided<'_>);

    /// The backend could not decide a charge. If its [failure mode](crate::FailureMode) has an answer,
    /// [`decided`](Observer::decided) is called too. Does nothing by default. See [`Failed`] for an example.
    fn failed(&self, failed: &Failed<'_>) {
        let _ = failed;
    }

    /// Somebody was blocked, by their denials or by [`RateLimiter::block`](crate::RateLimiter::block), in this process.
    /// Does nothing by default. See [`Blocked`] for an example.
    fn blocked(&self, blocked: &Blocked<'_>) {
        let _ = blocked;
    }

    /// A charge was settled in this process: its true cost was reported, or it was given back by a
    /// [refund](crate::Receipt::refund) or by a [reservation](crate::Reservation) that was cancelled or dropped. Does
    /// nothing by default. See [`Settled`] for an example.
    fn settled(&self, settled: &Settled<'_>) {
        let _ = settled;
    }

    /// What a key spent under a policy was forgotten, by [`RateLimiter::reset`](crate::RateLimiter::reset) or
    /// [`Receipt::reset`](crate::Receipt::reset) in this process. Does nothing by default. See [`Reset`] for an
    /// example.
    fn reset(&self, reset: &Reset<'_>) {
        let _ = reset;
    }

    /// The limiter noticed a mistake of the program, for the first time. Does nothing by default. See [`Mistake`] for
    /// an example.
    fn mistake(&self, mistake: &Mistake) {
        let _ = mistake;
    }
}

impl<O: Observer + ?Sized> Observer for Arc<O> {
    fn decided(&self, observed: &Decided<'_>) {
        (**self).decided(observed);
    }

    fn failed(&self, failed: &Failed<'_>) {
        (**self).failed(failed);
    }

    fn blocked(&self, blocked: &Blocked<'_>) {
        (**self).blocked(blocked);
    }

    fn settled(&self, settled: &Settled<'_>) {
        (**self).settled(settled);
    }

    fn reset(&self, reset: &Reset<'_>) {
        (**self).reset(reset);
    }

    fn mistake(&self, mistake: &Mistake) {
        (**self).mistake(mistake);
    }
}

/// A decision as an [`Observer`] is told of it, with the time that it was waited for.
///
/// ```
/// use tollgate::observe::{Decided, Observer, Outcome};
///
/// struct Slow;
///
/// impl Observer for Slow {
///     fn decided(&self, observed: &Decided<'_>) {
///         let counts = !observed.is_check() && observed.is_enforced() && observed.outcome() != Outcome::Denied;
///         if let Some(latency) = observed.latency().filter(|latency| counts && latency.as_millis() > 20) {
///             eprintln!("{} took {latency:?}", observed.decision().policy());
///         }
///     }
/// }
/// # use tollgate::{MemoryBackend, Policy, Quota, RateLimiter, MINUTE};
/// # static API: Policy = Policy::new("api", Quota::token_bucket(10, MINUTE));
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::backend::Error> {
/// let limiter = RateLimiter::builder(MemoryBackend::new()).observer(Slow).build();
/// assert!(limiter.try_limit(&API, "ada").await?.is_allowed());
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Decided<'a> {
    pub(super) decision: &'a Decision,
    pub(super) latency: Option<Duration>,
    pub(super) check: bool,
    pub(super) enforced: bool,
}

impl<'a> Decided<'a> {
    /// The decision: policy, key digest, cost, what is left, the reason, who decided.
    pub const fn decision(&self) -> &'a Decision {
        self.decision
    }

    /// What became of the charge.
    pub fn outcome(&self) -> Outcome {
        match self.decision {
            decision if !decision.is_allowed() => Outcome::Denied,
            decision if decision.delay().is_zero() => Outcome::Allowed,
            _ => Outcome::Reserved,
        }
    }

    /// The time from the call to the decision, of all charges of a call together. `None` where the backend is in this
    /// process: its answer is there at once, and the clock is not read for it.
    pub const fn latency(&self) -> Option<Duration> {
        self.latency
    }

    /// Whether it was only asked for, and nothing charged.
    pub const fn is_check(&self) -> bool {
        self.check
    }

    /// Whether a denial is acted on: `false` of a request in [shadow mode](crate::RateLimitLayer::shadow).
    pub const fn is_enforced(&self) -> bool {
        self.enforced
    }
}

/// What became of a charge.
///
/// ```
/// use tollgate::observe::Outcome;
///
/// let all = [Outcome::Allowed, Outcome::Reserved, Outcome::Denied];
/// assert_eq!(all.map(Outcome::as_str), ["allowed", "reserved", "denied"]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// It was made, or would have been.
    Allowed,
    /// The same, for a later turn.
    Reserved,
    /// It was not made.
    Denied,
}

impl Outcome {
    /// A name that stays the same, for logs and metrics: `allowed`, `reserved`, `denied`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Outcome::Allowed => "allowed",
            Outcome::Reserved => "reserved",
            Outcome::Denied => "denied",
        }
    }
}

/// A charge that the backend could not decide, as an [`Observer`] is told of it.
///
/// ```
/// use tollgate::{backend::ErrorKind, observe::{Decided, Failed, Observer}};
///
/// struct Alarm;
///
/// impl Observer for Alarm {
///     fn decided(&self, _: &Decided<'_>) {}
///
///     fn failed(&self, failed: &Failed<'_>) {
///         if failed.error().kind() != ErrorKind::Unavailable {
///             eprintln!("{} {:?}: {} after {:?}", failed.policy(), failed.key(), failed.error(), failed.latency());
///         }
///     }
/// }
/// # use tollgate::{MemoryBackend, Policy, Quota, RateLimiter, MINUTE};
/// # static API: Policy = Policy::new("api", Quota::token_bucket(10, MINUTE));
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::backend::Error> {
/// let limiter = RateLimiter::builder(MemoryBackend::new()).observer(Alarm).build();
/// assert!(limiter.try_limit(&API, "ada").await?.is_allowed());
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Failed<'a> {
    pub(super) policy: &'a PolicyName,
    pub(super) key: Digest,
    pub(super) error: &'a Error,
    pub(super) latency: Option<Duration>,
}

impl<'a> Failed<'a> {
    /// The policy.
    pub const fn policy(&self) -> &'a PolicyName {
        self.policy
    }

    /// The key's digest.
    pub const fn key(&self) -> Digest {
        self.key
    }

    /// Why it could not.
    pub const fn error(&self) -> &'a Error {
        self.error
    }

    /// The time from the call to the error. `None` as [of a decision](Decided::latency).
    pub const fn latency(&self) -> Option<Duration> {
        self.latency
    }
}

/// A charge that was settled, as an [`Observer`] receives it.
///
/// Observers are notified when the settlement is made. A remote backend may still fail to carry it out, and of a charge
/// that cost less, a part may have been paid back already: see
/// [what can be given back](crate::Receipt#what-can-be-given-back).
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use tollgate::{observe::{Decided, Observer, Settled}, MemoryBackend, Policy, Quota, RateLimiter, MINUTE};
///
/// /// The tokens that callers truly used.
/// #[derive(Default)]
/// struct Bill(AtomicU64);
///
/// impl Observer for Bill {
///     fn decided(&self, _: &Decided<'_>) {}
///
///     fn settled(&self, settled: &Settled<'_>) {
///         println!("{}: {} became {}", settled.decision().policy(), settled.decision().cost(), settled.actual());
///         self.0.fetch_add(settled.actual(), Ordering::Relaxed);
///     }
/// }
///
/// static TOKENS: Policy = Policy::new("tokens", Quota::token_bucket(10_000, MINUTE));
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let bill = Arc::new(Bill::default());
/// let limiter = RateLimiter::builder(MemoryBackend::new()).observer(Arc::clone(&bill)).build();
/// let usage = limiter.acquire(&TOKENS, "team").cost(1000).hold().await?.into_receipt();
/// usage.settle(1700).await?;
/// assert_eq!(bill.0.load(Ordering::Relaxed), 1700);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Settled<'a> {
    pub(super) decision: &'a Decision,
    pub(super) actual: u64,
}

impl<'a> Settled<'a> {
    /// The decision on the charge: policy, key digest, the cost as it was charged, who decided.
    pub const fn decision(&self) -> &'a Decision {
        self.decision
    }

    /// The true cost in tokens; 0 if the whole charge was given back.
    pub const fn actual(&self) -> u64 {
        self.actual
    }
}

/// A row that was reset, as an [`Observer`] receives it: the key has the whole limit again.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use tollgate::{key::Digest, observe::{Decided, Observer, Reset}, MemoryBackend, Policy, Quota, RateLimiter, Subject, HOUR};
///
/// #[derive(Default)]
/// struct Audit(Mutex<Vec<(String, Digest)>>);
///
/// impl Observer for Audit {
///     fn decided(&self, _: &Decided<'_>) {}
///
///     fn reset(&self, reset: &Reset<'_>) {
///         self.0.lock().unwrap().push((reset.policy().to_string(), reset.key()));
///     }
/// }
///
/// static LOGIN: Policy = Policy::new("login", Quota::token_bucket(5, HOUR));
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::backend::Error> {
/// let audit = Arc::new(Audit::default());
/// let limiter = RateLimiter::builder(MemoryBackend::new()).observer(Arc::clone(&audit)).build();
/// limiter.reset(&LOGIN, "ada").await?;
/// let ada = limiter.digest(Subject::new("ada").key());
/// assert_eq!(*audit.0.lock().unwrap(), [("login".to_owned(), ada)]);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Reset<'a> {
    pub(super) policy: &'a PolicyName,
    pub(super) key: Digest,
}

impl<'a> Reset<'a> {
    /// The policy.
    pub const fn policy(&self) -> &'a PolicyName {
        self.policy
    }

    /// The key's digest.
    pub const fn key(&self) -> Digest {
        self.key
    }
}

/// Somebody who is blocked from now on, as an [`Observer`] is told of it.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use tollgate::{observe::{Blocked, Decided, Observer}, protection::Signal, MemoryBackend, RateLimiter, DAY};
///
/// #[derive(Default)]
/// struct Log(Mutex<Vec<String>>);
///
/// impl Observer for Log {
///     fn decided(&self, _: &Decided<'_>) {}
///
///     fn blocked(&self, blocked: &Blocked<'_>) {
///         let line = format!("{} for {:?}, {} times", blocked.rule(), blocked.lasts(), blocked.times());
///         self.0.lock().unwrap().push(line);
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::backend::Error> {
/// let log = Arc::new(Log::default());
/// let limiter = RateLimiter::builder(MemoryBackend::new()).observer(Arc::clone(&log)).build();
/// limiter.block(Signal::ip([192, 0, 2, 7].into()), DAY).await?;
/// assert_eq!(*log.0.lock().unwrap(), ["network 192.0.2.7/32 for 86400s, 0 times"]);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Blocked<'a> {
    pub(super) rule: &'a DenyRule,
    pub(super) lasts: Duration,
    pub(super) times: u32,
}

impl<'a> Blocked<'a> {
    /// By what they are known.
    pub const fn rule(&self) -> &'a DenyRule {
        self.rule
    }

    /// For how long.
    pub const fn lasts(&self) -> Duration {
        self.lasts
    }

    /// How many times they were blocked in a row by their denials, this time included; 0 if somebody else did it.
    pub const fn times(&self) -> u32 {
        self.times
    }
}
