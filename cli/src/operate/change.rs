//! `tollgate reset`, `credit`, `block`, `unblock`, `quota` and `enforce`.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::NOTHING_OR_LIMITED;
use super::client::{Server, scope};
use super::show::print;

impl Server {
    /// Makes a change and prints what was done.
    fn change(&self, path: &str, body: Value, done: &str) -> Result<u8, String> {
        let answer = self.connect()?.post(path, &body)?;
        let found = answer["found"] != false;
        print(&answer, self.json, |out| {
            let done = if found { done } else { "nothing to change" };
            *out += &format!("{done} in {}\n", scope(&answer["scope"]));
        });
        Ok(if found { 0 } else { NOTHING_OR_LIMITED })
    }
}

/// Restores the full quota of a key, or of all keys of a policy. Exits with 3 if the key has spent nothing.
#[derive(clap::Args, Debug)]
pub struct Reset {
    /// The key in its text form: '"ada"', 42, 192.0.2.7, bearer:…, 'header(x-user):ada', digest:…
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    key: Option<String>,
    /// Reset all keys of the policy
    #[arg(long)]
    all: bool,
    /// The name of the policy
    #[arg(long)]
    policy: String,
    #[command(flatten)]
    server: Server,
}

impl Reset {
    pub fn run(&self) -> Result<u8, String> {
        let body = match &self.key {
            Some(key) => json!({ "policy": self.policy, "key": key }),
            None => json!({ "policy": self.policy, "all": true }),
        };
        self.server.change("reset", body, "reset")
    }
}

/// Gives spent tokens back to a key. Exits with 3 if it has spent nothing.
#[derive(clap::Args, Debug)]
pub struct Credit {
    /// The key in its text form: '"ada"', 42, 192.0.2.7, bearer:…, 'header(x-user):ada', digest:…
    key: String,
    /// The name of the policy
    #[arg(long)]
    policy: String,
    /// How many tokens to give back
    #[arg(long)]
    tokens: u64,
    /// The caller's tier; defaults to the tier under which the key was last charged
    #[arg(long)]
    tier: Option<String>,
    #[command(flatten)]
    server: Server,
}

impl Credit {
    pub fn run(&self) -> Result<u8, String> {
        let mut body = json!({ "policy": self.policy, "key": self.key, "tokens": self.tokens });
        self.tier.iter().for_each(|tier| body["tier"] = json!(tier));
        self.server.change("credit", body, "credited")
    }
}

/// A caller that can be blocked.
#[derive(clap::Args, Debug)]
#[group(required = true, multiple = false)]
struct Target {
    /// The key in its text form: '"ada"', 42, 192.0.2.7, bearer:…, 'header(x-user):ada', digest:…
    key: Option<String>,
    /// The client address; for IPv6, its /64 network
    #[arg(long)]
    ip: Option<IpAddr>,
    /// The exact user agent
    #[arg(long)]
    user_agent: Option<String>,
    /// A label, such as asn=64496
    #[arg(long, value_parser = parse_label)]
    label: Option<(String, String)>,
}

fn parse_label(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected name=value, such as asn=64496")?;
    Ok((name.to_owned(), value.to_owned()))
}

impl Target {
    fn to_json(&self) -> Value {
        let Target { key, ip, user_agent, label } = self;
        match (key, ip, user_agent, label) {
            (Some(key), ..) => json!({ "key": key }),
            (_, Some(ip), ..) => json!({ "ip": ip }),
            (_, _, Some(user_agent), _) => json!({ "user_agent": user_agent }),
            (.., Some((name, value))) => json!({ "label": { "name": name, "value": value } }),
            _ => json!({}),
        }
    }
}

/// Blocks a caller under every policy.
#[derive(clap::Args, Debug)]
pub struct Block {
    #[command(flatten)]
    target: Target,
    /// How long the block lasts, such as 15min, 2h or 7d
    #[arg(long = "for", value_name = "TIME")]
    lasts: String,
    #[command(flatten)]
    server: Server,
}

impl Block {
    pub fn run(&self) -> Result<u8, String> {
        let mut body = self.target.to_json();
        body["lasts"] = json!(self.lasts);
        self.server.change("block", body, &format!("blocked for {}", self.lasts))
    }
}

/// Lifts all manual and automatic blocks of a key, an address, a user agent or a label. Exits with 3 if there was no
/// block.
#[derive(clap::Args, Debug)]
pub struct Unblock {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    server: Server,
}

impl Unblock {
    pub fn run(&self) -> Result<u8, String> {
        self.server.change("unblock", self.target.to_json(), "unblocked")
    }
}

/// Sets a quota for a key, a tier or all callers of a policy, or restores the program's quota.
#[derive(clap::Args, Debug)]
pub struct Quota {
    /// The quota, such as '100/min burst 200'
    #[arg(required_unless_present = "restore", conflicts_with = "restore")]
    quota: Option<String>,
    /// Restore the program's quota
    #[arg(long)]
    restore: bool,
    /// The name of the policy
    #[arg(long)]
    policy: String,
    /// Set or restore the quota only for this tier
    #[arg(long, conflicts_with = "key")]
    tier: Option<String>,
    /// Set or restore the quota only for this key, given in its text form
    #[arg(long)]
    key: Option<String>,
    #[command(flatten)]
    server: Server,
}

impl Quota {
    pub fn run(&self) -> Result<u8, String> {
        let mut body = json!({ "policy": self.policy, "quota": self.quota });
        for (name, value) in [("tier", &self.tier), ("key", &self.key)] {
            value.iter().for_each(|value| body[name] = json!(value));
        }
        self.server.change("quota", body, if self.restore { "restored" } else { "set" })
    }
}

/// Sets the share of the keys for which a policy is enforced, or restores the program's setting.
#[derive(clap::Args, Debug)]
pub struct Enforce {
    /// The share, from 0.0 (no keys, shadow mode) to 1.0 (all keys)
    #[arg(required_unless_present = "restore", conflicts_with = "restore", value_parser = parse_share)]
    share: Option<f64>,
    /// Restore the program's setting
    #[arg(long)]
    restore: bool,
    /// The name of the policy
    #[arg(long)]
    policy: String,
    #[command(flatten)]
    server: Server,
}

fn parse_share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "expected a share from 0.0 to 1.0".to_owned())
}

impl Enforce {
    pub fn run(&self) -> Result<u8, String> {
        let body = json!({ "policy": self.policy, "enforce": self.share });
        self.server.change("enforcement", body, if self.restore { "restored" } else { "set" })
    }
}
