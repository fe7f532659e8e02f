//! `[policies]`: quotas, and those of tiers.

use super::error::{Faults, Path};
use super::fields::{Fields, duration, entries, number, text};
use super::raw::Node;
use crate::algorithm::{Quota, QuotaError};
use crate::policy::{Policy, parse_duration};

/// All policies that make sense, in the order of their names.
pub(super) fn read(node: &Node, path: &Path<'_>, faults: &mut Faults) -> Option<Vec<Policy>> {
    let entries = entries(node, path, r#"api = { quota = "60/min" }"#, faults)?;
    if entries.is_empty() {
        faults.add(path, "there is none, so nothing would be limited; write one");
    }
    if entries.len() > MOST_POLICIES {
        faults.add(path, format_args!("there are {}; there may be {MOST_POLICIES} at most", entries.len()));
        return None;
    }
    let mut policies: Vec<Policy> =
        entries.into_iter().filter_map(|(name, node)| policy(name, node, &path.field(name), faults)).collect();
    policies.sort_unstable_by(|a, b| a.name().as_str().cmp(b.name().as_str()));
    let quotas: usize = policies.iter().map(|policy| 1 + policy.tiers().count()).sum();
    if quotas > MOST_QUOTAS {
        faults
            .add(path, format_args!("they have {quotas} quotas with their tiers'; there may be {MOST_QUOTAS} at most"));
    }
    Some(policies)
}

fn policy(name: &str, node: &Node, path: &Path<'_>, faults: &mut Faults) -> Option<Policy> {
    let mut fields = Fields::of(node, path, r#"quota = "60/min""#, faults)?;
    let own = fields.need("quota", "\"60/min\"", faults, quota);
    let tiers = fields.read("tiers", faults, tiers);
    fields.end(faults);
    // Whatever the quotas are, the name is right or wrong.
    let mut policy = match Policy::try_new(name, own.unwrap_or(STAND_IN)) {
        Ok(policy) => policy,
        Err(error) => {
            faults.add_cause(path, error);
            return None;
        }
    };
    own?;
    let path = path.field("tiers");
    let bare = policy.clone();
    for (tier, quota) in tiers.unwrap_or_default() {
        // Tried first on one that may be lost by it.
        let tried =
            bare.clone().try_tier(tier.to_owned(), quota).map_err(|error| faults.add_cause(&path.field(tier), error));
        if tried.is_ok() {
            policy = policy.try_tier(tier.to_owned(), quota).map_err(|error| faults.add_cause(&path, error)).ok()?;
        }
    }
    Some(policy)
}

/// Tiers in the order of their names.
fn tiers<'n>(node: &'n Node, path: &Path<'_>, faults: &mut Faults) -> Option<Vec<(&'n str, Quota)>> {
    let entries = entries(node, path, r#"premium = "200/min""#, faults)?;
    if entries.len() > MOST_TIERS {
        faults.add(path, format_args!("there are {}; a policy may have {MOST_TIERS} at most", entries.len()));
        return None;
    }
    let mut tiers = Vec::new();
    for (tier, node) in entries {
        let path = path.field(tier);
        if tier.is_empty() || tier.len() > LONGEST_TIER {
            faults.add(&path, format_args!("a tier's name must be 1 to {LONGEST_TIER} bytes long"));
        }
        if let Some(quota) = quota(node, &path, faults) {
            tiers.push((tier, quota));
        }
    }
    tiers.sort_unstable_by_key(|(tier, _)| *tier);
    Some(tiers)
}

/// As text, or as a table: the same as [`Quota`]'s own `Deserialize`.
fn quota(node: &Node, path: &Path<'_>, faults: &mut Faults) -> Option<Quota> {
    match node {
        Node::Text(text) => text.parse().map_err(|error| faults.add_cause(path, error)).ok(),
        Node::Table(_) => table(node, path, faults),
        _ => {
            faults.add(path, format_args!("{node} is no quota; write a text, as in \"10/s burst 50\", or a table"));
            None
        }
    }
}

fn table(node: &Node, path: &Path<'_>, faults: &mut Faults) -> Option<Quota> {
    let most = Quota::MAX_TOKENS;
    let mut fields = Fields::of(node, path, r#"rate = 60, period = "1 min""#, faults)?;
    let unsaid = (!fields.has("algorithm")).then_some(Quota::try_token_bucket as Build);
    let algorithm = fields.read("algorithm", faults, algorithm).or(unsaid);
    let rate = fields.need("rate", "100", faults, |node, path, faults| number(node, 1, most, path, faults));
    let period = fields.need("period", "\"1 min\"", faults, duration);
    let capacity = fields.read("capacity", faults, |node, path, faults| number(node, 0, most, path, faults));
    let reserved = fields.read("max_reserved", faults, reserved);
    let start = fields.read("start", faults, start);
    fields.end(faults);
    let (build, rate, period) = (algorithm?, rate?, period?);
    let built = || -> Result<Quota, QuotaError> {
        let mut quota = build(rate, period)?;
        if let Some(capacity) = capacity {
            quota = quota.try_capacity(capacity)?;
        }
        match reserved {
            Some(Some(tokens)) => quota = quota.try_max_reserved(tokens)?,
            Some(None) => quota = quota.try_unlimited_reservations()?,
            None => {}
        }
        if let Some(start) = start {
            quota = quota.try_start(start)?;
        }
        quota.validate()?;
        Ok(quota)
    };
    built().map_err(|error| faults.add_cause(path, error)).ok()
}

type Build = fn(u64, std::time::Duration) -> Result<Quota, QuotaError>;

fn algorithm(node: &Node, path: &Path<'_>, faults: &mut Faults) -> Option<Build> {
    match text(node, path, faults)? {
        "token_bucket" => Some(Quota::try_token_bucket),
        "fixed_window" => Some(Quota::try_fixed_window),
        "sliding_window" => Some(Quota::try_sliding_window),
        _ => {
            faults.add(
                path,
                format_args!("{node} is no algorithm; write \"token_bucket\", \"fixed_window\" or \"sliding_window\""),
            );
            None
        }
    }
}

/// `Some(None)` = without bound.
fn reserved(node: &Node, path: &Path<'_>, faults: &mut Faults) -> Option<Option<u64>> {
    match node {
        Node::Text(text) if text == "unlimited" => Some(None),
        Node::Text(_) => {
            faults.add(path, format_args!("{node} is no number of tokens; write one, or \"unlimited\""));
            None
        }
        _ => number(node, 0, Quota::MAX_TOKENS, path, faults).map(Some),
    }
}

/// A duration of any length: 0 is midnight UTC, and more than a period goes round.
fn start(node: &Node, path: &Path<'_>, faults: &mut Faults) -> Option<std::time::Duration> {
    match node {
        Node::Text(text) => parse_duration(text).or_else(|| duration(node, path, faults)),
        _ => duration(node, path, faults),
    }
}

/// For looking at the rest of a policy whose quota is none.
const STAND_IN: Quota = Quota::per_minute(1);

/// With their tiers' quotas they have room among those that a limiter changes at run time.
const MOST_POLICIES: usize = 10_000;

/// They are looked through one by one at each decision.
const MOST_TIERS: usize = 100;

/// Half of what a limiter can change at run time.
const MOST_QUOTAS: usize = 50_000;

const LONGEST_TIER: usize = 128;
