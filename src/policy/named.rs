//! Policies, which are named quotas, optionally with different quotas for tiers.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use super::decision::limit_name;
use super::enforce::Enforce;
use super::name::PolicyName;
use super::nearest::suggestion;
use super::quotas::Quotas;
use super::windows::Windows;
use crate::algorithm::{Quota, QuotaError};

/// A named quota, optionally with different quotas for tiers of callers.
///
/// Every key has one row under a policy, whatever the caller's tier, so tokens stay spent when the tier changes; see
/// [tiers and routes](crate::docs::tiers_and_routes). Within a limiter, policies with the same name share rows. It is a
/// [mistake](crate::observe::Mistake) if their quotas or tiers differ.
///
/// ```
/// use std::sync::LazyLock;
/// use tollgate::{Policy, Quota, HOUR, MINUTE};
///
/// static LOGIN: Policy = Policy::new("login", Quota::token_bucket(5, HOUR));
/// static API: LazyLock<Policy> = LazyLock::new(|| {
///     Policy::new("api", Quota::token_bucket(30, MINUTE)).tier("free", Quota::token_bucket(60, MINUTE))
/// });
/// assert_eq!(API.quotas_for(Some("free"))[0].get_capacity(), 60);
/// assert_eq!(API.quotas_for(Some("unheard of")), API.quotas());
/// assert_eq!(Policy::from(Quota::token_bucket(10, MINUTE)).name().as_str(), "10/min");
/// ```
#[derive(Clone, Debug)]
pub struct Policy {
    name: PolicyName,
    quotas: Quotas,
    tiers: Vec<(Cow<'static, str>, Quotas)>,
    windows: Windows,
    pub(super) enforce: Enforce,
    leases: bool,
}

impl Policy {
    /// Creates a policy from values that are known at compile time.
    ///
    /// # Panics
    /// Panics if the name is not 1 to 128 printable ASCII characters, or if the quota would deny every call because its
    /// capacity is 0 and it allows no reservations. In a `const`, this is a compile error.
    #[track_caller]
    pub const fn new(name: &'static str, quota: Quota) -> Policy {
        if let Err(error) = quota.validate() {
            error.panic();
        }
        Policy::with(PolicyName::new(name), Quotas::one(quota))
    }

    /// Creates a policy with one quota or [several](Quotas) from values that are known only at run time.
    ///
    /// # Errors
    /// Fails if [`Policy::new`] would panic. The error shows the invalid value.
    pub fn try_new(name: impl Into<String>, quota: impl Into<Quotas>) -> Result<Policy, PolicyError> {
        let (name, quotas) = (PolicyName::try_new(name.into())?, quota.into());
        quotas.validate().map_err(|error| PolicyError::quota(&name, None, error))?;
        Ok(Policy::with(name, quotas))
    }

    const fn with(name: PolicyName, quotas: Quotas) -> Policy {
        Policy {
            windows: Windows::of(&quotas),
            name,
            quotas,
            tiers: Vec::new(),
            enforce: Enforce::Always,
            leases: false,
        }
    }

    /// Adds another quota for callers without a tier. The policy's quotas apply together; see [`Quotas`]. Tiers are not
    /// affected, because each tier has its own quotas.
    ///
    /// # Panics
    /// Panics if [`Quotas::and`] would panic, if the quota would deny every call, if a tier has a different algorithm
    /// for this period, or if there are more than eight different periods. In a `const`, this is a compile error.
    #[track_caller]
    #[must_use]
    pub const fn and(mut self, quota: Quota) -> Policy {
        if let Err(error) = quota.validate() {
            error.panic();
        }
        self.quotas = self.quotas.and(quota);
        self.windows = self.windows.with(&self.quotas);
        if self.windows.fault().is_some() {
            panic!("tollgate: a tier has a different algorithm for this period, or there are too many periods");
        }
        self
    }

