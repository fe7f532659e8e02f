//! Methods that read the state of a limiter without charging anything.

use std::time::Duration;

use super::all::ChargeList;
use super::{Charge, DecisionFuture, LimitError, RateLimiter, Snapshot, future};
use crate::algorithm::{Ask, Micros, Quota, SECOND};
use crate::backend::{Error, ErrorKind, RowId, Take};
use crate::policy::{Allowed, Decision, Decisions, Digest, Key, Policy, Quotas, Subject};

/// A policy that is never charged. Its row is peeked at only to read the backend's clock.
static CLOCK_POLICY: Policy = Policy::new("tollgate/now", Quota::token_bucket(1, SECOND));

impl RateLimiter {
    /// Like [`limit`](RateLimiter::limit), but spends nothing. The result describes the current state.
    ///
    /// # Errors
    /// Fails if the call would be denied, or if the backend cannot decide.
    pub fn check(&self, policy: &Policy, subject: impl Into<Subject>) -> DecisionFuture {
        self.acquire(policy, subject).check()
    }

    /// Like [`check`](RateLimiter::check), but returns a denial as a [`Decision`]. Because nothing is spent,
    /// [`remaining`](Decision::remaining) and [`reset`](Decision::reset) describe the current state of the row.
    ///
    /// # Errors
    /// Fails if the backend cannot decide.
    pub fn try_check(&self, policy: &Policy, subject: impl Into<Subject>) -> DecisionFuture<Result<Decision, Error>> {
        self.try_acquire(policy, subject).check()
    }

    /// Makes the same decision as [`limit_all`](RateLimiter::limit_all) (or as [`hold_all`](RateLimiter::hold_all) if a
    /// charge reserves tokens), but spends nothing.
    ///
    /// # Errors
    /// Fails if a charge would be denied, or if the backend cannot decide.
    pub fn check_all<'a>(
        &self,
        charges: impl IntoIterator<Item = Charge<'a>>,
    ) -> DecisionFuture<Result<Allowed<Decisions>, LimitError>> {
        self.try_check_all(charges).finish(self, future::all_allowed)
    }

    /// Like [`check_all`](RateLimiter::check_all), but returns a denial as [`Decisions`].
    ///
    /// # Errors
    /// Fails if the backend cannot decide.
    pub fn try_check_all<'a>(
        &self,
        charges: impl IntoIterator<Item = Charge<'a>>,
    ) -> DecisionFuture<Result<Decisions, Error>> {
        let charges: ChargeList<'a> = charges.into_iter().collect();
        self.decide_charges(&charges, false, Duration::ZERO)
    }

    /// Returns the number of whole tokens that `subject` can spend. If the backend fails, the [failure
    /// mode](crate::FailureMode) determines the result. To find out whether this has happened, use
    /// [`try_check`](RateLimiter::try_check).
    ///
    /// To look up a client that a layer limits, pass the same key **and the same tier** as the layer. Without the tier,
    /// the policy's own quota is used. The layer's extractor creates the key from a request
    /// ([`KeyExtractor::subject`](crate::key::KeyExtractor::subject)) or from a value, as in
    /// `key::client_ip().key(address)`. The text `"7"` and the number `7` are different keys; `None` is the anonymous
    /// key. If the result never changes, the layer probably uses a [different
    /// limiter](crate::RateLimitLayer::limiter).
    ///
    /// ```
    /// # use tollgate::{Policy, Quota, RateLimiter, Subject, MINUTE};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::LimitError> {
    /// # let limiter = RateLimiter::default();
    /// let api = Policy::new("api", Quota::token_bucket(3, MINUTE)).tier("free", Quota::token_bucket(15, MINUTE));
    /// let ada = || Subject::new(7).tier("free");
    /// limiter.acquire(&api, ada()).cost(10).await?;
    /// assert_eq!(limiter.remaining(&api, ada()).await?, 5);
    /// assert_eq!(limiter.remaining(&api, 7).await?, 0); // the policy's own quota is 3
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Fails if the backend fails and the failure mode is `Deny`.
    pub async fn remaining(&self, policy: &Policy, subject: impl Into<Subject>) -> Result<u64, Error> {
        let decision = self.try_acquire(policy, subject).cost(0).check().await?;
        Ok(decision.remaining())
    }

    /// Returns a snapshot of a key's row for each of the policy's [quotas](Quotas). As long as nothing is spent, later
    /// decisions can be computed from it.
    ///
    /// # Errors
    /// Fails if the backend fails and the failure mode is `Deny`.
    pub async fn snapshot(&self, policy: &Policy, subject: impl Into<Subject>) -> Result<Vec<Snapshot>, Error> {
        let decisions = self.try_check_all([Charge::new(policy, subject).cost(0)]).await?;
        Ok(decisions.iter().map(Snapshot::of).collect())
    }

    /// Returns the current time of the backend's clock, for comparison with the instants in a [`Snapshot`].
    ///
    /// # Errors
    /// Fails if the backend fails and the failure mode is `Deny`.
    pub async fn now(&self) -> Result<Micros, Error> {
        let row = RowId { policy: CLOCK_POLICY.name(), key: self.row_key(None) };
        let takes = [Take::new(row, &CLOCK_POLICY.quotas()[0], Ask::cost(0))];
        let decided = match self.inner.backend.peek(&takes).await {
            Ok(steps) => steps.first().map(|step| step.now),
            Err(error) => self.inner.failure.decide(&takes, false, error)?.get(0).map(|decision| decision.step().now),
        };
        decided.ok_or_else(|| Error::new(ErrorKind::Protocol, "expected 1 step, found 0; this is a bug in the backend"))
    }

    /// Returns the quotas that apply to `subject`. The order of precedence is: quotas set at run time for the key, the
    /// caller's own quotas, quotas set at run time for the tier, quotas set at run time for all callers, quotas that
    /// the policy defines for the tier, and the policy's own quotas.
    pub fn quotas(&self, policy: &Policy, subject: impl Into<Subject>) -> Quotas {
        let subject = subject.into();
        let changed = self.inner.overrides.quotas(policy, &subject, Some(self.row_key(subject.key())));
        *changed.as_deref().or(subject.quotas()).unwrap_or(policy.quotas_for(subject.tier_name()))
    }

    /// Like [`quotas`](RateLimiter::quotas), but ignores quotas that were set for keys.
    #[cfg(feature = "serde")]
    pub(crate) fn quotas_in_force(&self, policy: &Policy, tier: Option<&str>) -> Quotas {
        let subject = tier.map_or(Subject::anonymous(), |tier| Subject::anonymous().tier(tier.to_owned()));
        self.inner.overrides.quotas(policy, &subject, None).map_or(*policy.quotas_for(tier), |quotas| *quotas)
    }

    /// Returns the digest of a key, as it appears in decisions, log events and [`RowId`]. `None` is the anonymous key.
    /// Limiters with the same [secret](crate::limiter::RateLimiterBuilder::secret) return the same digests.
    pub fn digest(&self, key: Option<&Key>) -> Digest {
        self.row_key(key)
    }
}
