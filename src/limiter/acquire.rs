//! A call with options.

use std::borrow::Cow;
use std::future::{Future, IntoFuture};
use std::net::IpAddr;
use std::time::Duration;

#[cfg(feature = "wait")]
use super::Receipt;
use super::future::Finish;
use super::{CallContext, Charge, DecisionFuture, LimitError, RateLimiter, Reservation};
use crate::policy::{Allowed, Signals};

/// A call with options. It is made when it is awaited, as in `limiter.acquire(&policy, key).cost(3).await`.
///
/// ```
/// # use tollgate::{Policy, Quota, RateLimiter, HOUR, MINUTE};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// static TOKENS: Policy = Policy::new("tokens", Quota::token_bucket(1000, HOUR).max_reserved(500));
///
/// let limiter = RateLimiter::default();
/// let tokens = || limiter.acquire(&TOKENS, "ada").cost(800);
/// tokens().check().await?; // spends nothing
/// assert_eq!(tokens().await?.remaining(), 200);
///
/// // Reserve tokens that are not available yet.
/// assert!(tokens().cost(400).reserve_within(MINUTE).await.is_err());
/// assert!(tokens().cost(400).reserve().await?.delay() > 11 * MINUTE);
///
/// drop(limiter.acquire(&TOKENS, "eve").cost(800).hold().await?); // refunds the charge
/// assert_eq!(limiter.remaining(&TOKENS, "eve").await?, 1000);
///
/// let call = limiter.try_acquire(&TOKENS, "eve").ip([192, 0, 2, 7].into()).user_agent("curl/8.5.0");
/// assert!(call.label("asn", "64496").country("KP").await?.is_allowed()); // signals for deny lists and blocks
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "a call does nothing until it is awaited"]
pub struct Acquire<'a, T = Result<Allowed, LimitError>> {
    limiter: &'a RateLimiter,
    charge: Charge<'a>,
    finish: Finish<T>,
}

impl<'a, T> Acquire<'a, T> {
    pub(super) fn new(limiter: &'a RateLimiter, charge: Charge<'a>, finish: Finish<T>) -> Acquire<'a, T> {
        Acquire { limiter, charge, finish }
    }

    /// Sets the number of tokens to spend, which is 1 by default. See [`Charge::cost`] for special cases.
    pub fn cost(mut self, tokens: u64) -> Acquire<'a, T> {
        self.charge = self.charge.cost(tokens);
        self
    }

    /// Sets the caller's address, a [signal](crate::protection::Signals) for deny lists and blocks.
    pub fn ip(self, address: IpAddr) -> Acquire<'a, T> {
        self.with_signals(|signals| signals.ip(address))
    }

    /// Sets the caller's user agent for deny lists and blocks.
    pub fn user_agent(self, text: impl Into<String>) -> Acquire<'a, T> {
        self.with_signals(|signals| signals.user_agent(text))
    }

    /// Sets the caller's two-letter country code (ISO 3166-1) for deny lists and blocks.
    pub fn country(self, code: impl Into<String>) -> Acquire<'a, T> {
        self.with_signals(|signals| signals.country(code))
    }

    /// Adds a label that describes the caller, for deny lists and blocks.
    pub fn label(self, name: impl Into<Cow<'static, str>>, value: impl Into<String>) -> Acquire<'a, T> {
        self.with_signals(|signals| signals.label(name, value))
    }

    fn decide(self, take: bool) -> DecisionFuture<T> {
        let Charge { policy, subject, ask, signals } = self.charge;
        let none = Signals::new();
        let context = CallContext::of(take, signals.as_deref().unwrap_or(&none));
        self.limiter.decide(&[(policy, &subject, ask)], context).finish(self.limiter, self.finish)
    }

    fn with_signals(mut self, more: impl FnOnce(Signals) -> Signals) -> Acquire<'a, T> {
        let signals = self.charge.signals.take().map(|signals| *signals).unwrap_or_default();
        self.charge = self.charge.signals(more(signals));
        self
    }

    /// Makes the same decision as awaiting the call, but spends nothing. The result describes the current state.
    ///
    /// # Errors
    /// Fails if the backend cannot decide. A call from [`acquire`](RateLimiter::acquire) also fails if it is denied.
    pub fn check(self) -> DecisionFuture<T> {
        self.decide(false)
    }
}

