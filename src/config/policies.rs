//! The `[policies]` table, which contains the quotas of policies and tiers.

use std::collections::BTreeMap;

use super::quota;
use super::value::Value;
use crate::algorithm::Quota;
use crate::policy::{Policy, Quotas, limit_conflict};

pub(super) fn read(value: &Value<'_>) -> Option<BTreeMap<String, Policy>> {
    let entries = value.entries(r#"api = { quota = "60/min" }"#)?;
    if entries.is_empty() {
        value.fault("no policies, so nothing would be limited; add one");
    }
    if entries.len() > MAX_POLICIES {
        return value.refuse(format_args!("found {} policies; at most {MAX_POLICIES} are allowed", entries.len()));
    }
    let policies = entries.iter().filter_map(|(name, value)| Some(((*name).to_owned(), policy(name, value)?)));
    let policies: BTreeMap<String, Policy> = policies.collect();
    if let Some(conflict) = limit_conflict(policies.values()) {
        value.fault(conflict);
    }
    let quotas: usize = policies.values().map(|policy| 1 + policy.tiers().count()).sum();
    if quotas > MAX_QUOTAS {
        value.fault(format_args!("found {quotas} quotas of policies and tiers; at most {MAX_QUOTAS} are allowed"));
    }
    Some(policies)
}

fn policy(name: &str, value: &Value<'_>) -> Option<Policy> {
    let mut fields = value.fields(r#"quota = "60/min""#)?;
    let own = fields.need("quota", "\"60/min\"").and_then(|value| quota::read_list(&value));
    let tiers = fields.take("tiers").and_then(|value| tiers(&value));
    fields.end();
    let mut policy = value.accept(Policy::try_new(name, own.unwrap_or(PLACEHOLDER_QUOTA.into())))?;
    own?;
    for (tier, value, quotas) in tiers.unwrap_or_default() {
        value.accept(policy.add_tier(tier.to_owned().into(), quotas));
    }
    Some(policy)
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

/// Takes the place of an invalid quota while the rest of the policy is checked.
const PLACEHOLDER_QUOTA: Quota = Quota::per_minute(1);

const MAX_POLICIES: usize = 10_000;

/// The number is bounded because each decision searches through the tiers one by one.
const MAX_TIERS: usize = 100;

/// This is half the number of quotas that can be set at run time.
const MAX_QUOTAS: usize = 50_000;

const MAX_TIER_LEN: usize = 128;
