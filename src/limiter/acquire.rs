//! A call with choices.

use std::borrow::Cow;
use std::future::IntoFuture;
use std::net::IpAddr;
use std::time::Duration;

#[cfg(feature = "wait")]
use super::WaitFuture;
use super::{Charge, Circumstances, DecisionFuture, HoldFuture, RateLimiter};
use crate::policy::Signals;

/// A call to a limiter in the making: `limiter.acquire(&policy, key).cost(3).await`.
///
/// ```
/// # use tollgate::{DenyList, DenyRule, MemoryBackend, Policy, Quota, RateLimiter, Reason, MINUTE, SECOND};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// static TOKENS: Policy = Policy::new("tokens", Quota::token_bucket(1000, MINUTE).max_reserved(500));
///
/// let list = DenyList::from_iter([DenyRule::country("KP")?]);
/// let limiter = RateLimiter::builder(MemoryBackend::new()).deny_list(&list).build();
///
/// // Only asked, and then taken; awaiting is sending.
/// let tokens = || limiter.acquire(&TOKENS, "ada").cost(800);
/// assert!(tokens().check().await?.is_allowed());
/// assert_eq!(tokens().send().await?.remaining(), 200);
///
/// // A turn, if it is not too far away.
/// assert!(!tokens().cost(400).reserve_within(SECOND).await?.is_allowed());
/// assert!(tokens().cost(400).reserve().await?.delay() > 11 * SECOND);
///
/// // In hand: given back if it is dropped.
/// let usage = limiter.acquire(&TOKENS, "eve").cost(800).hold().await?;
/// drop(usage);
/// assert_eq!(limiter.remaining(&TOKENS, "eve").await?, 1000);
///
/// // What else is known of the caller.
/// let told = tokens().ip([192, 0, 2, 7].into()).user_agent("curl/8.5.0").label("asn", "64496").country("KP");
/// assert_eq!(told.await?.reason(), Reason::DenyList);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is asked until it is awaited"]
pub struct Acquire<'a> {
    limiter: &'a RateLimiter,
    charge: Charge<'a>,
}

