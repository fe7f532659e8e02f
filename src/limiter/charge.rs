//! One line of what is asked.

use std::time::Duration;

use crate::algorithm::Ask;
use crate::policy::{Policy, Signals, Subject};

/// So many tokens of one policy for one subject. [`RateLimiter::limit_all`](crate::RateLimiter::limit_all) takes
/// several of these together.
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
///
/// // More than there is at once, so the turn comes later.
/// let tokens = Charge::new(&TOKENS, "ada").cost(500).reserve();
/// let turn = limiter.hold_all([tokens, Charge::new(&CALLS, "ada").reserve_within(30 * SECOND)]).await?;
/// assert!(turn.delay() > 10 * SECOND);
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
    /// One token of `policy` for `subject`.
    pub fn new(policy: &'a Policy, subject: impl Into<Subject>) -> Charge<'a> {
        Charge { policy, subject: subject.into(), ask: Ask::cost(1), signals: None }
    }

    /// How many tokens: any number; more than the quota ever has is denied for good. Defaults to 1. With 0 nothing is
    /// spent; it is denied while the key is in debt.
    #[must_use]
    pub fn cost(mut self, tokens: u64) -> Charge<'a> {
        self.ask = self.ask.for_cost(tokens);
        self
    }

    /// Reserves a turn, however far away, for [`hold_all`](crate::RateLimiter::hold_all), which fails if the quota allows
    /// no reservations. Calls that charge at once, such as [`limit_all`](crate::RateLimiter::limit_all), fail on it.
    #[must_use]
    pub fn reserve(mut self) -> Charge<'a> {
        self.ask = self.ask.reserve();
        self
    }

    /// The same with a turn that is at most `wait` away (rounded up to whole microseconds).
    #[must_use]
    pub fn reserve_within(mut self, wait: Duration) -> Charge<'a> {
        self.ask = self.ask.wait_up_to(wait);
        self
    }

    /// What is known of the caller besides its key, for [deny lists](crate::protection::DenyList) and [blocks](crate::protection::AutoBlock).
    /// Of several charges in one call, the first that says something speaks for all.
    #[must_use]
    pub fn signals(mut self, signals: Signals) -> Charge<'a> {
        self.signals = Some(Box::new(signals));
        self
    }

    /// Whether it would wait for a turn.
    pub(super) fn reserves(&self) -> bool {
        self.ask.max_wait().is_some()
    }

    /// Without a reservation.
    #[cfg(feature = "wait")]
    pub(super) fn without_reservation(mut self) -> Charge<'a> {
        self.ask = Ask::cost(self.ask.tokens());
        self
    }
}
