//! Applies a new version of a configuration while the program runs.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::error::{Faults, Path};
use super::{Config, ConfigError, ConfigErrorKind, restart};
use crate::limiter::{RateLimiter, SetQuotaError};
use crate::policy::{DenyRule, Enforce, PolicyName, Quotas};

impl Config {
    /// Applies `new` to `limiter`: sets the quotas of policies and tiers, the enforcement of policies (`shadow` and
    /// `enforce`), and the deny list's rules. Spent tokens stay spent. Call this on the configuration that the limiter
    /// was built from, not on a configuration that was applied later.
    ///
    /// The reload replaces quotas and enforcement that were [set](RateLimiter::set_quota) at run time for a policy or a
    /// tier, and rules that were added to the deny list at run time. Blocks and the quotas of individual keys remain.
    ///
    /// ```
    /// use tollgate::{config::ConfigError, Config, MemoryBackend, Quota};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), ConfigError> {
    /// let read = |text: &str| Config::parse("limits.json", text, |text| serde_json::from_str(text));
    /// let config = read(r#"{"policies": {"api": {"quota": "30/min"}}}"#)?;
    /// let limiter = config.limiter(MemoryBackend::new()).build();
    ///
    /// let new = r#"{"policies": {"api": {"quota": "20/min"}}, "deny": {"ips": ["192.0.2.0/24"]}}"#;
    /// let reloaded = config.reload(&limiter, &read(new)?).await?;
    /// assert_eq!(reloaded.to_string(), "policies.api.quota: 30/min → 20/min\ndeny: added network 192.0.2.0/24");
    /// assert_eq!((reloaded.quotas()[0].new(), reloaded.rules_added().len()), (Quota::per_minute(20).into(), 1));
    ///
    /// let error = config.reload(&limiter, &read(r#"{"policies": {"web": {"quota": "20/min"}}}"#)?).await.unwrap_err();
    /// assert!(error.to_string().starts_with("limits.json: policies.api: missing"));
    /// # Ok(()) }
    /// ```
    ///
    /// **On a shared backend**, quotas and enforcement apply to all processes, regardless of their own files, and
    /// outlive the program; see [`limiter`](Config::limiter). Each process has its own deny list, so reload the same
    /// file in each process. If the deny list has not changed, a reload in one process is enough.
    ///
    /// During a reload, a request may be checked against the old quotas of some policies and the new quotas of others.
    ///
    /// # Errors
    /// - [`ConfigErrorKind::Restart`] if a change needs a restart. Such changes are: adding or removing policies or
    ///   tiers; changing a policy's algorithm, key, cost, `wait` or `leases`; and changing `default`, `all_routes`,
    ///   `routes` or `auto_block`. The error lists these changes. Nothing is applied.
    /// - [`ConfigErrorKind::Busy`] if another reload is in progress. Nothing is applied.
    /// - [`ConfigErrorKind::Limiter`] if there are deny rules and the limiter lacks this configuration's deny list.
    ///   Nothing is applied. The error is also returned if the limiter cannot set a quota or a policy's enforcement. In
    ///   that case, changes made before the failure stay in force, and you can reload again.
    pub async fn reload(&self, limiter: &RateLimiter, new: &Config) -> Result<Reloaded, ConfigError> {
        let faults = Faults::default();
        restart::compare(self, new, &faults);
        if !faults.is_empty() {
            return Err(faults.into_error(ConfigErrorKind::Restart, &new.name));
        }
        let has_rules = !self.deny.is_empty() || !new.deny.is_empty();
        if has_rules && !self.has_deny_list_of(limiter) {
            faults.add(&Path::FILE.field("deny"), OTHER_DENY_LIST);
            return Err(faults.into_error(ConfigErrorKind::Limiter, &new.name));
        }
        let Some(_guard) = ReloadGuard::try_acquire(&self.is_reloading) else {
            let what = "another reload is in progress; retry when it is done";
            return Err(ConfigError::new(ConfigErrorKind::Busy, &new.name, what));
        };

        let mut reloaded =
            Reloaded { quotas: Vec::new(), enforcements: Vec::new(), added: Vec::new(), removed: Vec::new() };
        for (policy, target) in self.policies().zip(new.policies()) {
            let differs = |tier: Option<&str>, quotas: &Quotas| {
                limiter.shares_settings() || limiter.quotas_in_force(policy, tier) != *quotas
            };
            // A quota that is set for a policy also applies to the tiers for which no quota is set. Therefore, the
            // tiers' quotas are set first.
            let own_differs = differs(None, target.quotas());
            let tiers = target.tiers().map(|(tier, quotas)| (Some(tier), quotas));
            for (tier, quotas) in tiers.chain([(None, target.quotas())]) {
                if !own_differs && !differs(tier, quotas) {
                    continue;
                }
                let (old, new_quotas) = (limiter.quotas_in_force(policy, tier), *quotas);
                let change =
                    QuotaChange { policy: policy.name().clone(), tier: tier.map(str::to_owned), old, new: new_quotas };
                let set = match tier {
                    Some(tier) => limiter.set_tier_quota(policy, tier, new_quotas).await,
                    None => limiter.set_quota(policy, new_quotas).await,
                };
                set.map_err(|error| {
                    let what = format!("cannot set {new_quotas}, so the rest of the file is not applied");
                    new.not_set(&change.path(), what, error)
                })?;
                if old != new_quotas {
                    reloaded.quotas.push(change);
                }
            }
            for tier in limiter.changed_tiers(policy.name()) {
                if !target.tiers().any(|(known, _)| known == tier) {
                    limiter.set_tier_quota(policy, &tier, None).await.map_err(|error| {
                        let path = Path::FILE.field("policies").field(policy.name().as_str());
                        new.not_set(&path, format!("cannot reset the quota of tier {tier:?}"), error)
                    })?;
                }
            }
            let (old, enforce) = (limiter.enforcement(policy), target.enforcement());
            // Another process may have set an enforcement that this process has not yet read.
            if limiter.shares_settings() || old != enforce {
                let change = EnforcementChange { policy: policy.name().clone(), old, new: enforce };
                limiter.set_enforcement(policy, enforce).await.map_err(|error| {
                    let what = format!("cannot set {}, so the rest of the file is not applied", enforce.share());
                    new.not_set(&change.path(), what, error)
                })?;
                if old != enforce {
                    reloaded.enforcements.push(change);
                }
            }
        }

        let old_rules: HashSet<Arc<DenyRule>> = self.deny.rules().into_iter().collect();
        let new_rules: HashSet<Arc<DenyRule>> = new.deny.rules().into_iter().collect();
        reloaded.added = new_rules.difference(&old_rules).cloned().collect();
        reloaded.removed = old_rules.difference(&new_rules).cloned().collect();
        // Without this call, the limiter would report that the new policies conflict with the old ones.
        limiter.succeed(new.policies());
        if reloaded.added.len() + reloaded.removed.len() > 0 {
            self.deny.replace(new_rules.into_iter().map(Arc::unwrap_or_clone));
        }
        Ok(reloaded)
    }

