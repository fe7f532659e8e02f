//! Lookups for the admin router: the rows, the tier and the quotas of a key.

use super::overrides::QuotaScope;
use super::{CallContext, DecisionFuture, RateLimiter};
use crate::algorithm::Ask;
use crate::backend::Error;
use crate::limiter::observer::Audited;
use crate::policy::{Decisions, Policy, Quotas, Signals, Subject};

/// The origin of the quotas that apply to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QuotaSource {
    SetForKey,
    SetForTier,
    SetForAll,
    Tier,
    Policy,
}

impl QuotaSource {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            QuotaSource::SetForKey => "set_for_key",
            QuotaSource::SetForTier => "set_for_tier",
            QuotaSource::SetForAll => "set_for_all",
            QuotaSource::Tier => "tier",
            QuotaSource::Policy => "policy",
        }
    }
}

impl RateLimiter {
    /// Reads the rows of a key under a policy, even if the caller is blocked or on a deny list.
    pub(crate) fn inspect(&self, policy: &Policy, subject: &Subject) -> DecisionFuture<Result<Decisions, Error>> {
        let none = Signals::new();
        let context = CallContext { guarded: false, ..CallContext::of(false, &none) };
        self.decide(&[(policy, subject, Ask::cost(0))], context)
    }

    /// Infers a caller's tier from its row, which contains the stamp of the quota that was last charged. Returns `None`
    /// if this quota is the policy's own, belongs to several tiers, or is unknown.
    pub(crate) fn tier_of(&self, policy: &Policy, subject: &Subject, decisions: &Decisions) -> Option<String> {
        let (quota, row) = decisions.iter().next()?.rows().next()?;
        let shard = quota.shard_index().unwrap_or(0);
        let wrote = |subject: Subject| self.quotas(policy, subject)[0].shard(shard).stamp() == row.stamp;
        let mut tiers = policy.tiers().filter(|(tier, _)| wrote(subject.clone().tier((*tier).to_owned())));
        let (tier, _) = tiers.next()?;
        (tiers.next().is_none() && !wrote(subject.clone())).then(|| tier.to_owned())
    }

    pub(crate) fn quota_source(&self, policy: &Policy, subject: &Subject) -> (Quotas, QuotaSource) {
        let applied = self.quotas(policy, subject.clone());
        let key = QuotaScope::Key(self.row_key(subject.key()));
        let tier = subject.tier_name().filter(|tier| policy.quotas_of_tier(tier).is_some());
        let is_set = |scope: &QuotaScope| self.inner.overrides.contains(policy, scope);
        let source = if is_set(&key) {
            QuotaSource::SetForKey
        } else if tier.is_some_and(|tier| is_set(&QuotaScope::Tier(tier.to_owned()))) {
            QuotaSource::SetForTier
        } else if is_set(&QuotaScope::All) {
            QuotaSource::SetForAll
        } else if tier.is_some() {
            QuotaSource::Tier
        } else {
            QuotaSource::Policy
        };
        (applied, source)
    }

    pub(crate) fn audit(&self, audited: &Audited<'_>) {
        self.inner.observers.iter().for_each(|observer| observer.audited(audited));
    }

    pub(crate) fn is_same(&self, other: &RateLimiter) -> bool {
        std::sync::Arc::ptr_eq(&self.inner, &other.inner)
    }

    pub(crate) fn shares_rows(&self) -> bool {
        self.inner.backend.is_remote()
    }
}
