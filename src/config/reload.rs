//! Another version of a configuration, put in force while the program runs.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::error::{Faults, Path};
use super::{Config, ConfigError, ConfigErrorKind, restart};
use crate::algorithm::Quota;
use crate::limiter::{RateLimiter, SetQuotaError};
use crate::policy::{DenyRule, PolicyName};

impl Config {
    /// Puts `new` in force on `limiter`, which runs by this configuration: the quotas of policies and tiers, and the
    /// rules of the deny list. What callers have spent stays spent. Whatever was
    /// [set](RateLimiter::set_quota) by hand meanwhile, for a policy or a tier, gives way to the file, and so do rules
    /// that were added to the list; quotas of single keys and blocks stay.
    ///
    /// ```
    /// use tollgate::{config::ConfigError, Config, MemoryBackend};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), ConfigError> {
    /// let read = |text: &str| Config::parse("limits.json", text, |text| serde_json::from_str(text));
    /// let config = read(r#"{"policies": {"api": {"quota": "30/min"}}}"#)?;
    /// let limiter = config.limiter(MemoryBackend::new()).build();
    ///
    /// let reloaded = config.reload(&limiter, &read(r#"{"policies": {"api": {"quota": "20/min"}}}"#)?).await?;
    /// assert_eq!(reloaded.to_string(), "policies.api.quota: 30/min → 20/min");
    ///
    /// let error = config.reload(&limiter, &read(r#"{"policies": {"web": {"quota": "20/min"}}}"#)?).await.unwrap_err();
    /// assert!(error.to_string().starts_with("limits.json: policies.api: it is missing"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// **On a backend that processes share** the quotas hold in all of them, whatever their own files say: reload in
    /// one of them, or the same file in each. They outlive the program: one that starts with another file should reload
    /// that (`config.reload(&limiter, &config)`), or what was set before is in force. Deny lists are each process's
    /// own.
    ///
    /// A policy's tiers are told before its own quota, so no tier's caller has the wrong one meanwhile; requests that
    /// come during a reload may find some policies as they were and others as they will be.
    ///
    /// # Errors
    /// - If something else changed than can while a program runs ([`ConfigErrorKind::Restart`]): policies or tiers came
    ///   or went, an algorithm, the default policy, routes, automatic blocking. All such changes are told, and nothing
    ///   has changed.
    /// - If another reload is under way ([`ConfigErrorKind::Busy`]); nothing has changed by this one.
    /// - If the limiter cannot be told a quota ([`ConfigErrorKind::Limiter`]). Those before it are in force; reload
    ///   again.
    pub async fn reload(&self, limiter: &RateLimiter, new: &Config) -> Result<Reloaded, ConfigError> {
        let faults = Faults::default();
        restart::compare(self, new, &faults);
        if !faults.is_empty() {
            return Err(faults.into_error(ConfigErrorKind::Restart, &new.name));
        }
        let Some(_until_done) = Turn::take(&self.is_reloading) else {
            let what = "another reload is under way; reload again when it is done";
            return Err(ConfigError::new(ConfigErrorKind::Busy, &new.name, what));
        };

        let mut reloaded = Reloaded { quotas: Vec::new(), added: Vec::new(), removed: Vec::new() };
        for (policy, wanted) in self.policies().zip(new.policies()) {
            // Whether a quota has to be set, for all that is known here.
            let differs = |tier: Option<&str>, quota: &Quota| {
                limiter.shares_quotas() || limiter.quota_in_force(policy, tier) != *quota
            };
            // A policy's own quota, once set, counts for every tier that has none set for itself: so it is set last.
            let all = differs(None, wanted.quota());
            let tiers = wanted.tiers().map(|(tier, quota)| (Some(tier), quota));
            for (tier, quota) in tiers.chain([(None, wanted.quota())]) {
                if !all && !differs(tier, quota) {
                    continue;
                }
                let (was, is) = (limiter.quota_in_force(policy, tier), *quota);
                let change =
                    QuotaChange { policy: policy.name().clone(), tier: tier.map(str::to_owned), old: was, new: is };
                let set = match tier {
                    Some(tier) => limiter.set_tier_quota(policy, tier, Some(is)).await,
                    None => limiter.set_quota(policy, Some(is)).await,
                };
                set.map_err(|error| {
                    let what = format!("{is} could not be set, nor what comes after it, the deny list included");
                    new.not_set(&change.path(), what, error)
                })?;
                if was != is {
                    reloaded.quotas.push(change);
                }
            }
            // What another version of the file said of tiers that are gone.
            for tier in limiter.changed_tiers(policy.name()) {
                if !wanted.tiers().any(|(known, _)| known == tier) {
                    limiter.set_tier_quota(policy, &tier, None).await.map_err(|error| {
                        let path = Path::FILE.field("policies").field(policy.name().as_str());
                        new.not_set(&path, format!("what was set for tier {tier:?} could not be taken back"), error)
                    })?;
                }
            }
        }

        let was: HashSet<Arc<DenyRule>> = self.deny.rules().into_iter().collect();
        let will: HashSet<Arc<DenyRule>> = new.deny.rules().into_iter().collect();
        reloaded.added = will.difference(&was).cloned().collect();
        reloaded.removed = was.difference(&will).cloned().collect();
        // A program that uses the new policies, too, makes no mistake.
        limiter.succeed(new.policies());
        if reloaded.added.len() + reloaded.removed.len() > 0 {
            self.deny.replace(will.into_iter().map(Arc::unwrap_or_clone));
        }
        Ok(reloaded)
    }