    fn has_deny_list_of(&self, limiter: &RateLimiter) -> bool {
        limiter.deny_list().is_some_and(|list| list.is_same(&self.deny))
    }

    #[track_caller]
    pub(super) fn expect_limiter(&self, limiter: &RateLimiter) {
        let name = &self.name;
        assert!(self.deny.is_empty() || self.has_deny_list_of(limiter), "tollgate: {name}: deny: {OTHER_DENY_LIST}");
        assert!(
            self.auto_block.is_none() || limiter.counts_denials(),
            "tollgate: {name}: auto_block: the limiter does not block callers automatically; build it with \
             `config.limiter(backend)`"
        );
    }

    fn not_set(&self, path: &Path, what: String, cause: SetQuotaError) -> ConfigError {
        let faults = Faults::default();
        faults.add_cause(path, format!("{what}: {cause}; reload again"), cause);
        faults.into_error(ConfigErrorKind::Limiter, &self.name)
    }
}

/// The changes that [`Config::reload`] made. The `Display` output has one line per change, but lists at most twenty
/// changes of each kind. It never shows a key.
#[derive(Clone, Debug)]
pub struct Reloaded {
    quotas: Vec<QuotaChange>,
    enforcements: Vec<EnforcementChange>,
    added: Vec<Arc<DenyRule>>,
    removed: Vec<Arc<DenyRule>>,
}

impl Reloaded {
    /// Returns the quotas that were changed.
    pub fn quotas(&self) -> &[QuotaChange] {
        &self.quotas
    }