impl<'a> Acquire<'a> {
    pub(super) fn new(limiter: &'a RateLimiter, charge: Charge<'a>) -> Acquire<'a> {
        Acquire { limiter, charge }
    }

    /// How many tokens: any number; more than the quota ever has is denied for good. Defaults to 1. With 0 nothing is
    /// spent; it is denied while the key is in debt.
    pub fn cost(mut self, tokens: u64) -> Acquire<'a> {
        self.charge = self.charge.cost(tokens);
        self
    }

    /// Reserves a turn, however far away, where the quota allows reservations. The caller then waits for
    /// [`Decision::delay`](crate::Decision::delay) by itself, or [holds](Acquire::hold) it.
    pub fn reserve(mut self) -> Acquire<'a> {
        self.charge = self.charge.reserve();
        self
    }

    /// Reserves a turn that is at most `wait` away (rounded up to whole microseconds), where the quota allows
    /// reservations; else this changes nothing.
    pub fn reserve_within(mut self, wait: Duration) -> Acquire<'a> {
        self.charge = self.charge.reserve_within(wait);
        self
    }

    /// The caller's address, for [deny lists](crate::DenyList) and [blocks](crate::AutoBlock).
    pub fn ip(self, address: IpAddr) -> Acquire<'a> {
        self.tell(|signals| signals.ip(address))
    }

    /// The caller's user agent, for deny lists and blocks.
    pub fn user_agent(self, text: impl Into<String>) -> Acquire<'a> {
        self.tell(|signals| signals.user_agent(text))
    }

    /// The caller's country, two letters (ISO 3166-1), for deny lists and blocks.
    pub fn country(self, code: impl Into<String>) -> Acquire<'a> {
        self.tell(|signals| signals.country(code))
    }

    /// Anything else that is known of the caller, by name and value, for deny lists and blocks.
    pub fn label(self, name: impl Into<Cow<'static, str>>, value: impl Into<String>) -> Acquire<'a> {
        self.tell(|signals| signals.label(name, value))
    }

    fn decide(self, take: bool) -> DecisionFuture {
        let Charge { policy, subject, ask, signals } = self.charge;
        let none = Signals::new();
        let around = Circumstances { take, enforced: true, waits: true, signals: signals.as_deref().unwrap_or(&none) };
        DecisionFuture(self.limiter.decide(&[(policy, &subject, ask)], around))
    }

    fn tell(mut self, more: impl FnOnce(Signals) -> Signals) -> Acquire<'a> {
        let signals = self.charge.signals.take().map(|signals| *signals).unwrap_or_default();
        self.charge = self.charge.signals(more(signals));
        self
    }

    /// Asks without taking anything.
    ///
    /// # Errors
    /// If the backend cannot decide.
    pub fn check(self) -> DecisionFuture {
        self.decide(false)
    }

    /// Asks, and takes with the charge in hand: it is given back if the [`Reservation`](super::Reservation) is dropped,
    /// and its true cost can be told afterwards.
    ///
    /// Not for attempts that are to count whatever comes of them, such as logins: a client that leaves takes its
    /// attempt back. There, [`limit`](RateLimiter::limit), or [`keep`](super::Reservation::keep) at once.
    ///
    /// # Errors
    /// If it is denied, or the backend cannot decide.
    pub fn hold(self) -> HoldFuture {
        self.limiter.hold_all([self.charge])
    }

    /// Asks, takes, and waits for the turn if it is at most `wait` away. Only a quota with
    /// [`max_reserved`](crate::Quota::max_reserved) or
    /// [`unlimited_reservations`](crate::Quota::unlimited_reservations) has turns to wait for: under any other, what
    /// does not fit at once is denied at once.
    ///
    /// Dropped before its turn, it gives the turn back. What it returns can tell the true cost afterwards, or be
    /// dropped.
    ///
    /// ```
    /// use tollgate::{Policy, Quota, RateLimiter, HOUR, SECOND};
    ///
    /// static CALLS: Policy = Policy::new("calls", Quota::token_bucket(100, SECOND).capacity(1).max_reserved(50));
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::LimitError> {
    /// let limiter = RateLimiter::default();
    /// for _ in 0..5 {
    ///     limiter.acquire(&CALLS, "their API").wait_up_to(SECOND).await?;
    ///     // 10 ms apart
    /// }
    ///
    /// static PLAIN: Policy = Policy::new("plain", Quota::token_bucket(1, HOUR));
    /// assert!(limiter.acquire(&PLAIN, "their API").wait_up_to(SECOND).await.is_ok());
    /// assert!(limiter.acquire(&PLAIN, "their API").wait_up_to(2 * HOUR).await.is_err()); // it has no turns
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// It takes one of the limiter's places to wait ([`max_waiting`](super::RateLimiterBuilder::max_waiting)); without
    /// one it asks without waiting.
    ///
    /// # Errors
    /// If it is denied, or the backend cannot decide.
    ///
    /// # Panics
    /// Outside of a tokio runtime, if it has to wait, unless the backend's [clock](crate::Clock) has its own way to.
    #[cfg(feature = "wait")]
    pub fn wait_up_to(mut self, wait: Duration) -> WaitFuture {
        let place = self.limiter.place();
        self.charge = if place.is_some() { self.charge.reserve_within(wait) } else { self.charge.at_once() };
        WaitFuture::new(self.hold(), place)
    }

    /// Asks, and takes. Awaiting does the same.
    ///
    /// # Errors
    /// If the backend cannot decide.
    pub fn send(self) -> DecisionFuture {
        self.decide(true)
    }
}

impl IntoFuture for Acquire<'_> {
    type Output = <DecisionFuture as std::future::Future>::Output;
    type IntoFuture = DecisionFuture;

    fn into_future(self) -> DecisionFuture {
        self.send()
    }
}
