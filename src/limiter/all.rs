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
    /// Makes all charges. If any charge is denied, none of them are made, and an error is returned. A call without
    /// charges is allowed. `RedisBackend` accepts at most 1,000 charges per call.
    ///
    /// # Errors
    /// Fails if a charge is denied or asks for a [reservation](Charge::reserve), or if the backend cannot decide.
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

    /// Like [`limit_all`](RateLimiter::limit_all), but the charges can reserve tokens, and can later be settled or
    /// refunded.
    ///
    /// # Errors
    /// Fails in the same cases as [`Acquire::reserve`](super::Acquire::reserve).
    pub fn hold_all<'a>(
        &self,
        charges: impl IntoIterator<Item = Charge<'a>>,
    ) -> DecisionFuture<Result<Reservation, LimitError>> {
        let charges: ChargeList<'a> = charges.into_iter().collect();
        self.reserve_all(&charges, Duration::ZERO)
    }

    fn take_now<'a>(&self, charges: impl IntoIterator<Item = Charge<'a>>) -> DecisionFuture<Answer> {
        let charges: ChargeList<'a> = charges.into_iter().collect();
        match charges.iter().find(|charge| charge.reserves()) {
            Some(charge) => DecisionFuture::ready(Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "the charge under policy {:?} asks for a reservation, which `limit_all` cannot return; call \
                     `hold_all`",
                    charge.policy.name()
                ),
            ))),
            None => self.decide_charges(&charges, true, Duration::ZERO),
        }
    }

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
        let none = Signals::new();
        let signals = charges.iter().find_map(|charge| charge.signals.as_deref()).unwrap_or(&none);
        let charges: SmallVec<[_; 4]> =
            charges.iter().map(|charge| (charge.policy, &charge.subject, charge.ask)).collect();
        self.decide(&charges, CallContext { patience, ..CallContext::of(take, signals) })
    }

    /// Returns whether any quota that the program defines for the caller, or any quota now in effect, allows
    /// reservations. Therefore, a quota set at run time can cause a denial, but not an error.
    pub(super) fn allows_reservations(&self, charge: &Charge<'_>) -> bool {
        let Charge { policy, subject, .. } = charge;
        policy.quotas_for(subject.tier_name()).iter().any(Quota::reserves)
            || self.quotas(policy, subject.clone()).iter().any(Quota::reserves)
    }
}
