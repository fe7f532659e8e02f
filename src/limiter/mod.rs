//! The engine: what a policy says of a caller, decided by a backend.

mod acquire;
mod agents;
mod block_cache;
mod builder;
mod charge;
mod control;
mod decide;
pub(crate) mod deny;
mod error;
mod failure;
mod future;
pub(crate) mod guard;
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
mod receipt;
mod reservation;
mod snapshot;
#[cfg(test)]
mod tests;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use self::block_cache::BlockCache;
use self::failure::Failure;
use self::future::{Answer, Finish};
use self::guard::Guard;
use self::local::LocalTime;
use self::mistake_tracker::MistakeTracker;
use self::overrides::Overrides;
use self::queue::Queues;
use crate::algorithm::{Ask, Micros, Quota, SECOND};
use crate::backend::{Backend, BackendFuture, Error, ErrorKind, MemoryBackend, RowId, Take};
use crate::policy::{Allowed, Decision, Decisions, Digest, Key, Policy, Secret, Signals, Subject};
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

pub use listing::SetQuota;
pub(crate) use observer::Observer;
pub use overrides::SetQuotaError;
pub use receipt::Receipt;
pub use reservation::Reservation;
pub use snapshot::Snapshot;
pub(crate) use waiting::WaitSlot;

/// Limits callers, from any handler: by a policy, under a key, on a backend.
///
/// It is cheap to clone; clones share their rows. The [layer](crate::RateLimitLayer) has one inside, and may be given
/// yours.
///
/// ```
/// use tollgate::{Charge, Policy, Quota, RateLimiter, DAY, HOUR, MINUTE};
///
/// static LOGIN: Policy = Policy::new("login", Quota::token_bucket(5, HOUR));
/// static CHAT: Policy = Policy::new("chat", Quota::token_bucket(10_000, MINUTE));
/// static DAILY: Policy = Policy::new("daily", Quota::fixed_window(500, DAY));
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = RateLimiter::default();
///
/// // One token of one policy; a denial is an error.
/// limiter.limit(&LOGIN, "ada@example.com").await?;
///
/// // Several policies at once: all of them are charged, or none.
/// limiter.limit_all([Charge::new(&CHAT, 7).cost(1200), Charge::new(&DAILY, 7)]).await?;
/// assert_eq!(limiter.remaining(&CHAT, 7).await?, 8800);
///
/// limiter.reset(&LOGIN, "ada@example.com").await?;
/// # Ok(())
/// # }
/// ```
///
/// # How a call is decided
/// Handlers, layers and status endpoints use the same steps. (A layer's [`skip`](crate::RateLimitLayer::skip) rules come
/// before them.)
///
/// 1. **Resolve** each charge: its row, and the quota that applies ([set](RateLimiter::set_quota) at run time, else the
///    tier's, else the policy's own).
/// 2. **Blocked**: a [deny list](DenyList) or a [block](AutoBlock) denies the call.
/// 3. **Known**: the [block cache](RateLimiterBuilder::block_cache) denies the call if an earlier answer of a remote backend
///    is enough to do so.
/// 4. The **backend** decides all charges at one instant: all are granted, or none.
/// 5. **Failure**: if the backend failed, the [`FailureMode`] decides.
/// 6. **Protect**: denials are counted, and callers with too many are blocked ([`AutoBlock`]).
/// 7. **Observe**: [observers](Observer) are notified.
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
    block_cache: Option<BlockCache>,
    observers: Vec<Arc<dyn Observer>>,
    mistakes: MistakeTracker,
    /// Of what is remembered here and not in the backend.
    time: LocalTime,
}

impl RateLimiter {
    /// A limiter on `backend`, with a random secret.
    ///
    /// ```
    /// use tollgate::{clock::ManualClock, MemoryBackend, RateLimiter};
    ///
    /// let clock = ManualClock::new();
    /// let limiter = RateLimiter::new(MemoryBackend::builder().clock(clock).build());
    /// ```
    pub fn new(backend: impl Backend) -> RateLimiter {
        RateLimiter::builder(backend).build()
    }

    /// A limiter with choices: what becomes of failures, whom to deny, who is told. See [`RateLimiterBuilder`].
    ///
    /// ```
    /// use tollgate::{FailureMode, MemoryBackend, RateLimiter};
    ///
    /// let limiter = RateLimiter::builder(MemoryBackend::new()).on_failure(FailureMode::Allow).build();
    /// ```
    pub fn builder(backend: impl Backend) -> RateLimiterBuilder {
        RateLimiterBuilder::new(backend)
    }

