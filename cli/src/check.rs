//! `tollgate check`: the errors in a configuration file, which quota applies where, and what has no effect.

use std::fmt::Write;
use std::path::PathBuf;

use ipnet::IpNet;
use serde_json::json;
use tollgate::algorithm::Algorithm;
use tollgate::policy::{Enforce, Quotas};
use tollgate::{Config, Policy, Quota};

use crate::simulate::limit::read_config;

/// Checks a configuration file and shows which quota applies to which route and tier, and what has no effect.
#[derive(clap::Args, Debug)]
pub struct Check {
    /// The file, which is parsed as JSON if its name ends with .json, and as TOML otherwise
    file: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Check {
    pub fn run(&self) -> Result<(), String> {
        let (config, _) = read_config(&self.file)?;
        match self.json {
            true => println!("{:#}", as_json(&config)),
            false => print!("{}", as_text(&config)),
        }
        Ok(())
    }
}

fn enforcement(policy: &Policy) -> Option<String> {
    match policy.enforcement() {
        Enforce::Always => None,
        Enforce::Never => Some("not enforced (shadow mode)".to_owned()),
        Enforce::Share(share) => Some(format!("enforced for {}% of the keys", share * 100.0)),
        other => Some(format!("{other:?}")),
    }
}

fn as_text(config: &Config) -> String {
    let mut text = String::new();
    for policy in config.policies() {
        _ = writeln!(text, "policy {}", policy.name());
        _ = writeln!(text, "  no tier: {}", policy.quotas());
        for (tier, quotas) in policy.tiers() {
            _ = writeln!(text, "  tier {tier:?}: {quotas}");
        }
        enforcement(policy).into_iter().for_each(|enforcement| _ = writeln!(text, "  {enforcement}"));
    }
    for (route, policy) in config.routes() {
        _ = writeln!(text, "route {route}: {}", policy.name());
    }
    config.default_policies().for_each(|policy| _ = writeln!(text, "other routes: {}", policy.name()));
    config.all_routes().for_each(|policy| _ = writeln!(text, "all routes: {}", policy.name()));
    let denied = config.deny_list().len();
    if denied > 0 {
        _ = writeln!(text, "deny list: {denied} rules");
    }
    without_effect(config).iter().for_each(|note| _ = writeln!(text, "no effect: {note}"));
    text
}

fn as_json(config: &Config) -> serde_json::Value {
    let policy = |policy: &Policy| {
        let tiers: serde_json::Map<_, _> =
            policy.tiers().map(|(tier, quotas)| (tier.to_owned(), quotas.to_string().into())).collect();
        let quota = policy.quotas().to_string();
        (policy.name().to_string(), json!({ "quota": quota, "tiers": tiers, "enforcement": enforcement(policy) }))
    };
    let policies: serde_json::Map<_, _> = config.policies().map(policy).collect();
    let name = |policy: &Policy| policy.name().to_string();
    let routes: Vec<_> =
        config.routes().map(|(route, policy)| json!({ "route": route, "policy": name(policy) })).collect();
    let [other, all] =
        [config.default_policies().map(name).collect::<Vec<_>>(), config.all_routes().map(name).collect()];
    json!({
        "policies": policies,
        "routes": routes,
        "other_routes": other,
        "all_routes": all,
        "deny_rules": config.deny_list().len(),
        "no_effect": without_effect(config),
    })
}

/// Lists the settings that can never affect a decision.
fn without_effect(config: &Config) -> Vec<String> {
    let mut notes = Vec::new();
    for policy in config.policies() {
        let name = policy.name();
        let mut used =
            config.routes().map(|(_, policy)| policy).chain(config.default_policies()).chain(config.all_routes());
        if !used.any(|used| used.name() == name) {
            notes.push(format!(
                "no request falls under the policy {name}; add it to `routes`, `default` or `all_routes`"
            ));
        }
        notes.extend(slack(policy.quotas()).map(|note| format!("policy {name}: {note}")));
        for (tier, quotas) in policy.tiers() {
            if quotas == policy.quotas() {
                notes.push(format!("policy {name}: the tier {tier:?} has the same quotas as callers without a tier"));
            }
            notes.extend(slack(quotas).map(|note| format!("policy {name}, tier {tier:?}: {note}")));
        }
    }
    let catches_all = |line: &str| line.starts_with("/{*") && !line[1..].contains('/');
    if let Some((line, _)) = config.routes().find(|(line, _)| catches_all(line)) {
        let policies: Vec<String> = config.default_policies().map(|policy| policy.name().to_string()).collect();
        if !policies.is_empty() {
            notes.push(format!(
                "`default` ({}) applies only to the path /, because the route {line} matches all others",
                policies.join(", ")
            ));
        }
    }
    notes.extend(covered_networks(config));
    notes
}

/// Finds quotas that never deny a request because another quota in the list always denies it first.
fn slack(quotas: &Quotas) -> impl Iterator<Item = String> {
    quotas.iter().filter_map(|loose| {
        let tight = quotas.iter().find(|tight| *tight != loose && is_within(tight, loose))?;
        Some(format!("{loose} never denies a request, because {tight} never admits that many"))
    })
}

/// Returns whether `tight` never admits more requests than `loose` would admit.
fn is_within(tight: &Quota, loose: &Quota) -> bool {
    let reserves = |quota: &Quota| quota.get_max_reserved() != Some(0);
    if reserves(tight) || reserves(loose) {
        return false;
    }
    // In any period of length t, `tight` admits at most `burst + rate * t / period` requests.
    let burst = match tight.algorithm() {
        Algorithm::TokenBucket => u128::from(tight.get_capacity()),
        _ => 2 * u128::from(tight.get_capacity()),
    };
    let [rate, other] = [tight, loose].map(|quota| u128::from(quota.rate()));
    let [period, other_period] = [tight, loose].map(|quota| quota.period().as_micros());
    match loose.algorithm() {
        Algorithm::TokenBucket => burst <= u128::from(loose.get_capacity()) && rate * other_period <= other * period,
        // A window lasts for one period.
        _ => burst * period + rate * other_period <= u128::from(loose.get_capacity()) * period,
    }
}

/// Finds networks on the deny list that are inside another network on the list.
fn covered_networks(config: &Config) -> Vec<String> {
    let rules: Vec<String> = config.deny_list().rules().iter().map(ToString::to_string).collect();
    let mut networks: Vec<IpNet> =
        rules.iter().filter_map(|rule| rule.strip_prefix("network ")?.parse().ok()).collect();
    // After sorting, a network comes before the networks inside it.
    networks.sort();
    let (mut notes, mut cover) = (Vec::new(), None::<IpNet>);
    for network in networks {
        match cover.filter(|cover| cover.contains(&network)) {
            Some(cover) => notes.push(format!("the deny rule for {network}, because the rule for {cover} includes it")),
            None => cover = Some(network),
        }
    }
    notes
}