    /// Lets each process lease several tokens of a key at once from a remote backend, and spend them without asking the
    /// backend. In-process backends ignore this setting. See [`docs::leases`](crate::docs::leases).
    #[must_use]
    pub const fn leases(mut self) -> Policy {
        self.leases = true;
        self
    }

    /// Returns whether the policy uses [leases](Policy::leases).
    pub const fn uses_leases(&self) -> bool {
        self.leases
    }

    /// Adds a quota, or [several quotas](Quotas) that apply together, for the callers of one tier. This method is not
    /// `const`, so a policy with tiers is usually a `static LazyLock`.
    ///
    /// The policy's own quota applies to callers with an unknown tier. An unknown tier is counted as a
    /// [mistake](crate::observe::Mistake) if the policy has other tiers.
    ///
    /// # Panics
    /// Panics if the tier has already been added, if a quota would deny every call, or if its algorithm differs from
    /// that of the policy's quota. If the policy or a tier has [several quotas](Quotas), only quotas with the same
    /// period need the same algorithm, but there may be at most eight different periods in total.
    #[track_caller]
    #[must_use]
    pub fn tier(self, name: impl Into<Cow<'static, str>>, quota: impl Into<Quotas>) -> Policy {
        match self.try_tier(name, quota) {
            Ok(policy) => policy,
            Err(error) => panic!("tollgate: {error}"),
        }
    }

    /// Like [`Policy::tier`], but for tiers that are known only at run time.
    ///
    /// # Errors
    /// Fails if [`Policy::tier`] would panic.
    pub fn try_tier(
        mut self,
        name: impl Into<Cow<'static, str>>,
        quota: impl Into<Quotas>,
    ) -> Result<Policy, PolicyError> {
        self.add_tier(name.into(), quota.into())?;
        Ok(self)
    }

    pub(crate) fn add_tier(&mut self, tier: Cow<'static, str>, quotas: Quotas) -> Result<(), PolicyError> {
        quotas.validate().map_err(|error| PolicyError::quota(&self.name, Some(&tier), error))?;
        let windows = self.windows.with(&quotas);
        if !windows.several() && quotas.at(0).algorithm() != self.quotas.at(0).algorithm() {
            let what = format!(
                "tier {tier:?} has a different algorithm ({quotas}) from the policy ({}); a key has one row for all tiers, \
                 so all must use the policy's algorithm",
                self.quotas
            );
            return Err(PolicyError::new(&self.name, what));
        }
        if let Some(fault) = windows.fault() {
            return Err(PolicyError::new(&self.name, format_args!("tier {tier:?} ({quotas}): {fault}")));
        }
        if self.has_tier(&tier) {
            return Err(PolicyError::new(&self.name, format_args!("tier {tier:?} is defined twice; remove one")));
        }
        self.windows = windows;
        self.tiers.push((tier, quotas));
        Ok(())
    }

    /// The name of the policy, as shown in headers and logs.
    pub const fn name(&self) -> &PolicyName {
        &self.name
    }

    /// The quotas for callers without a tier or with an unknown tier. There is at least one.
    pub const fn quotas(&self) -> &Quotas {
        &self.quotas
    }

    /// The quotas for callers of this tier, or the policy's own quotas if the tier is `None` or unknown.
    pub fn quotas_for(&self, tier: Option<&str>) -> &Quotas {
        tier.and_then(|tier| self.quotas_of_tier(tier)).unwrap_or(&self.quotas)
    }

    pub(crate) fn quotas_of_tier(&self, tier: &str) -> Option<&Quotas> {
        self.tiers.iter().find(|(name, _)| name == tier).map(|(_, quotas)| quotas)
    }

    /// Returns the window that each quota in a list uses. The list can be the policy's own, a tier's or any other list.
    #[inline]
    pub(crate) fn windows(&self, quotas: &Quotas) -> [u8; Quotas::MAX] {
        self.windows.assign(quotas)
    }

