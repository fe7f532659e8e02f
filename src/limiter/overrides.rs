//! Quotas that are set at run time (step 1).

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::listing::SetQuota;
use crate::backend::Error;
use crate::policy::{Digest, Policy, PolicyError, PolicyName, Quotas, Subject};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{PoisonError, RwLock};

#[derive(Debug, Default)]
pub(super) struct Overrides {
    policies: RwLock<OverrideMap>,
    /// The number of overrides. While it is 0, decisions do not lock the map.
    count: AtomicUsize,
}

type OverrideMap = HashMap<(PolicyName, QuotaScope), Arc<Quotas>>;

/// Quotas that replace those that the program defines; `None` restores the latter.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Override {
    pub(super) policy: PolicyName,
    pub(super) scope: QuotaScope,
    pub(super) quotas: Option<Arc<Quotas>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum QuotaScope {
    All,
    Tier(String),
    Key(Digest),
}

impl Overrides {
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the quotas set at run time that apply to a caller, if any. Quotas set for the caller's key come first.
    /// Those set for a tier or for all callers apply only if the caller has no quotas of its own. Ignores quotas with a
    /// different algorithm from the policy's, which another version of the program may have set.
    pub(super) fn quotas(&self, policy: &Policy, subject: &Subject, key: Option<Digest>) -> Option<Arc<Quotas>> {
        if self.is_empty() {
            return None;
        }
        let policies = self.policies.read().unwrap_or_else(PoisonError::into_inner);
        let find = |scope: QuotaScope| {
            let quotas = policies.get(&(policy.name().clone(), scope))?;
            policy.accepts(quotas).then(|| Arc::clone(quotas))
        };
        let of_key = key.and_then(|key| find(QuotaScope::Key(key)));
        if of_key.is_some() || subject.quotas().is_some() {
            return of_key;
        }
        let tier = subject.tier_name().filter(|tier| policy.tiers().any(|(known, _)| known == *tier));
        let of_tier = tier.and_then(|tier| find(QuotaScope::Tier(tier.to_owned())));
        of_tier.or_else(|| find(QuotaScope::All))
    }

    #[cfg(feature = "serde")]
    pub(super) fn tiers(&self, policy: &PolicyName) -> Vec<String> {
        let policies = self.policies.read().unwrap_or_else(PoisonError::into_inner);
        let tiers = policies.keys().filter(|(changed, _)| changed == policy).filter_map(|(_, scope)| match scope {
            QuotaScope::Tier(tier) => Some(tier.clone()),
            QuotaScope::All | QuotaScope::Key(_) => None,
        });
        tiers.collect()
    }

    pub(super) fn list(&self) -> Vec<SetQuota> {
        let policies = self.policies.read().unwrap_or_else(PoisonError::into_inner);
        let listed = policies.iter().map(|((policy, scope), quotas)| {
            let (tier, key) = match scope {
                QuotaScope::All => (None, None),
                QuotaScope::Tier(tier) => (Some(tier.clone()), None),
                QuotaScope::Key(key) => (None, Some(*key)),
            };
            SetQuota { policy: policy.clone(), tier, key, quotas: **quotas }
        });
        let mut listed: Vec<SetQuota> = listed.collect();
        drop(policies);
        listed.sort_by(|a, b| (a.policy.as_str(), a.key, &a.tier).cmp(&(b.policy.as_str(), b.key, &b.tier)));
        listed
    }

    pub(super) fn set(&self, change: Override) {
        let mut policies = self.policies.write().unwrap_or_else(PoisonError::into_inner);
        apply(&mut policies, change);
        self.count.store(policies.len(), Ordering::Release);
    }

    pub(super) fn replace(&self, changes: impl IntoIterator<Item = Override>) {
        // The map is built before locking, so that decisions only wait for the swap.
        let mut policies = HashMap::new();
        for change in changes {
            apply(&mut policies, change);
        }
        let mut guard = self.policies.write().unwrap_or_else(PoisonError::into_inner);
        // The old map is dropped after the lock is released.
        std::mem::swap(&mut *guard, &mut policies);
        self.count.store(guard.len(), Ordering::Release);
    }

    /// Returns whether the map has space for this override or contains an override that it replaces.
    pub(super) fn accepts(&self, change: &Override) -> bool {
        if change.quotas.is_none() || self.len() < MAX_OVERRIDES {
            return true;
        }
        let policies = self.policies.read().unwrap_or_else(PoisonError::into_inner);
        policies.contains_key(&(change.policy.clone(), change.scope.clone()))
    }

    pub(super) fn len(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }
}

fn apply(policies: &mut OverrideMap, Override { policy, scope, quotas }: Override) {
    match quotas {
        Some(quotas) => policies.insert((policy, scope), quotas),
        None => policies.remove(&(policy, scope)),
    };
}

const MAX_OVERRIDES: usize = 100_000;

/// The reason why a quota was not set. Nothing has changed, except possibly after a [`Backend`](SetQuotaError::Backend)
/// error. `source()` is delegated to the inner error.
#[derive(Debug)]
#[non_exhaustive]
pub enum SetQuotaError {
    /// The quota denies everything or has a different algorithm from the policy, or the policy has no such tier.
    Quota(PolicyError),
    /// 100,000 quotas are already set.
    TooMany,
    /// The change could not be published. Other processes may have received it nevertheless.
    Backend(Error),
}

impl SetQuotaError {
    fn inner(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            SetQuotaError::Quota(error) => Some(error),
            SetQuotaError::TooMany => None,
            SetQuotaError::Backend(error) => Some(error),
        }
    }
}

impl fmt::Display for SetQuotaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.inner() {
            Some(error) => fmt::Display::fmt(error, f),
            None => write!(
                f,
                "{MAX_OVERRIDES} quotas are already set at run time, which is the maximum; revert some with `None`, or \
                 give callers a tier instead of a quota each"
            ),
        }
    }
}

impl std::error::Error for SetQuotaError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.inner()?.source()
    }
}

impl From<PolicyError> for SetQuotaError {
    fn from(error: PolicyError) -> SetQuotaError {
        SetQuotaError::Quota(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::{MINUTE, Quota};

    #[test]
    fn existing_quotas_can_be_changed_when_the_table_is_full() {
        let quotas = Some(Arc::new(Quota::token_bucket(1, MINUTE).into()));
        let change = |key: u128| {
            let scope = QuotaScope::Key(Digest::from_bits(key));
            Override { policy: PolicyName::new("api"), scope, quotas: quotas.clone() }
        };
        let overrides = Overrides::default();
        overrides.replace((0..MAX_OVERRIDES as u128).map(change));
        assert!(overrides.accepts(&change(7)) && !overrides.accepts(&change(MAX_OVERRIDES as u128)));
        overrides.set(Override { quotas: None, ..change(7) });
        assert!(overrides.accepts(&change(MAX_OVERRIDES as u128)));
    }
}
