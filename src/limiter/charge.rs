//! A single charge of a call.

use std::time::Duration;

use crate::algorithm::Ask;
use crate::policy::{Policy, Signals, Subject};

/// A number of tokens to spend under one policy for one subject.
/// [`RateLimiter::limit_all`](crate::RateLimiter::limit_all) makes several charges together.
///
/// ```
/// # use tollgate::{protection::Signals, Charge, Policy, Quota, RateLimiter, MINUTE, SECOND};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::LimitError> {
/// static TOKENS: Policy = Policy::new("tokens", Quota::token_bucket(1000, MINUTE).max_reserved(500));
/// static CALLS: Policy = Policy::new("calls", Quota::token_bucket(10, MINUTE).max_reserved(5));
///
/// let limiter = RateLimiter::default();
/// let caller = Signals::new().ip([192, 0, 2, 7].into()); // for deny lists and blocks
/// limiter.limit_all([Charge::new(&TOKENS, "ada").cost(700).signals(caller), Charge::new(&CALLS, "ada")]).await?;
/// let tokens = Charge::new(&TOKENS, "ada").cost(500).reserve(); // only 300 tokens are available
/// let reservation = limiter.hold_all([tokens, Charge::new(&CALLS, "ada").reserve_within(30 * SECOND)]).await?;
/// assert!(reservation.delay() > 10 * SECOND);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Charge<'a> {
    pub(super) policy: &'a Policy,
    pub(super) subject: Subject,
    pub(super) ask: Ask,
    pub(super) signals: Option<Box<Signals>>,
}

impl<'a> Charge<'a> {
    /// Creates a charge of one token under `policy` for `subject`.
    pub fn new(policy: &'a Policy, subject: impl Into<Subject>) -> Charge<'a> {
        Charge { policy, subject: subject.into(), ask: Ask::cost(1), signals: None }
    }

    /// Sets the number of tokens to spend, which is 1 by default. A charge above the quota's capacity is always denied,
    /// unless it reserves tokens. A charge of 0 is denied while the key has spent more than its capacity.
    #[must_use]
    pub fn cost(mut self, tokens: u64) -> Charge<'a> {
        self.ask = self.ask.for_cost(tokens);
        self
    }

    /// Reserves the tokens for when they become available, however far in the future that is. To make such a charge,
    /// use [`hold_all`](crate::RateLimiter::hold_all).
    #[must_use]
    pub fn reserve(mut self) -> Charge<'a> {
        self.ask = self.ask.reserve();
        self
    }

    /// Like [`reserve`](Charge::reserve), but the charge is denied unless the tokens are due within `wait` (rounded up
    /// to whole microseconds).
    #[must_use]
    pub fn reserve_within(mut self, wait: Duration) -> Charge<'a> {
        self.ask = self.ask.wait_up_to(wait);
        self
    }

    /// Sets the caller's signals for deny lists and blocks. A call uses the signals of the first charge that has any.
    #[must_use]
    pub fn signals(mut self, signals: Signals) -> Charge<'a> {
        self.signals = Some(Box::new(signals));
        self
    }

    pub(super) fn reserves(&self) -> bool {
        self.ask.max_wait().is_some()
    }

    #[cfg(feature = "wait")]
    pub(super) fn without_reservation(mut self) -> Charge<'a> {
        self.ask = Ask::cost(self.ask.tokens());
        self
    }
}
