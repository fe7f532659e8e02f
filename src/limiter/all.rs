//! Calls with several charges.

use std::time::Duration;

use smallvec::SmallVec;

use super::future::{self, Answer};
use super::{CallContext, Charge, DecisionFuture, LimitError, RateLimiter, Reservation, reservation};
use crate::algorithm::Quota;
use crate::backend::{Error, ErrorKind};
use crate::policy::{Allowed, Decisions, Signals};

pub(super) type ChargeList<'a> = SmallVec<[Charge<'a>; 1]>;

impl RateLimiter {
    /// Makes all charges. If one charge is denied, none of them is made, and an error is returned. An empty list of
    /// charges is allowed. `RedisBackend` accepts at most 1,000 charges per call.
    ///
    /// ```
    /// # use tollgate::{Charge, Policy, Quota, RateLimiter, MINUTE};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::LimitError> {
    /// static USER: Policy = Policy::new("user", Quota::token_bucket(10, MINUTE));
    /// static GLOBAL: Policy = Policy::new("global", Quota::token_bucket(1, MINUTE));
    ///
    /// let limiter = RateLimiter::default();
    /// let both = || [Charge::new(&USER, 7), Charge::new(&GLOBAL, "all")];
    /// assert!(!limiter.try_check_all(both().map(|charge| charge.cost(2))).await?.is_allowed());
    /// limiter.limit_all(both()).await?;
    /// assert!(limiter.limit_all(both()).await.is_err());
    /// // GLOBAL denied the second call, so USER was not charged either.
    /// assert_eq!(limiter.remaining(&USER, 7).await?, 9);
    ///
    /// let work = limiter.hold_all([Charge::new(&USER, 8), Charge::new(&USER, 9).cost(5)]).await?;
    /// work.cancel().await?; // gives both charges back
    /// assert_eq!((limiter.remaining(&USER, 8).await?, limiter.remaining(&USER, 9).await?), (10, 10));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Fails if a charge is denied, if the backend cannot decide, or if a charge [reserves](Charge::reserve) tokens.
    /// Use [`hold_all`](RateLimiter::hold_all) to reserve tokens.
    pub fn limit_all<'a>(
        &self,
        charges: impl IntoIterator<Item = Charge<'a>>,
    ) -> DecisionFuture<Result<Allowed<Decisions>, LimitError>> {
        self.take_now(charges).finish(self, future::all_allowed)
    }

    /// Like [`limit_all`](RateLimiter::limit_all), but returns a denial as [`Decisions`].
    ///
    /// # Errors
    /// Fails if the backend cannot decide, or if a charge reserves tokens.
    pub fn try_limit_all<'a>(
        &self,
        charges: impl IntoIterator<Item = Charge<'a>>,
    ) -> DecisionFuture<Result<Decisions, Error>> {
        self.take_now(charges)
    }

    /// Like [`limit_all`](RateLimiter::limit_all), but the charges can be given back or settled.
    ///
    /// # Errors
    /// Fails if a charge is denied, or if the backend cannot decide. Fails with [`LimitError::NoReservations`] if a
    /// charge [reserves](Charge::reserve) tokens under a quota that allows no reservations.
    pub fn hold_all<'a>(
        &self,
        charges: impl IntoIterator<Item = Charge<'a>>,
    ) -> DecisionFuture<Result<Reservation, LimitError>> {
        let charges: ChargeList<'a> = charges.into_iter().collect();
        self.reserve_all(&charges, Duration::ZERO)
    }

    /// Makes charges that must not reserve tokens, because the caller gets no [`Reservation`].
    fn take_now<'a>(&self, charges: impl IntoIterator<Item = Charge<'a>>) -> DecisionFuture<Answer> {
        let charges: ChargeList<'a> = charges.into_iter().collect();
        match charges.iter().find(|charge| charge.reserves()) {
            Some(charge) => DecisionFuture::ready(Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "the charge of policy {:?} asks for a reservation, which `limit_all` cannot return; call `hold_all`",
                    charge.policy.name()
                ),
            ))),
            None => self.decide_charges(&charges, true, Duration::ZERO),
        }
    }

    /// Makes charges that can be given back. If a row is paused, the call waits up to `patience` for the end of the
    /// pause, and is denied if the pause lasts longer.
    pub(super) fn reserve_all(
        &self,
        charges: &[Charge<'_>],
        patience: Duration,
    ) -> DecisionFuture<Result<Reservation, LimitError>> {
        let mut reserving = charges.iter().filter(|charge| charge.reserves());
        if let Some(charge) = reserving.find(|charge| !self.allows_reservations(charge)) {
            return DecisionFuture::ready(Err(LimitError::NoReservations(charge.policy.name().clone())));
        }
        self.decide_charges(charges, true, patience).finish(self, reservation::held)
    }

    pub(super) fn decide_charges(
        &self,
        charges: &[Charge<'_>],
        take: bool,
        patience: Duration,
    ) -> DecisionFuture<Answer> {
        // All charges are for one caller, so the first signals that are found apply to all charges.
        let none = Signals::new();
        let signals = charges.iter().find_map(|charge| charge.signals.as_deref()).unwrap_or(&none);
        let charges: SmallVec<[_; 4]> =
            charges.iter().map(|charge| (charge.policy, &charge.subject, charge.ask)).collect();
        self.decide(&charges, CallContext { patience, ..CallContext::of(take, signals) })
    }

    /// Returns whether reservations are allowed by the quotas that the program defines, or by those that currently
    /// apply. If only the current quotas disallow reservations, the call may be denied, but it does not fail with an
    /// error.
    pub(super) fn allows_reservations(&self, charge: &Charge<'_>) -> bool {
        let Charge { policy, subject, .. } = charge;
        policy.quotas_for(subject.tier_name()).iter().any(Quota::reserves)
            || self.quotas(policy, subject.clone()).iter().any(Quota::reserves)
    }
}