    /// Takes one token for `subject` under `policy`; fails if it is denied.
    ///
    /// ```
    /// # use tollgate::{LimitError, Policy, Quota, RateLimiter, HOUR};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), LimitError> {
    /// static LOGIN: Policy = Policy::new("login", Quota::token_bucket(1, HOUR));
    ///
    /// let limiter = RateLimiter::default();
    /// limiter.limit(&LOGIN, ("ada@example.com", 7)).await?;
    /// assert!(limiter.limit(&LOGIN, ("ada@example.com", 7)).await.is_err());
    /// limiter.limit(&LOGIN, ("ada@example.com", 8)).await?; // another key
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If it is denied, or the backend cannot decide. A backend that failed and whose [`FailureMode`] admits the call is
    /// no error.
    pub fn limit(&self, policy: &Policy, subject: impl Into<Subject>) -> DecisionFuture {
        self.acquire(policy, subject).send()
    }

    /// [`limit`](RateLimiter::limit) that returns a denial as a [`Decision`]: for callers that look at it in any case.
    ///
    /// ```
    /// # use tollgate::{Policy, Quota, RateLimiter, HOUR};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::backend::Error> {
    /// static LOGIN: Policy = Policy::new("login", Quota::token_bucket(1, HOUR));
    ///
    /// let limiter = RateLimiter::default();
    /// assert!(limiter.try_limit(&LOGIN, "ada").await?.is_allowed());
    /// let denied = limiter.try_limit(&LOGIN, "ada").await?;
    /// assert_eq!((denied.is_allowed(), denied.remaining()), (false, 0));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A decision that is not looked at is a warning:
    ///
    /// ```compile_fail
    /// #![deny(unused_must_use)]
    /// # use tollgate::{backend::Error, Policy, RateLimiter};
    /// async fn login(limiter: &RateLimiter, policy: &Policy) -> Result<(), Error> {
    ///     limiter.try_limit(policy, "ada").await?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// If the backend cannot decide.
    pub fn try_limit(&self, policy: &Policy, subject: impl Into<Subject>) -> DecisionFuture<Result<Decision, Error>> {
        self.try_acquire(policy, subject).send()
    }

    /// [`limit`](RateLimiter::limit) from where nothing can be awaited, such as a gRPC interceptor.
    ///
    /// ```
    /// use tollgate::{Policy, Quota, RateLimiter, MINUTE};
    ///
    /// static CALLS: Policy = Policy::new("calls", Quota::token_bucket(1, MINUTE));
    ///
    /// let limiter = RateLimiter::default();
    /// assert!(limiter.limit_now(&CALLS, "ada").is_ok());
    /// assert!(limiter.limit_now(&CALLS, "ada").is_err());
    /// ```
    ///
    /// # Errors
    /// If it is denied, or the backend cannot decide. A remote backend is not asked: the error is of kind
    /// [`Unsupported`](ErrorKind::Unsupported).
    pub fn limit_now(&self, policy: &Policy, subject: impl Into<Subject>) -> Result<Allowed, LimitError> {
        Ok(self.try_limit_now(policy, subject)?.into_result()?)
    }

    /// [`limit_now`](RateLimiter::limit_now) that returns a denial as a [`Decision`].
    ///
    /// # Errors
    /// If the backend cannot decide, or is a remote one.
    pub fn try_limit_now(&self, policy: &Policy, subject: impl Into<Subject>) -> Result<Decision, Error> {
        let none = Signals::new();
        let context = CallContext { waits: false, ..CallContext::of(true, &none) };
        let answer = self.decide(&[(policy, &subject.into(), Ask::cost(1))], context).try_ready();
        future::only(self, answer.unwrap_or_else(|_| Err(decide::cannot_wait())))
    }

    /// What [`limit`](RateLimiter::limit) would answer, without taking anything. Of a layer's callers: name them as
    /// [`remaining`](RateLimiter::remaining) says.
    ///
    /// ```
    /// # use tollgate::{LimitError, Policy, Quota, RateLimiter, HOUR};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), LimitError> {
    /// # static LOGIN: Policy = Policy::new("login", Quota::token_bucket(1, HOUR));
    /// let limiter = RateLimiter::default();
    /// limiter.check(&LOGIN, "ada@example.com").await?;
    /// limiter.limit(&LOGIN, "ada@example.com").await?;
    /// assert!(limiter.check(&LOGIN, "ada@example.com").await.is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If it would be denied, or the backend cannot decide.
    pub fn check(&self, policy: &Policy, subject: impl Into<Subject>) -> DecisionFuture {
        self.acquire(policy, subject).check()
    }

