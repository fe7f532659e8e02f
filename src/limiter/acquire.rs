//! A call with choices.

use std::borrow::Cow;
#[cfg(feature = "wait")]
use std::future::Future;
use std::future::IntoFuture;
use std::net::IpAddr;
use std::time::Duration;

#[cfg(feature = "wait")]
use super::Receipt;
use super::future::Finish;
use super::reservation::{held, reserved};
use super::{CallContext, Charge, DecisionFuture, LimitError, RateLimiter, Reservation};
use crate::policy::{Allowed, Signals};

/// A call to a limiter in the making: `limiter.acquire(&policy, key).cost(3).await`.
///
/// `T` is what awaiting returns: a `Result<Allowed, LimitError>` after [`acquire`](RateLimiter::acquire), which fails on a
/// denial, and a `Result<Decision, Error>` after [`try_acquire`](RateLimiter::try_acquire).
///
/// ```
/// # use tollgate::{protection::{DenyList, DenyRule}, MemoryBackend, Policy, Quota, RateLimiter, Reason, MINUTE, SECOND};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// static TOKENS: Policy = Policy::new("tokens", Quota::token_bucket(1000, MINUTE).max_reserved(500));
///
/// let list = DenyList::from_iter([DenyRule::country("KP")?]);
/// let limiter = RateLimiter::builder(MemoryBackend::new()).deny_list(&list).build();
///
/// // Only asked, and then taken; awaiting is sending.
/// let tokens = || limiter.acquire(&TOKENS, "ada").cost(800);
/// tokens().check().await?;
/// assert_eq!(tokens().send().await?.remaining(), 200);
///
/// // A turn, if it is not too far away.
/// assert!(tokens().cost(400).reserve_within(SECOND).await.is_err());
/// let turn = tokens().cost(400).reserve().await?;
/// assert!(turn.delay() > 11 * SECOND);
/// turn.into_receipt();
///
/// // In hand: given back if it is dropped.
/// let usage = limiter.acquire(&TOKENS, "eve").cost(800).hold().await?;
/// drop(usage);
/// assert_eq!(limiter.remaining(&TOKENS, "eve").await?, 1000);
///
/// // What else is known of the caller.
/// let call = limiter.try_acquire(&TOKENS, "eve").ip([192, 0, 2, 7].into()).user_agent("curl/8.5.0");
/// assert_eq!(call.label("asn", "64496").country("KP").await?.reason(), Reason::DenyList);
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "nothing is asked until it is awaited"]
pub struct Acquire<'a, T = Result<Allowed, LimitError>> {
    limiter: &'a RateLimiter,
    charge: Charge<'a>,
    finish: Finish<T>,
}

impl<'a, T> Acquire<'a, T> {
    pub(super) fn new(limiter: &'a RateLimiter, charge: Charge<'a>, finish: Finish<T>) -> Acquire<'a, T> {
        Acquire { limiter, charge, finish }
    }

    /// How many tokens: any number; more than the quota ever has is denied for good. Defaults to 1. With 0 nothing is
    /// spent; it is denied while the key is in debt.
    pub fn cost(mut self, tokens: u64) -> Acquire<'a, T> {
        self.charge = self.charge.cost(tokens);
        self
    }

    /// The caller's address, for [deny lists](crate::protection::DenyList) and [blocks](crate::protection::AutoBlock).
    pub fn ip(self, address: IpAddr) -> Acquire<'a, T> {
        self.tell(|signals| signals.ip(address))
    }

    /// The caller's user agent, for deny lists and blocks.
    pub fn user_agent(self, text: impl Into<String>) -> Acquire<'a, T> {
        self.tell(|signals| signals.user_agent(text))
    }

    /// The caller's country, two letters (ISO 3166-1), for deny lists and blocks.
    pub fn country(self, code: impl Into<String>) -> Acquire<'a, T> {
        self.tell(|signals| signals.country(code))
    }

    /// Anything else that is known of the caller, by name and value, for deny lists and blocks.
    pub fn label(self, name: impl Into<Cow<'static, str>>, value: impl Into<String>) -> Acquire<'a, T> {
        self.tell(|signals| signals.label(name, value))
    }

    fn decide(self, take: bool) -> DecisionFuture<T> {
        let Charge { policy, subject, ask, signals } = self.charge;
        let none = Signals::new();
        let context = CallContext::of(take, signals.as_deref().unwrap_or(&none));
        self.limiter.decide(&[(policy, &subject, ask)], context).finish(self.limiter, self.finish)
    }

    fn tell(mut self, more: impl FnOnce(Signals) -> Signals) -> Acquire<'a, T> {
        let signals = self.charge.signals.take().map(|signals| *signals).unwrap_or_default();
        self.charge = self.charge.signals(more(signals));
        self
    }

    /// Asks without taking anything.
    ///
    /// # Errors
    /// If the backend cannot decide; and if it is denied, unless the call began with
    /// [`try_acquire`](RateLimiter::try_acquire).
    pub fn check(self) -> DecisionFuture<T> {
        self.decide(false)
    }

    /// Asks, and takes. Awaiting does the same.
    ///
    /// # Errors
    /// As [`check`](Acquire::check).
    pub fn send(self) -> DecisionFuture<T> {
        self.decide(true)
    }
}

