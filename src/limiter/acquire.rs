//! A call with choices.

use std::future::IntoFuture;
use std::time::Duration;

use super::{Charge, DecisionFuture, RateLimiter};

/// A call to a limiter in the making: `limiter.acquire(&policy, key).cost(3).await`.
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

    /// How many tokens. Defaults to 1.
    pub fn cost(mut self, tokens: u64) -> Acquire<'a> {
        self.charge = self.charge.cost(tokens);
        self
    }

    /// Reserves a turn, however far away, where the quota allows reservations. The caller then waits for
    /// [`Decision::delay`](crate::Decision::delay) by itself.
    pub fn reserve(mut self) -> Acquire<'a> {
        self.charge = self.charge.reserve();
        self
    }

    /// Reserves a turn that is at most `wait` away, where the quota allows reservations.
    pub fn reserve_within(mut self, wait: Duration) -> Acquire<'a> {
        self.charge = self.charge.reserve_within(wait);
        self
    }

    /// Asks without taking anything.
    ///
    /// # Errors
    /// If the backend cannot decide.
    pub fn check(self) -> DecisionFuture {
        self.limiter.decide_one(self.charge.policy(), self.charge.subject(), self.charge.ask(), false)
    }

    /// Asks, and takes. Awaiting does the same.
    ///
    /// # Errors
    /// If the backend cannot decide.
    pub fn send(self) -> DecisionFuture {
        self.limiter.decide_one(self.charge.policy(), self.charge.subject(), self.charge.ask(), true)
    }
}

impl IntoFuture for Acquire<'_> {
    type Output = <DecisionFuture as std::future::Future>::Output;
    type IntoFuture = DecisionFuture;

    fn into_future(self) -> DecisionFuture {
        self.send()
    }
}