    /// [`check`](RateLimiter::check) that returns a denial as a [`Decision`]. Nothing is taken, so
    /// [`remaining`](Decision::remaining) and [`reset`](Decision::reset) are those of the limit as it stands.
    ///
    /// ```
    /// # use tollgate::{Policy, Quota, RateLimiter, HOUR};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::backend::Error> {
    /// # static LOGIN: Policy = Policy::new("login", Quota::token_bucket(5, HOUR));
    /// let limiter = RateLimiter::default();
    /// assert_eq!(limiter.try_check(&LOGIN, "ada@example.com").await?.remaining(), 5);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the backend cannot decide.
    pub fn try_check(&self, policy: &Policy, subject: impl Into<Subject>) -> DecisionFuture<Result<Decision, Error>> {
        self.try_acquire(policy, subject).check()
    }

    /// Begins a call with choices: a [cost](Acquire::cost), a [turn](Acquire::reserve), a charge [in
    /// hand](Acquire::hold). Fails if it is denied.
    ///
    /// ```
    /// # use tollgate::{LimitError, Policy, Quota, RateLimiter, SECOND};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), LimitError> {
    /// static MAIL: Policy = Policy::new("mail", Quota::token_bucket(10, SECOND).unlimited_reservations());
    ///
    /// let limiter = RateLimiter::default();
    /// limiter.acquire(&MAIL, "team").cost(10).await?;
    /// let turn = limiter.acquire(&MAIL, "team").cost(5).reserve().await?;
    /// assert!(turn.delay() > SECOND / 4);
    /// # Ok(())
    /// # }
    /// ```
    pub fn acquire<'a>(&'a self, policy: &'a Policy, subject: impl Into<Subject>) -> Acquire<'a> {
        Acquire::new(self, Charge::new(policy, subject), future::only_allowed)
    }

