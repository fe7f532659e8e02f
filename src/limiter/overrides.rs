//! Settings changed at run time: quotas, enforcement, and the generation of a policy's rows.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::listing::{SetEnforcement, SetQuota};
use crate::algorithm::Micros;
use crate::backend::Error;
use crate::policy::{Digest, Enforce, Policy, PolicyError, PolicyName, Quotas, Subject};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{PoisonError, RwLock};

#[derive(Debug, Default)]
pub(super) struct Overrides {
    policies: RwLock<OverrideMap>,
    /// The number of overrides. While it is 0, decisions do not lock the map.
    count: AtomicUsize,
}

type OverrideMap = HashMap<PolicyName, PolicyOverrides>;

/// The overrides of one policy. Never empty.
#[derive(Debug, Default)]
struct PolicyOverrides {
    quotas: HashMap<QuotaScope, Set<Arc<Quotas>>>,
    enforcement: Option<Set<Enforce>>,
    generation: Option<Set<u64>>,
}

/// A value and the local time at which it was set.
#[derive(Clone, Debug)]
struct Set<T> {
    value: T,
    since: Micros,
}

/// A setting that replaces the program's own setting for a policy. `None` restores the program's setting.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Override {
    pub(super) policy: PolicyName,
    pub(super) setting: Setting,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Setting {
    Quotas(QuotaScope, Option<Arc<Quotas>>),
    Enforcement(Option<Enforce>),
    Generation(Option<u64>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum QuotaScope {
    All,
    Tier(String),
    Key(Digest),
}

/// The overrides that apply to a charge. By default, there are none.
#[derive(Debug, Default)]
pub(super) struct Overridden {
    pub(super) quotas: Option<Arc<Quotas>>,
    pub(super) enforcement: Option<Enforce>,
    /// The policy's name in the current [generation](PolicyName::generation), if the policy has been reset.
    pub(super) name: Option<PolicyName>,
}

impl Overrides {
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn of(&self, policy: &Policy, subject: &Subject, key: Option<Digest>) -> Overridden {
        let find = |overrides: &PolicyOverrides| Overridden {
            quotas: overrides.quotas(policy, subject, key),
            enforcement: overrides.enforcement.as_ref().map(|set| set.value),
            name: overrides.generation.as_ref().map(|set| policy.name().at_generation(set.value)),
        };
        self.with(policy.name(), find).unwrap_or_default()
    }

    pub(super) fn quotas(&self, policy: &Policy, subject: &Subject, key: Option<Digest>) -> Option<Arc<Quotas>> {
        self.with(policy.name(), |overrides| overrides.quotas(policy, subject, key)).flatten()
    }

    pub(super) fn enforcement(&self, policy: &PolicyName) -> Option<Enforce> {
        self.with(policy, |overrides| Some(overrides.enforcement.as_ref()?.value)).flatten()
    }

    /// Returns the policy's name in the current generation.
    pub(super) fn current<'n>(&self, policy: &'n PolicyName) -> Cow<'n, PolicyName> {
        let generation = self.with(policy, |overrides| Some(overrides.generation.as_ref()?.value)).flatten();
        generation.map_or(Cow::Borrowed(policy), |generation| Cow::Owned(policy.at_generation(generation)))
    }

    /// Returns whether this scope has quotas that the policy accepts.
    #[cfg(feature = "admin")]
    pub(super) fn contains(&self, policy: &Policy, scope: &QuotaScope) -> bool {
        let accepted = |overrides: &PolicyOverrides| Some(policy.accepts(&overrides.quotas.get(scope)?.value));
        self.with(policy.name(), accepted).flatten().unwrap_or(false)
    }

    #[cfg(feature = "serde")]
    pub(super) fn tiers(&self, policy: &PolicyName) -> Vec<String> {
        let of_tier = |scope: &QuotaScope| match scope {
            QuotaScope::Tier(tier) => Some(tier.clone()),
            QuotaScope::All | QuotaScope::Key(_) => None,
        };
        self.with(policy, |overrides| overrides.quotas.keys().filter_map(of_tier).collect()).unwrap_or_default()
    }

    pub(super) fn list(&self, now: Micros) -> Vec<SetQuota> {
        let mut listed = self.list_each(|policy, overrides, listed| {
            listed.extend(overrides.quotas.iter().map(|(scope, set)| {
                let (tier, key) = match scope {
                    QuotaScope::All => (None, None),
                    QuotaScope::Tier(tier) => (Some(tier.clone()), None),
                    QuotaScope::Key(key) => (None, Some(*key)),
                };
                SetQuota { policy: policy.clone(), tier, key, quotas: *set.value, age: now.since(set.since) }
            }));
        });
        listed.sort_by(|a, b| (a.policy.as_str(), a.key, &a.tier).cmp(&(b.policy.as_str(), b.key, &b.tier)));
        listed
    }

    pub(super) fn all(&self) -> Vec<(Override, Micros)> {
        self.list_each(|policy, overrides, all| {
            let mut add = |setting, since| all.push((Override { policy: policy.clone(), setting }, since));
            for (scope, set) in &overrides.quotas {
                add(Setting::Quotas(scope.clone(), Some(Arc::clone(&set.value))), set.since);
            }
            if let Some(set) = &overrides.enforcement {
                add(Setting::Enforcement(Some(set.value)), set.since);
            }
            if let Some(set) = &overrides.generation {
                add(Setting::Generation(Some(set.value)), set.since);
            }
        })
    }

    pub(super) fn list_enforcements(&self, now: Micros) -> Vec<SetEnforcement> {
        let mut listed = self.list_each(|policy, overrides, listed| {
            listed.extend(overrides.enforcement.iter().map(|set| SetEnforcement {
                policy: policy.clone(),
                enforce: set.value,
                age: now.since(set.since),
            }));
        });
        listed.sort_by(|a, b| a.policy.as_str().cmp(b.policy.as_str()));
        listed
    }

    pub(super) fn set(&self, change: Override, since: Micros) {
        let mut policies = self.policies.write().unwrap_or_else(PoisonError::into_inner);
        apply(&mut policies, change, since);
        self.count.store(count(&policies), Ordering::Release);
    }

    /// Replaces all overrides with `changes`, each given with the local time at which it was set.
    pub(super) fn replace(&self, changes: impl IntoIterator<Item = (Override, Micros)>) {
        // The new map is built before the lock is taken, so that decisions wait only for the swap.
        let mut policies = HashMap::new();
        for (change, since) in changes {
            apply(&mut policies, change, since);
        }
        let count = count(&policies);
        let mut guard = self.policies.write().unwrap_or_else(PoisonError::into_inner);
        // The old map is dropped after the lock is released.
        std::mem::swap(&mut *guard, &mut policies);
        self.count.store(count, Ordering::Release);
    }

    /// Returns whether the map has room for this override, or the override replaces or removes an existing one.
    pub(super) fn accepts(&self, change: &Override) -> bool {
        let is_known = |overrides: &PolicyOverrides| match &change.setting {
            Setting::Quotas(_, None) | Setting::Enforcement(None) | Setting::Generation(None) => true,
            Setting::Quotas(scope, Some(_)) => overrides.quotas.contains_key(scope),
            Setting::Enforcement(Some(_)) => overrides.enforcement.is_some(),
            Setting::Generation(Some(_)) => overrides.generation.is_some(),
        };
        self.len() < MAX_OVERRIDES || self.with(&change.policy, is_known).unwrap_or(false)
    }

    pub(super) fn len(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    pub(super) fn quota_count(&self) -> usize {
        let policies = self.policies.read().unwrap_or_else(PoisonError::into_inner);
        policies.values().map(|overrides| overrides.quotas.len()).sum()
    }

    fn with<R>(&self, policy: &PolicyName, read: impl FnOnce(&PolicyOverrides) -> R) -> Option<R> {
        if self.is_empty() {
            return None;
        }
        let policies = self.policies.read().unwrap_or_else(PoisonError::into_inner);
        policies.get(policy).map(read)
    }

    fn list_each<T>(&self, add: impl Fn(&PolicyName, &PolicyOverrides, &mut Vec<T>)) -> Vec<T> {
        let mut listed = Vec::new();
        let policies = self.policies.read().unwrap_or_else(PoisonError::into_inner);
        policies.iter().for_each(|(policy, overrides)| add(policy, overrides, &mut listed));
        listed
    }
}

impl PolicyOverrides {
    /// Returns the quotas set at run time that apply to a caller, if any. Quotas set for a tier or for all callers
    /// apply only if the caller does not have its own quotas. Quotas whose algorithm is not the policy's are ignored:
    /// another version of the program may have set them.
    fn quotas(&self, policy: &Policy, subject: &Subject, key: Option<Digest>) -> Option<Arc<Quotas>> {
        if self.quotas.is_empty() {
            return None;
        }
        let find = |scope: QuotaScope| {
            let quotas = &self.quotas.get(&scope)?.value;
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

    fn len(&self) -> usize {
        self.quotas.len() + usize::from(self.enforcement.is_some()) + usize::from(self.generation.is_some())
    }
}

fn apply(policies: &mut OverrideMap, Override { policy, setting }: Override, since: Micros) {
    let overrides = policies.entry(policy.clone()).or_default();
    match setting {
        Setting::Quotas(scope, Some(value)) => drop(overrides.quotas.insert(scope, Set { value, since })),
        Setting::Quotas(scope, None) => drop(overrides.quotas.remove(&scope)),
        Setting::Enforcement(value) => overrides.enforcement = value.map(|value| Set { value, since }),
        Setting::Generation(value) => overrides.generation = value.map(|value| Set { value, since }),
    }
    if overrides.len() == 0 {
        policies.remove(&policy);
    }
}

fn count(policies: &OverrideMap) -> usize {
    policies.values().map(PolicyOverrides::len).sum()
}

const MAX_OVERRIDES: usize = 100_000;

/// The reason why a change at run time failed. `source()` delegates to the inner error.
#[derive(Debug)]
#[non_exhaustive]
pub enum SetQuotaError {
    /// The change is invalid: the quota denies everything, its algorithm is not the policy's, the policy has no such
    /// tier, or the share to enforce is not between 0.0 and 1.0.
    Quota(PolicyError),
    /// 100,000 changes are already in effect.
    TooMany,
    /// The change could not be published, but it may still have been made in this and other processes.
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
                "{MAX_OVERRIDES} changes are already in effect, the most that are allowed; revert some by setting the \
                 quota to `None`, or assign callers to a tier instead"
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
            let setting = Setting::Quotas(QuotaScope::Key(Digest::from_bits(key)), quotas.clone());
            Override { policy: PolicyName::new("api"), setting }
        };
        let (overrides, now) = (Overrides::default(), Micros::new(1));
        overrides.replace((0..MAX_OVERRIDES as u128).map(|key| (change(key), now)));
        assert!(overrides.accepts(&change(7)) && !overrides.accepts(&change(MAX_OVERRIDES as u128)));
        let setting = Setting::Quotas(QuotaScope::Key(Digest::from_bits(7)), None);
        overrides.set(Override { setting, ..change(7) }, now);
        assert!(overrides.accepts(&change(MAX_OVERRIDES as u128)));
    }

    #[test]
    fn the_settings_of_a_policy_are_independent_and_counted() {
        let (overrides, now) = (Overrides::default(), Micros::new(1));
        let set = |setting| overrides.set(Override { policy: PolicyName::new("api"), setting }, now);
        let (enforce, generation) = (Some(Enforce::Never), Some(7));
        set(Setting::Enforcement(enforce));
        set(Setting::Generation(generation));
        set(Setting::Quotas(QuotaScope::All, Some(Arc::new(Quota::token_bucket(1, MINUTE).into()))));
        let api = Policy::new("api", Quota::token_bucket(2, MINUTE));
        let of = |policy: &Policy| {
            let found = overrides.of(policy, &Subject::anonymous(), None);
            (found.quotas.is_some(), found.enforcement, found.name.map_or(0, |name| name.generation()))
        };
        assert_eq!((of(&api), overrides.len(), overrides.quota_count()), ((true, enforce, 7), 3, 1));
        assert_eq!(of(&Policy::new("other", Quota::per_second(1))), (false, None, 0));
        set(Setting::Quotas(QuotaScope::All, None));
        set(Setting::Enforcement(None));
        assert_eq!((of(&api), overrides.len()), ((false, None, 7), 1));
        set(Setting::Generation(None));
        assert!(overrides.is_empty() && overrides.policies.read().expect("not poisoned").is_empty());
    }
}