/// These methods return a denial as an error. They are not available after [`try_acquire`](RateLimiter::try_acquire).
impl Acquire<'_> {
    /// Reserves the tokens for when they become available, however far in the future that is. The caller must wait
    /// until the [delay](Reservation::delay) has passed. Dropping the [`Reservation`] keeps the charge.
    ///
    /// # Errors
    /// Fails if the call is denied, or if the backend cannot decide. Fails with [`LimitError::NoReservations`] if the
    /// quota allows [no reservations](crate::Quota::max_reserved).
    pub fn reserve(self) -> impl Future<Output = Result<Reservation, LimitError>> + Send + use<> {
        let held = self.limiter.hold_all([self.charge.reserve()]);
        async { held.await.map(Reservation::kept) }
    }

    /// Like [`reserve`](Acquire::reserve), but denies the call unless the tokens are due within `wait`.
    ///
    /// # Errors
    /// Fails in the same cases as [`reserve`](Acquire::reserve).
    pub fn reserve_within(
        self,
        wait: Duration,
    ) -> impl Future<Output = Result<Reservation, LimitError>> + Send + use<> {
        let held = self.limiter.hold_all([self.charge.reserve_within(wait)]);
        async { held.await.map(Reservation::kept) }
    }

    /// Makes a charge that can be settled or given back later. Dropping the [`Reservation`] gives the charge back.
    ///
    /// Do not use this method for attempts that must count, such as logins, because a client that disconnects would get
    /// its attempt back. Use [`limit`](RateLimiter::limit), or call [`into_receipt`](Reservation::into_receipt) before
    /// starting the work.
    ///
    /// # Errors
    /// Fails if the call is denied, or if the backend cannot decide.
    pub fn hold(self) -> DecisionFuture<Result<Reservation, LimitError>> {
        self.limiter.hold_all([self.charge])
    }

    /// Makes the charge and waits until the tokens are due. Denies the call if they are not due within `wait`.
    ///
    /// ```
    /// # use tollgate::{LimitError, Policy, Quota, RateLimiter, SECOND};
    /// static CALLS: Policy = Policy::new("calls", Quota::token_bucket(100, SECOND).capacity(1).max_reserved(50));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LimitError> {
    /// # let limiter = RateLimiter::default();
    /// for _ in 0..5 {
    ///     limiter.acquire(&CALLS, "their API").wait_up_to(SECOND).await?; // one call every 10 ms
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// Dropping the future during the wait gives the charge back. Dropping the returned receipt keeps the charge. While
    /// calls are waiting, other calls for the same key [get nothing back](Receipt#what-can-be-given-back) when they
    /// settle their charges.
    ///
    /// To allow waits of up to `w`, set [`max_reserved`](crate::Quota::max_reserved) to at least the number of tokens
    /// refilled during `w` or the cost of the most expensive call, whichever is larger. A call that would have to wait
    /// is denied if [`max_waiting`](super::RateLimiterBuilder::max_waiting) calls are already waiting.
    ///
    /// # Errors
    /// Fails in the same cases as [`reserve`](Acquire::reserve).
    ///
    /// # Panics
    /// Panics if the call has to wait outside of a tokio runtime, unless the backend's [clock](crate::clock::Clock)
    /// provides timers.
    #[cfg(feature = "wait")]
    pub fn wait_up_to(self, wait: Duration) -> impl Future<Output = Result<Receipt, LimitError>> + Send + use<> {
        let (limiter, charge) = (self.limiter, self.charge.reserve_within(wait));
        let slot = limiter.wait_slot();
        let wait = if slot.is_some() { wait } else { Duration::ZERO };
        // Without a slot, the call must not wait, but it must still fail if the quota does not allow reservations.
        let charge =
            if slot.is_some() || !limiter.allows_reservations(&charge) { charge } else { charge.without_reservation() };
        let (answer, last) = (limiter.reserve_all(&[charge], wait), limiter.latest(wait));
        async move {
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
        self.decide(true)
    }
}