    /// [`acquire`](RateLimiter::acquire) that returns a denial as a [`Decision`].
    ///
    /// ```
    /// # use tollgate::{Policy, Quota, RateLimiter, MINUTE};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::backend::Error> {
    /// # static CHAT: Policy = Policy::new("chat", Quota::token_bucket(10, MINUTE));
    /// let limiter = RateLimiter::default();
    /// assert!(!limiter.try_acquire(&CHAT, "ada").cost(11).await?.is_allowed());
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_acquire<'a>(
        &'a self,
        policy: &'a Policy,
        subject: impl Into<Subject>,
    ) -> Acquire<'a, Result<Decision, Error>> {
        Acquire::new(self, Charge::new(policy, subject), future::only)
    }

    /// Takes every charge, or none of them if one does not fit; then it fails. No charges at all are allowed. On
    /// `RedisBackend`, at most 1,000 go into one call.
    ///
    /// ```
    /// # use tollgate::{Charge, Policy, Quota, RateLimiter, MINUTE};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::LimitError> {
    /// static USER: Policy = Policy::new("user", Quota::token_bucket(10, MINUTE));
    /// static GLOBAL: Policy = Policy::new("global", Quota::token_bucket(1, MINUTE));
    ///
    /// let limiter = RateLimiter::default();
    /// let both = || limiter.limit_all([Charge::new(&USER, 7), Charge::new(&GLOBAL, "all")]);
    /// both().await?;
    /// assert!(both().await.is_err());
    /// // The second call was refused by GLOBAL and cost the user nothing.
    /// assert_eq!(limiter.remaining(&USER, 7).await?, 9);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If one of them is denied, or the backend cannot decide. A charge that [reserves](Charge::reserve) a turn is an
    /// error, too: turns are for [`hold_all`](RateLimiter::hold_all).
    pub fn limit_all<'a>(
        &self,
        charges: impl IntoIterator<Item = Charge<'a>>,
    ) -> DecisionFuture<Result<Allowed<Decisions>, LimitError>> {
        self.take_now(charges).finish(self, future::all_allowed)
    }

    /// [`limit_all`](RateLimiter::limit_all) that returns a denial as [`Decisions`].
    ///
    /// # Errors
    /// If the backend cannot decide, or a charge reserves a turn.
    pub fn try_limit_all<'a>(
        &self,
        charges: impl IntoIterator<Item = Charge<'a>>,
    ) -> DecisionFuture<Result<Decisions, Error>> {
        self.take_now(charges)
    }

    /// What [`limit_all`](RateLimiter::limit_all), or [`hold_all`](RateLimiter::hold_all) of charges that reserve, would
    /// answer, without taking anything.
    ///
    /// # Errors
    /// If one of them would be denied, or the backend cannot decide.
    pub fn check_all<'a>(
        &self,
        charges: impl IntoIterator<Item = Charge<'a>>,
    ) -> DecisionFuture<Result<Allowed<Decisions>, LimitError>> {
        self.try_check_all(charges).finish(self, future::all_allowed)
    }

    /// [`check_all`](RateLimiter::check_all) that returns a denial as [`Decisions`].
    ///
    /// ```
    /// # use tollgate::{Charge, Policy, Quota, RateLimiter, MINUTE};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::backend::Error> {
    /// # static USER: Policy = Policy::new("user", Quota::token_bucket(10, MINUTE));
    /// # static GLOBAL: Policy = Policy::new("global", Quota::token_bucket(1, MINUTE));
    /// let limiter = RateLimiter::default();
    /// let all = [Charge::new(&USER, 7).cost(3), Charge::new(&GLOBAL, "all").cost(2)];
    /// assert!(!limiter.try_check_all(all).await?.is_allowed());
    /// assert_eq!(limiter.remaining(&USER, 7).await?, 10);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the backend cannot decide.
    pub fn try_check_all<'a>(
        &self,
        charges: impl IntoIterator<Item = Charge<'a>>,
    ) -> DecisionFuture<Result<Decisions, Error>> {
        let charges: ChargeList<'a> = charges.into_iter().collect();
        self.decide_charges(&charges, false, Duration::ZERO)
    }

    /// [`limit_all`](RateLimiter::limit_all), the charges in hand: to be kept, given back, or told their true cost
    /// afterwards.
    ///
    /// ```
    /// # use tollgate::{Charge, Policy, Quota, RateLimiter, MINUTE};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # static TOKENS: Policy = Policy::new("tokens", Quota::token_bucket(10_000, MINUTE));
    /// # static CALLS: Policy = Policy::new("calls", Quota::token_bucket(10, MINUTE));
    /// let limiter = RateLimiter::default();
    /// let work = limiter.hold_all([Charge::new(&TOKENS, 7).cost(1000), Charge::new(&CALLS, 7)]).await?;
    /// // ... it failed:
    /// work.cancel().await?;
    /// assert_eq!((limiter.remaining(&TOKENS, 7).await?, limiter.remaining(&CALLS, 7).await?), (10_000, 10));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If one of them is denied, the backend cannot decide, or a charge [reserves](Charge::reserve) a turn of a quota
    /// that has none ([`LimitError::NoReservations`]).
    pub fn hold_all<'a>(
        &self,
        charges: impl IntoIterator<Item = Charge<'a>>,
    ) -> DecisionFuture<Result<Reservation, LimitError>> {
        let charges: ChargeList<'a> = charges.into_iter().collect();
        self.reserve_all(&charges, Duration::ZERO, reservation::held)
    }

    /// Whole tokens that `subject` could spend at once now. If the backend is down and the policy's [failure
    /// mode](FailureMode) is not to deny: by the share, or as if nothing had been spent; a
    /// [`try_check`](RateLimiter::try_check) tells who decided.
    ///
    /// Of a layer's caller, `subject` is the same key **and the same tier**, best as the layer's extractor makes them, of a
    /// request ([`KeyExtractor::subject`](crate::key::KeyExtractor::subject)) or of a value (`key::client_ip().key(address)`,
    /// `key::bearer().key(token)`): without the tier it is the policy's own quota that is told of, and `"7"` is another key than
    /// `7`. `None` is the anonymous bucket. If nothing ever seems to be spent,
    /// the layer was not [given this limiter](crate::RateLimitLayer::limiter).
    ///
    /// ```
    /// # use tollgate::{Policy, Quota, RateLimiter, Subject, MINUTE};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::LimitError> {
    /// # static CHAT: Policy = Policy::new("chat", Quota::token_bucket(10_000, MINUTE));
    /// let limiter = RateLimiter::default();
    /// limiter.acquire(&CHAT, "ada").cost(9_999).await?;
    /// assert!(limiter.remaining(&CHAT, "ada").await? < 100);
    /// assert_eq!(limiter.remaining(&CHAT, "eve").await?, 10_000);
    ///
    /// let api = Policy::new("api", Quota::token_bucket(3, MINUTE)).tier("free", Quota::token_bucket(15, MINUTE));
    /// let ada = || Subject::new(7).tier("free");
    /// limiter.acquire(&api, ada()).cost(10).await?;
    /// assert_eq!(limiter.remaining(&api, ada()).await?, 5);
    /// assert_eq!(limiter.remaining(&api, 7).await?, 0); // of three
    ///
    /// // The caller that `key::client_ip()` counts, by its address: of IPv6 the first 64 bits.
    /// let client = tollgate::key::client_ip().key("2001:db8::7".parse().unwrap());
    /// assert_eq!(limiter.remaining(&CHAT, client).await?, 10_000);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the backend cannot tell.
    pub async fn remaining(&self, policy: &Policy, subject: impl Into<Subject>) -> Result<u64, Error> {
        let decision = self.try_acquire(policy, subject).cost(0).check().await?;
        Ok(decision.remaining())
    }

    /// The row behind a limit as it stands, with the quota that applies: from these anyone can tell what any later call
    /// would be answered, if nobody spends meanwhile. Of a caller who is blocked, or on a deny list, the row is not
    /// looked up, and told as fully spent. A layer's caller is named as [`remaining`](RateLimiter::remaining) says: the
    /// same key and the same tier.
    ///
    /// ```
    /// # use tollgate::{Policy, Quota, RateLimiter, MINUTE};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::LimitError> {
    /// # static CHAT: Policy = Policy::new("chat", Quota::token_bucket(10_000, MINUTE));
    /// let limiter = RateLimiter::default();
    /// limiter.acquire(&CHAT, "ada").cost(10_000).await?;
    /// let snapshot = limiter.snapshot(&CHAT, "ada").await?; // of a token: `key::bearer().key("sk_7f3a")`
    /// assert_eq!(snapshot.available(snapshot.now() + MINUTE / 4), 2_500);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the backend cannot tell.
    pub async fn snapshot(&self, policy: &Policy, subject: impl Into<Subject>) -> Result<Snapshot, Error> {
        let decision = self.try_acquire(policy, subject).cost(0).check().await?;
        Ok(Snapshot::of(&decision))
    }

    /// The present, by the backend's clock: what the instants of a [`Snapshot`] are compared with.
    ///
    /// ```
    /// # use tollgate::{Policy, Quota, RateLimiter, MINUTE};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::backend::Error> {
    /// static API: Policy = Policy::new("api", Quota::token_bucket(10, MINUTE));
    ///
    /// let limiter = RateLimiter::default();
    /// let snapshot = limiter.snapshot(&API, "ada").await?;
    /// assert_eq!(snapshot.available(limiter.now().await?), 10);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the backend cannot tell.
    pub async fn now(&self) -> Result<Micros, Error> {
        let row = RowId { policy: CLOCK_POLICY.name(), key: self.row_key(None) };
        let look = [Take::new(row, CLOCK_POLICY.quota(), Ask::cost(0))];
        let decided = match self.inner.backend.peek(&look).await {
            Ok(steps) => steps.first().map(|step| step.now),
            Err(error) => self.inner.failure.decide(&look, false, error)?.get(0).map(|decision| decision.step().now),
        };
        decided.ok_or_else(|| Error::new(ErrorKind::Protocol, "it did not say what time it is; this is a bug in it"))
    }

    /// Forgets what `subject` spent under `policy`: it has the whole limit again. Blocks stay. Returns whether a row was
    /// there: `false` if `subject` spent nothing, or is not the key of the caller that did. A row that was repaid may be there
    /// or not.
    ///
    /// Of a layer's caller, the extractor makes the key: `key::client_ip().key(address)`, `key::bearer().key(token)`.
    ///
    /// It is done when this is called, also if the future is dropped.
    ///
    /// ```
    /// # use tollgate::{Policy, Quota, RateLimiter, HOUR};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::LimitError> {
    /// # static LOGIN: Policy = Policy::new("login", Quota::token_bucket(1, HOUR));
    /// let limiter = RateLimiter::default();
    /// limiter.limit(&LOGIN, "ada@example.com").await?;
    /// assert!(limiter.reset(&LOGIN, "ada@example.com").await?); // the password was right
    /// limiter.limit(&LOGIN, "ada@example.com").await?;
    ///
    /// assert!(!limiter.reset(&LOGIN, "ada@example.org").await?); // another key: there was no such row
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the backend cannot.
    pub fn reset(&self, policy: &Policy, subject: impl Into<Subject>) -> BackendFuture<bool> {
        self.inner.reset(&[RowId { policy: policy.name(), key: self.row_key(subject.into().key()) }])
    }

    /// Takes charges that need not wait. A turn would be promised that no reservation holds.
    fn take_now<'a>(&self, charges: impl IntoIterator<Item = Charge<'a>>) -> DecisionFuture<Answer> {
        let charges: ChargeList<'a> = charges.into_iter().collect();
        match charges.iter().find(|charge| charge.reserves()) {
            Some(charge) => DecisionFuture::ready(Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "the charge of policy {:?} reserves a turn, and `limit_all` takes charges at once; call `hold_all`",
                    charge.policy.name()
                ),
            ))),
            None => self.decide_charges(&charges, true, Duration::ZERO),
        }
    }

    /// Takes charges in hand. A pause that is there already holds them for `patience` at most, and denies them if it lasts
    /// longer.
    fn reserve_all(
        &self,
        charges: &[Charge<'_>],
        patience: Duration,
        finish: Finish<Result<Reservation, LimitError>>,
    ) -> DecisionFuture<Result<Reservation, LimitError>> {
        let mut turns = charges.iter().filter(|charge| charge.reserves());
        if let Some(charge) = turns.find(|charge| !self.has_turns(charge)) {
            return DecisionFuture::ready(Err(LimitError::NoReservations(charge.policy.name().clone())));
        }
        self.decide_charges(charges, true, patience).finish(self, finish)
    }

    fn decide_charges(&self, charges: &[Charge<'_>], take: bool, patience: Duration) -> DecisionFuture<Answer> {
        // Who calls is one caller, whichever charge tells it.
        let none = Signals::new();
        let signals = charges.iter().find_map(|charge| charge.signals.as_deref()).unwrap_or(&none);
        let charges: SmallVec<[_; 4]> =
            charges.iter().map(|charge| (charge.policy, &charge.subject, charge.ask)).collect();
        self.decide(&charges, CallContext { patience, ..CallContext::of(take, signals) })
    }

    /// Whether the policy's quota allows reservations, as written or as set at run time. A quota that was set without
    /// them denies what does not fit: the program is right, and need not fail.
    fn has_turns(&self, charge: &Charge<'_>) -> bool {
        let tier = charge.subject.tier_name();
        charge.policy.quotas_for(tier).iter().any(Quota::reserves)
            || self.quota(charge.policy, charge.subject.clone()).reserves()
    }

    /// The digest of a key under this limiter's [secret](RateLimiterBuilder::secret); `None` = the anonymous key. It is
    /// what [`Decision::key`], logs and the rows of a backend ([`RowId`]) name the key by.
    ///
    /// ```
    /// use tollgate::{key::Secret, Key, MemoryBackend, RateLimiter};
    ///
    /// let limiter = || RateLimiter::builder(MemoryBackend::new()).secret(Secret::new([7; 16])).build();
    /// assert_eq!(limiter().digest(Some(&Key::from("ada"))), limiter().digest(Some(&Key::from("ada"))));
    /// assert_eq!(limiter().digest(None), limiter().digest(Some(&Key::anonymous())));
    /// ```
    pub fn digest(&self, key: Option<&Key>) -> Digest {
        self.row_key(key)
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

    /// Whether anybody wants to know more of callers than their keys.
    pub(crate) fn wants_signals(&self) -> bool {
        self.inner.guard.wants_signals()
    }
}

/// The charges of a call.
type ChargeList<'a> = SmallVec<[Charge<'a>; 1]>;

/// Nobody is charged under it: a look at its row tells the time.
static CLOCK_POLICY: Policy = Policy::new("tollgate/now", Quota::token_bucket(1, SECOND));

impl Default for RateLimiter {
    /// A limiter on a new [`MemoryBackend`].
    fn default() -> RateLimiter {
        RateLimiter::new(MemoryBackend::new())
    }
}
