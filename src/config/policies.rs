//! The `[policies]` table, which contains the quotas, tiers and other settings of policies.

use std::collections::BTreeMap;
use std::time::Duration;

use super::fields::POLICY;
use super::quota;
use super::reader::Keys;
use super::value::Value;
use crate::algorithm::Quota;
#[cfg(feature = "wait")]
use crate::middleware::allows_reservations;
use crate::middleware::impossible_cost;
use crate::policy::{Enforce, Policy, Quotas, limit_conflict};

#[derive(Clone, Debug)]
pub(super) struct ConfiguredPolicy {
    pub(super) policy: Policy,
    pub(super) settings: Settings,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Settings {
    /// The name of the key extractor. If `None`, the layer's extractor is used.
    pub(super) key: Option<String>,
    pub(super) cost: Option<u64>,
    pub(super) wait: Option<Duration>,
}

pub(super) fn read(value: &Value<'_>, keys: &Keys) -> Option<BTreeMap<String, ConfiguredPolicy>> {
    let entries = value.entries(r#"api = { quota = "60/min" }"#)?;
    if entries.is_empty() {
        value.fault("no policies, so nothing would be limited; add one");
    }
    if entries.len() > MAX_POLICIES {
        return value.refuse(format_args!("found {} policies; at most {MAX_POLICIES} are allowed", entries.len()));
    }
    let policies = entries.iter().filter_map(|(name, value)| Some(((*name).to_owned(), policy(name, value, keys)?)));
    let policies: BTreeMap<String, ConfiguredPolicy> = policies.collect();
    if let Some(conflict) = limit_conflict(policies.values().map(|configured| &configured.policy)) {
        value.fault(conflict);
    }
    let quotas: usize = policies.values().map(|configured| 1 + configured.policy.tiers().count()).sum();
    if quotas > MAX_QUOTAS {
        value.fault(format_args!("found {quotas} quotas in policies and tiers; at most {MAX_QUOTAS} are allowed"));
    }
    Some(policies)
}

fn policy(name: &str, value: &Value<'_>, keys: &Keys) -> Option<ConfiguredPolicy> {
    let mut fields = value.fields(&POLICY)?;
    let own = fields.need("quota").and_then(|value| quota::read_list(&value));
    let tiers = fields.take("tiers").and_then(|value| tiers(&value));
    let key = fields.take("key").and_then(|value| keys.name(&value)).map(str::to_owned);
    let cost = fields.take("cost").and_then(|value| Some((value.number(0, Quota::MAX_TOKENS)?, value)));
    let wait = fields.take("wait").and_then(|value| Some((value.duration()?, value)));
    let shadow = fields.take("shadow").and_then(|value| value.boolean());
    let leases = fields.take("leases").and_then(|value| value.boolean());
    let enforce = fields.take("enforce").and_then(|value| Some((value.share()?, value)));
    fields.end();
    let mut policy = value.accept(Policy::try_new(name, own.unwrap_or(PLACEHOLDER_QUOTA.into())))?;
    own?;
    for (tier, value, quotas) in tiers.unwrap_or_default() {
        value.accept(policy.add_tier(tier.to_owned().into(), quotas));
    }
    if let (Some(true), Some((_, value))) = (shadow, &enforce) {
        value.fault("the policy is in shadow mode, so nothing is enforced; remove `shadow` or `enforce`");
    }
    let enforce =
        enforce.map_or(if shadow == Some(true) { Enforce::Never } else { Enforce::Always }, |(share, _)| share);
    let policy = value.accept(policy.try_enforce(enforce))?;
    let policy = if leases == Some(true) { policy.leases() } else { policy };
    let wait = wait.and_then(|(wait, value)| check_wait(wait, &policy, &value));
    let cost = cost.map(|(cost, value)| {
        check_cost(cost, &policy, wait.is_some(), &value);
        cost
    });
    Some(ConfiguredPolicy { policy, settings: Settings { key, cost, wait } })
}

#[cfg(feature = "wait")]
fn check_wait(wait: Duration, policy: &Policy, value: &Value<'_>) -> Option<Duration> {
    if allows_reservations(policy) {
        return Some(wait);
    }
    value.refuse(
        "the policy allows no reservations, so no request could wait; add `reserve 10` to a quota, or remove `wait` \
         (sliding windows do not support reservations)",
    )
}

#[cfg(not(feature = "wait"))]
fn check_wait(_: Duration, _: &Policy, value: &Value<'_>) -> Option<Duration> {
    value.refuse("waiting requires the `wait` feature of tollgate; enable the feature, or remove this line")
}

/// Adds a fault to `value` if a quota can never grant `cost`.
pub(super) fn check_cost(cost: u64, policy: &Policy, waits: bool, value: &Value<'_>) {
    if let Some((tier, what)) = impossible_cost(policy, cost, waits) {
        let tier = tier.map_or(String::new(), |tier| format!(", tier {tier:?}"));
        value.fault(format_args!("policy {:?}{tier}: {what}", policy.name()));
    }
}

fn tiers<'n>(value: &Value<'n>) -> Option<Vec<(&'n str, Value<'n>, Quotas)>> {
    let entries = value.entries(r#"premium = "200/min""#)?;
    if entries.len() > MAX_TIERS {
        return value
            .refuse(format_args!("found {} tiers; at most {MAX_TIERS} are allowed in a policy", entries.len()));
    }
    let mut tiers = Vec::new();
    for (tier, value) in entries {
        if tier.is_empty() || tier.len() > MAX_TIER_LEN {
            let len = tier.len();
            value.fault(format_args!("expected a tier name of 1 to {MAX_TIER_LEN} bytes, found {len} bytes"));
        }
        if let Some(quotas) = quota::read_list(&value) {
            tiers.push((tier, value, quotas));
        }
    }
    tiers.sort_unstable_by_key(|(tier, ..)| *tier);
    Some(tiers)
}

/// Stands in for a missing or invalid quota, so that the policy's name is checked anyway.
const PLACEHOLDER_QUOTA: Quota = Quota::per_minute(1);

const MAX_POLICIES: usize = 10_000;

/// The number of tiers is bounded because each decision searches through them one by one.
const MAX_TIERS: usize = 100;

/// This is half the number of quotas that can be set at run time.
const MAX_QUOTAS: usize = 50_000;

const MAX_TIER_LEN: usize = 128;