    /// Returns the policies whose enforcement was changed.
    pub fn enforcements(&self) -> &[EnforcementChange] {
        &self.enforcements
    }

    /// Returns the rules that were added to the deny list.
    pub fn rules_added(&self) -> impl ExactSizeIterator<Item = &DenyRule> {
        self.added.iter().map(|rule| &**rule)
    }

    /// Returns the rules that were removed from the deny list.
    pub fn rules_removed(&self) -> impl ExactSizeIterator<Item = &DenyRule> {
        self.removed.iter().map(|rule| &**rule)
    }

    /// Returns `true` if nothing was changed.
    pub fn is_empty(&self) -> bool {
        self.quotas.is_empty() && self.enforcements.is_empty() && self.added.is_empty() && self.removed.is_empty()
    }
}

impl fmt::Display for Reloaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("nothing has changed");
        }
        let mut lines: Vec<String> = self.quotas.iter().take(MAX_SHOWN).map(QuotaChange::to_string).collect();
        if self.quotas.len() > MAX_SHOWN {
            lines.push(format!("policies: quota changes not shown: {}", self.quotas.len() - MAX_SHOWN));
        }
        lines.extend(self.enforcements.iter().take(MAX_SHOWN).map(EnforcementChange::to_string));
        if self.enforcements.len() > MAX_SHOWN {
            lines.push(format!("policies: enforcement changes not shown: {}", self.enforcements.len() - MAX_SHOWN));
        }
        let mut rules = BTreeMap::new();
        for (rules_of, what) in [(&self.added, "added"), (&self.removed, "removed")] {
            rules_of.iter().for_each(|rule| *rules.entry((what, rule.to_string())).or_insert(0) += 1);
        }
        let more = rules.len().saturating_sub(MAX_SHOWN);
        for ((what, rule), count) in rules.into_iter().take(MAX_SHOWN) {
            let count = if count > 1 { format!(" ({count} rules)") } else { String::new() };
            lines.push(format!("deny: {what} {rule}{count}"));
        }
        if more > 0 {
            lines.push(format!("deny: changes not shown: {more}"));
        }
        f.write_str(&lines.join("\n"))
    }
}

/// A quota that a reload changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaChange {
    policy: PolicyName,
    tier: Option<String>,
    old: Quotas,
    new: Quotas,
}

impl QuotaChange {
    /// Returns the name of the policy.
    pub const fn policy(&self) -> &PolicyName {
        &self.policy
    }

    /// Returns the tier, or `None` if this is the policy's own quota.
    pub fn tier(&self) -> Option<&str> {
        self.tier.as_deref()
    }

    /// Returns the quotas before the reload.
    pub const fn old(&self) -> Quotas {
        self.old
    }

    /// Returns the quotas after the reload.
    #[allow(clippy::new_ret_no_self)] // `new` is the counterpart of `old`.
    pub const fn new(&self) -> Quotas {
        self.new
    }

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

/// A change that a reload made to a policy's enforcement.
#[derive(Clone, Debug, PartialEq)]
pub struct EnforcementChange {
    policy: PolicyName,
    old: Enforce,
    new: Enforce,
}

impl EnforcementChange {
    /// Returns the name of the policy.
    pub const fn policy(&self) -> &PolicyName {
        &self.policy
    }

    /// Returns the enforcement before the reload.
    pub const fn old(&self) -> Enforce {
        self.old
    }

    /// Returns the enforcement after the reload.
    #[allow(clippy::new_ret_no_self)] // `new` is the counterpart of `old`.
    pub const fn new(&self) -> Enforce {
        self.new
    }

    fn path(&self) -> Path {
        Path::FILE.field("policies").field(self.policy.as_str()).field("enforce")
    }
}

impl fmt::Display for EnforcementChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} → {}", self.path(), self.old.share(), self.new.share())
    }
}

struct ReloadGuard<'a>(&'a AtomicBool);

impl<'a> ReloadGuard<'a> {
    fn try_acquire(is_reloading: &'a AtomicBool) -> Option<ReloadGuard<'a>> {
        (!is_reloading.swap(true, Ordering::Acquire)).then_some(ReloadGuard(is_reloading))
    }
}

impl Drop for ReloadGuard<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

const MAX_SHOWN: usize = 20;

const OTHER_DENY_LIST: &str = "the limiter does not have this deny list; build it with `config.limiter(backend)`, or with \
     `.deny_list(config.deny_list())`";