    /// Returns a number that distinguishes policies and is cheap to compute. It can differ between clones of a policy.
    #[inline]
    pub(crate) fn identity(&self) -> u64 {
        let name = self.name.as_str().as_ptr() as u64;
        let tiers = self.tiers.as_ptr() as u64;
        let stamps = self.quotas.iter().fold(0u32, |stamps, quota| stamps.rotate_left(7) ^ quota.stamp());
        (name ^ tiers.rotate_left(24) ^ u64::from(stamps) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
    }

    pub(crate) fn content(&self) -> (&Quotas, Vec<(&str, &Quotas)>) {
        let mut tiers: Vec<_> = self.tiers().collect();
        tiers.sort_unstable_by_key(|(tier, _)| *tier);
        (&self.quotas, tiers)
    }

    /// Checks whether `quotas` can replace the policy's own quotas or those of `tier`.
    pub(crate) fn check_change(&self, tier: Option<&str>, quotas: Option<&Quotas>) -> Result<(), PolicyError> {
        if let Some(tier) = tier.filter(|tier| !self.has_tier(tier)) {
            let known: Vec<&str> = self.tiers().take(MAX_LISTED_TIERS).map(|(name, _)| name).collect();
            let known = if known.is_empty() {
                "the policy has no tiers".into()
            } else {
                format!("the policy's tiers are {known:?}")
            };
            let near = suggestion(tier, self.tiers().map(|(name, _)| name));
            return Err(PolicyError::new(&self.name, format_args!("unknown tier {tier:?}{near}; {known}")));
        }
        let Some(quotas) = quotas else { return Ok(()) };
        quotas.validate().map_err(|error| PolicyError::quota(&self.name, tier, error))?;
        if !self.accepts(quotas) {
            let what = format!(
                "\"{quotas}\" has a different algorithm from \"{}\"; the new quota reuses the existing rows, so it must use \
                 the same algorithm",
                self.quotas
            );
            return Err(PolicyError::new(&self.name, what));
        }
        Ok(())
    }

    pub(crate) fn check_enforcement(&self, enforce: Enforce) -> Result<(), PolicyError> {
        if enforce.is_valid() {
            return Ok(());
        }
        let what = format_args!("expected an enforced share from 0.0 to 1.0, found {}", enforce.share());
        Err(PolicyError::new(&self.name, what))
    }

    /// Returns whether each quota has the same algorithm as the window that it would use.
    pub(crate) fn accepts(&self, quotas: &Quotas) -> bool {
        let own = self.quotas.at(0);
        quotas.iter().zip(self.windows(quotas)).all(|(quota, window)| {
            self.windows.algorithm(window, own).is_none_or(|algorithm| algorithm == quota.algorithm())
        })
    }

    fn has_tier(&self, tier: &str) -> bool {
        self.tiers.iter().any(|(known, _)| known == tier)
    }

    /// Returns the tiers and their quotas, in the order in which they were added.
    pub fn tiers(&self) -> impl Iterator<Item = (&str, &Quotas)> + Clone {
        self.tiers.iter().map(|(name, quotas)| (name.as_ref(), quotas))
    }

    pub(crate) fn lists(&self) -> impl Iterator<Item = &Quotas> {
        std::iter::once(&self.quotas).chain(self.tiers.iter().map(|(_, quotas)| quotas))
    }
}

/// Describes a conflict between limit names. For example, the policy `api;1d` conflicts with the daily quota of `api`.
pub(crate) fn limit_conflict<'p>(policies: impl Iterator<Item = &'p Policy>) -> Option<String> {
    let mut limits: HashMap<Cow<'p, str>, &'p PolicyName> = HashMap::new();
    for policy in policies {
        for list in policy.lists() {
            for quota in list.iter() {
                let (name, limit) = (policy.name(), limit_name(policy.name(), quota, list.len()));
                let other = *limits.entry(limit.clone()).or_insert(name);
                if other != name {
                    return Some(format!(
                        "the policies {other:?} and {name:?} both have a limit named {limit:?} in headers; rename one of them"
                    ));
                }
            }
        }
    }
    None
}

impl From<Quota> for Policy {
    /// Names the policy after the quota: `"10/min burst 20"`.
    ///
    /// # Panics
    /// Panics if the quota would deny every call.
    #[track_caller]
    fn from(quota: Quota) -> Policy {
        Quotas::one(quota).into()
    }
}

impl From<Quotas> for Policy {
    /// Names the policy after the quotas: `"10/s; 1000/d"`.
    ///
    /// # Panics
    /// Panics if a quota would deny every call, or if the name is longer than [`PolicyName::MAX_LENGTH`].
    #[track_caller]
    fn from(quotas: Quotas) -> Policy {
        match Policy::try_new(quotas.to_string(), quotas) {
            Ok(policy) => policy,
            Err(error) => panic!("tollgate: {error}"),
        }
    }
}

impl From<std::sync::Arc<Policy>> for Policy {
    fn from(policy: std::sync::Arc<Policy>) -> Policy {
        std::sync::Arc::unwrap_or_clone(policy)
    }
}

impl<F: FnOnce() -> Policy> From<&std::sync::LazyLock<Policy, F>> for Policy {
    fn from(policy: &std::sync::LazyLock<Policy, F>) -> Policy {
        (**policy).clone()
    }
}

impl From<&Policy> for Policy {
    fn from(policy: &Policy) -> Policy {
        policy.clone()
    }
}

/// The error for an invalid policy. `source()` returns the [`QuotaError`], if any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyError {
    message: String,
    cause: Option<QuotaError>,
}