/// What fails on a denial in any case is not there after [`try_acquire`](RateLimiter::try_acquire).
impl Acquire<'_> {
    /// Asks, and takes a turn, however far away it is: for callers that do their own waiting. The quota
    /// needs [`max_reserved`](crate::Quota::max_reserved) or
    /// [`unlimited_reservations`](crate::Quota::unlimited_reservations).
    ///
    /// The turn stays charged if the [`Reservation`](super::Reservation) is dropped;
    /// [`cancel`](super::Reservation::cancel) gives it back.
    #[cfg_attr(feature = "wait", doc = "[`wait`](super::Reservation::wait)")]
    #[cfg_attr(not(feature = "wait"), doc = "`wait` (feature `wait`)")]
    /// waits for it, [`delay`](super::Reservation::delay) returns how far away it is.
    ///
    /// # Errors
    /// If it is denied, the backend cannot decide, or the quota has no turns ([`LimitError::NoReservations`]).
    pub fn reserve(self) -> DecisionFuture<Result<Reservation, LimitError>> {
        self.limiter.reserve_all(&[self.charge.reserve()], Duration::ZERO, reserved)
    }

    /// The same with a turn that is at most `wait` away (rounded up to whole microseconds).
    ///
    /// # Errors
    /// As [`reserve`](Acquire::reserve).
    pub fn reserve_within(self, wait: Duration) -> DecisionFuture<Result<Reservation, LimitError>> {
        self.limiter.reserve_all(&[self.charge.reserve_within(wait)], Duration::ZERO, reserved)
    }

    /// Asks, and takes with the charge in hand: it is given back if the [`Reservation`](super::Reservation) is dropped,
    /// and its true cost can be told afterwards.
    ///
    /// Not for attempts that are to count whatever comes of them, such as logins: a client that leaves takes its
    /// attempt back. There, [`limit`](RateLimiter::limit), or [`into_receipt`](super::Reservation::into_receipt) at once.
    ///
    /// # Errors
    /// If it is denied, or the backend cannot decide.
    pub fn hold(self) -> DecisionFuture<Result<Reservation, LimitError>> {
        self.limiter.reserve_all(&[self.charge], Duration::ZERO, held)
    }

    /// Asks, takes, and waits for the turn if it is at most `wait` away. The quota needs
    /// [`max_reserved`](crate::Quota::max_reserved) or
    /// [`unlimited_reservations`](crate::Quota::unlimited_reservations): without turns to wait for, every call fails, also
    /// one whose tokens are there at once, so that the first call shows the mistake.
    ///
    /// Dropped before its turn, it gives the turn back. What it returns can tell the true cost afterwards, or be
    /// dropped.
    ///
    /// ```
    /// use tollgate::{LimitError, Policy, Quota, RateLimiter, HOUR, SECOND};
    ///
    /// static CALLS: Policy = Policy::new("calls", Quota::token_bucket(100, SECOND).capacity(1).max_reserved(50));
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::LimitError> {
    /// let limiter = RateLimiter::default();
    /// for _ in 0..5 {
    ///     limiter.acquire(&CALLS, "their API").wait_up_to(SECOND).await?;
    ///     // 10 ms apart
    /// }
    ///
    /// static PLAIN: Policy = Policy::new("plain", Quota::token_bucket(1, HOUR));
    /// let error = limiter.acquire(&PLAIN, "their API").wait_up_to(2 * HOUR).await.unwrap_err();
    /// assert!(matches!(error, LimitError::NoReservations(_)));
    /// # Ok(()) }
    /// ```
    ///
    /// A key that is [paused](RateLimiter::pause) is waited for as well, if the pause ends within `wait`.
    ///
    /// It takes one of the limiter's places to wait ([`max_waiting`](super::RateLimiterBuilder::max_waiting)); without
    /// one it asks without waiting.
    ///
    /// # Errors
    /// As [`reserve`](Acquire::reserve).
    ///
    /// # Panics
    /// Outside of a tokio runtime, if it has to wait, unless the backend's [clock](crate::clock::Clock) has its own way to.
    #[cfg(feature = "wait")]
    pub fn wait_up_to(self, wait: Duration) -> impl Future<Output = Result<Receipt, LimitError>> + Send + use<> {
        let (limiter, charge) = (self.limiter, self.charge.reserve_within(wait));
        let slot = limiter.wait_slot();
        let wait = if slot.is_some() { wait } else { Duration::ZERO };
        // Without a place the call does not wait; without turns it fails either way.
        let charge =
            if slot.is_some() || !limiter.allows_reservations(&charge) { charge } else { charge.without_reservation() };
        let (answer, last) = (limiter.reserve_all(&[charge], wait, held), limiter.latest(wait));
        async move {
            // Free again as soon as there is nothing to wait for.
            let _slot = slot;
            answer.await?.until(last).wait().await
        }
    }
}

impl<T> Clone for Acquire<'_, T> {
    fn clone(&self) -> Self {
        Acquire { charge: self.charge.clone(), ..*self }
    }
}

impl<T> IntoFuture for Acquire<'_, T> {
    type Output = T;
    type IntoFuture = DecisionFuture<T>;

    fn into_future(self) -> DecisionFuture<T> {
        self.send()
    }
}
