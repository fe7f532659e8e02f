//! `tollgate check`: the faults of a configuration file, and which quota applies where.

use std::fmt::Write;
use std::path::PathBuf;

use tollgate::{Config, Policy};

use crate::simulate::limit::read_config;

/// Checks a configuration file and shows which quota applies to which route and tier.
#[derive(clap::Args, Debug)]
pub struct Check {
    /// The file, in TOML, or in JSON if its name ends with .json
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

/// The quotas of a policy, by tier.
fn quotas(policy: &Policy) -> Vec<(String, String)> {
    let own = ("no tier".to_owned(), policy.quotas().to_string());
    let tiers = policy.tiers().map(|(tier, quotas)| (format!("tier {tier:?}"), quotas.to_string()));
    std::iter::once(own).chain(tiers).collect()
}

fn as_text(config: &Config) -> String {
    let mut text = String::new();
    for policy in config.policies() {
        _ = writeln!(text, "policy {}", policy.name());
        for (tier, quotas) in quotas(policy) {
            _ = writeln!(text, "  {tier}: {quotas}");
        }
    }
    for (route, policy) in config.routes() {
        _ = writeln!(text, "route {route}: {}", policy.name());
    }
    if let Some(policy) = config.default_policy() {
        _ = writeln!(text, "other routes: {}", policy.name());
    }
    text
}

fn as_json(config: &Config) -> serde_json::Value {
    let policies: serde_json::Map<_, _> = config
        .policies()
        .map(|policy| {
            let tiers: serde_json::Map<_, _> =
                policy.tiers().map(|(tier, quotas)| (tier.to_owned(), quotas.to_string().into())).collect();
            (policy.name().to_string(), serde_json::json!({ "quota": policy.quotas().to_string(), "tiers": tiers }))
        })
        .collect();
    let routes: Vec<_> = config
        .routes()
        .map(|(route, policy)| serde_json::json!({ "route": route, "policy": policy.name().to_string() }))
        .collect();
    let other = config.default_policy().map(|policy| policy.name().to_string());
    serde_json::json!({ "policies": policies, "routes": routes, "other_routes": other })
}