const MAX_LISTED_TIERS: usize = 20;

impl PolicyError {
    fn new(policy: &PolicyName, what: impl fmt::Display) -> PolicyError {
        PolicyError { message: format!("policy {policy:?}: {what}"), cause: None }
    }

    fn quota(policy: &PolicyName, tier: Option<&str>, error: QuotaError) -> PolicyError {
        let of_tier = tier.map_or(String::new(), |tier| format!("tier {tier:?}: "));
        PolicyError { cause: Some(error), ..PolicyError::new(policy, format_args!("{of_tier}{error}")) }
    }

    pub(super) fn name(name: &str) -> PolicyError {
        let max = PolicyName::MAX_LENGTH;
        let shown: String = name.chars().take(max + 1).collect();
        let message = format!(
            "policy name {shown:?}: expected 1 to {max} printable ASCII characters, because the name is sent in headers"
        );
        PolicyError { message, cause: None }
    }
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for PolicyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_ref().map(|cause| cause as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::MINUTE;

    const QUOTA: Quota = Quota::token_bucket(10, MINUTE);

    #[test]
    fn errors_name_the_policy_and_the_value() {
        for (result, part) in [
            (Policy::try_new("", QUOTA), "policy name \"\""),
            (Policy::try_new("caf\u{e9}", QUOTA), "policy name \"caf\u{e9}\""),
            (Policy::try_new("x".repeat(129), QUOTA), "1 to 128"),
            (Policy::try_new("p", QUOTA.capacity(0)), "policy \"p\": capacity is 0"),
            (
                Policy::new("p", QUOTA).try_tier("t", Quota::sliding_window(1, MINUTE)),
                "tier \"t\" has a different algorithm",
            ),
            (Policy::new("p", QUOTA).tier("t", QUOTA).try_tier("t", QUOTA), "tier \"t\" is defined twice"),
        ] {
            let error = result.unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn the_longest_quota_text_is_a_valid_policy_name() {
        let longest = Quota::fixed_window(999_999_999_999_999, Quota::MAX_PERIOD)
            .unlimited_reservations()
            .start(std::time::Duration::from_micros(86_399_999_999));
        assert!(Policy::from(longest).name().as_str().len() <= PolicyName::MAX_LENGTH);
    }
}