    /// The error of a reload that stopped at a quota.
    fn not_set(&self, path: &Path, what: String, cause: SetQuotaError) -> ConfigError {
        let faults = Faults::default();
        faults.add_cause(path, format!("{what}: {cause}; reload again"), cause);
        faults.into_error(ConfigErrorKind::Limiter, &self.name)
    }
}

/// What a [reload](Config::reload) changed. Its `Display` has a line for each change, at most twenty
/// of quotas and twenty of rules. It shows no key.
///
/// ```
/// use tollgate::{config::ConfigError, Config, MemoryBackend};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), ConfigError> {
/// let read = |text: &str| Config::parse("limits.json", text, |text| serde_json::from_str(text));
/// let config = read(r#"{"policies": {"api": {"quota": "30/min"}}}"#)?;
/// let limiter = config.limiter(MemoryBackend::new()).build();
/// assert!(config.reload(&limiter, &config).await?.is_empty());
///
/// let new = read(r#"{"policies": {"api": {"quota": "20/min"}}, "deny": {"ips": ["192.0.2.0/24"]}}"#)?;
/// let reloaded = config.reload(&limiter, &new).await?;
/// assert_eq!((reloaded.quotas().len(), reloaded.rules_added().len(), reloaded.rules_removed().len()), (1, 1, 0));
/// assert_eq!(reloaded.to_string(), "policies.api.quota: 30/min → 20/min\ndeny: added network 192.0.2.0/24");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Reloaded {
    quotas: Vec<QuotaChange>,
    added: Vec<Arc<DenyRule>>,
    removed: Vec<Arc<DenyRule>>,
}

impl Reloaded {
    /// The quotas that are others now.
    pub fn quotas(&self) -> &[QuotaChange] {
        &self.quotas
    }

    /// The rules of the deny list that are new.
    pub fn rules_added(&self) -> impl ExactSizeIterator<Item = &DenyRule> {
        self.added.iter().map(|rule| &**rule)
    }

    /// The rules of the deny list that are gone.
    pub fn rules_removed(&self) -> impl ExactSizeIterator<Item = &DenyRule> {
        self.removed.iter().map(|rule| &**rule)
    }

    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.quotas.is_empty() && self.added.is_empty() && self.removed.is_empty()
    }
}

impl fmt::Display for Reloaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("nothing has changed");
        }
        let mut lines: Vec<String> = self.quotas.iter().take(MOST_TOLD).map(QuotaChange::to_string).collect();
        if self.quotas.len() > MOST_TOLD {
            lines.push(format!("policies: and {} other quotas", self.quotas.len() - MOST_TOLD));
        }
        let mut rules = BTreeMap::new();
        for (rules_of, what) in [(&self.added, "added"), (&self.removed, "removed")] {
            // Keys all read the same.
            rules_of.iter().for_each(|rule| *rules.entry((what, rule.to_string())).or_insert(0) += 1);
        }
        let more = rules.len().saturating_sub(MOST_TOLD);
        for ((what, rule), times) in rules.into_iter().take(MOST_TOLD) {
            let times = if times > 1 { format!(" ({times} times)") } else { String::new() };
            lines.push(format!("deny: {what} {rule}{times}"));
        }
        if more > 0 {
            lines.push(format!("deny: and {more} other rules"));
        }
        f.write_str(&lines.join("\n"))
    }
}

/// A quota that is another now.
///
/// ```
/// use tollgate::{config::ConfigError, Config, MemoryBackend, Quota};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), ConfigError> {
/// let read = |text: &str| Config::parse("limits.json", text, |text| serde_json::from_str(text));
/// let config = read(r#"{"policies": {"api": {"quota": "30/min", "tiers": {"free": "60/min"}}}}"#)?;
/// let limiter = config.limiter(MemoryBackend::new()).build();
/// let new = read(r#"{"policies": {"api": {"quota": "30/min", "tiers": {"free": "40/min"}}}}"#)?;
/// let reloaded = config.reload(&limiter, &new).await?;
///
/// let change = &reloaded.quotas()[0];
/// assert_eq!((change.policy().as_str(), change.tier()), ("api", Some("free")));
/// assert_eq!((change.old(), change.new()), (Quota::per_minute(60), Quota::per_minute(40)));
/// assert_eq!(change.to_string(), "policies.api.tiers.free: 60/min → 40/min");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaChange {
    policy: PolicyName,
    tier: Option<String>,
    old: Quota,
    new: Quota,
}

impl QuotaChange {
    /// The policy.
    pub const fn policy(&self) -> &PolicyName {
        &self.policy
    }

    /// The tier, if it is not the policy's own quota.
    pub fn tier(&self) -> Option<&str> {
        self.tier.as_deref()
    }

    /// The quota that was in force.
    pub const fn old(&self) -> Quota {
        self.old
    }

    /// The quota that is in force.
    pub const fn new(&self) -> Quota {
        self.new
    }

    /// Where it stands in the file.
    fn path(&self) -> Path {
        let path = Path::FILE.field("policies").field(self.policy.as_str());
        match &self.tier {
            Some(tier) => path.field("tiers").field(tier),
            None => path.field("quota"),
        }
    }
}

impl fmt::Display for QuotaChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} → {}", self.path(), self.old, self.new)
    }
}

/// Held by the one reload that is under way; given back when that is done, or dropped.
struct Turn<'a>(&'a AtomicBool);

impl<'a> Turn<'a> {
    fn take(is_taken: &'a AtomicBool) -> Option<Turn<'a>> {
        (!is_taken.swap(true, Ordering::Acquire)).then_some(Turn(is_taken))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Quotas that a message tells, and rules.
const MOST_TOLD: usize = 20;
