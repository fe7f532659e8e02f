//! `tollgate policies`, `limited` and `why`.

use std::fmt::Write;

use serde_json::{Value, json};

use super::NOTHING_OR_LIMITED;
use super::client::{Server, changes_terminal, duration, list, scope, text};

/// Shows the policies of a running service: quotas, tiers, and what was changed at run time.
#[derive(clap::Args, Debug)]
pub struct Policies {
    #[command(flatten)]
    server: Server,
}

impl Policies {
    pub fn run(&self) -> Result<u8, String> {
        let answer = self.server.connect()?.get("policies", &[])?;
        print(&answer, self.server.json, |out| {
            for policy in list(&answer["policies"]) {
                let set =
                    |value: &Value| if value.is_null() { String::new() } else { format!(", set to {}", text(value)) };
                _ = writeln!(
                    out,
                    "{}: {}{}",
                    text(&policy["policy"]),
                    text(&policy["quotas"]),
                    set(&policy["set_quotas"])
                );
                for tier in list(&policy["tiers"]) {
                    _ = writeln!(
                        out,
                        "  tier {}: {}{}",
                        text(&tier["tier"]),
                        text(&tier["quotas"]),
                        set(&tier["set_quotas"])
                    );
                }
                if policy["enforce"] != 1.0 {
                    _ = writeln!(out, "  enforced for {} of the keys", policy["enforce"]);
                }
                if policy["set_keys_total"] != 0 {
                    _ = writeln!(out, "  keys with their own quotas: {}", policy["set_keys_total"]);
                }
            }
        });
        Ok(0)
    }
}

/// Shows the keys that were refused most often, whether each of them is limited now, and all blocks.
#[derive(clap::Args, Debug)]
pub struct Limited {
    /// Show only keys of this policy
    #[arg(long)]
    policy: Option<String>,
    /// The maximum number of keys to show
    #[arg(long, default_value_t = 20)]
    max: u32,
    #[command(flatten)]
    server: Server,
}

impl Limited {
    pub fn run(&self) -> Result<u8, String> {
        let mut query = vec![("max", self.max.to_string())];
        query.extend(self.policy.iter().map(|policy| ("policy", policy.clone())));
        let answer = self.server.connect()?.get("limited", &query)?;
        print(&answer, self.server.json, |out| {
            if answer["has_top"] == false {
                _ = writeln!(out, "the program does not count charges per key; see `Admin::top`");
            }
            for key in list(&answer["keys"]) {
                let name = if key["text"].is_null() { &key["key"] } else { &key["text"] };
                let (policy, now) = (text(&key["policy"]), outcome_now(key));
                _ = writeln!(out, "{} under {policy}: {} refused, {now}", text(name), key["refused"]);
            }
            _ = writeln!(out, "blocks: {}", answer["blocks_total"]);
            list(&answer["blocks"]).iter().for_each(|block| _ = writeln!(out, "  {}", block_line(block)));
            let (refused, now) = (scope(&answer["scope"]["refused"]), scope(&answer["scope"]["now"]));
            _ = writeln!(out, "(refusals are counted in {refused}, tokens in {now})");
        });
        Ok(0)
    }
}

/// Returns whether the key's next request would be allowed and, if not, why, and when to retry. A key on a deny list has
/// no time to retry.
fn outcome_now(key: &Value) -> String {
    if key["allowed"] == true {
        return "allowed now".to_owned();
    }
    let reason = text(&key["reason"]);
    let wait = &key["retry_after_ms"];
    if wait.is_null() { reason } else { format!("{reason}, retry in {}", duration(wait)) }
}

fn block_line(block: &Value) -> String {
    let name = if block["rule"].is_null() { &block["key"] } else { &block["rule"] };
    let by = if block["manual"] == true { "by an operator" } else { "automatic" };
    format!("{}: {by}, ends in {}", text(name), duration(&block["left_ms"]))
}

/// Explains why a key is limited, and what would help. Exits with 3 if the key is limited.
#[derive(clap::Args, Debug)]
pub struct Why {
    /// The key in its text form: '"ada"', 42, 192.0.2.7, bearer:…, 'header(x-user):ada', digest:…
    key: String,
    /// Explain only this policy
    #[arg(long)]
    policy: Option<String>,
    /// The caller's tier; defaults to the tier under which the key was last charged
    #[arg(long)]
    tier: Option<String>,
    #[command(flatten)]
    server: Server,
}

impl Why {
    pub fn run(&self) -> Result<u8, String> {
        let mut body = json!({ "key": self.key });
        for (name, value) in [("policy", &self.policy), ("tier", &self.tier)] {
            value.iter().for_each(|value| body[name] = json!(value));
        }
        let answer = self.server.connect()?.post("key", &body)?;
        print(&answer, self.server.json, |out| explain(out, &answer, &self.key));
        let is_free = list(&answer["policies"]).iter().all(|found| found["allowed"] == true);
        Ok(if is_free { 0 } else { NOTHING_OR_LIMITED })
    }
}

fn explain(out: &mut String, answer: &Value, key: &str) {
    for found in list(&answer["policies"]) {
        let tier = if found["tier"].is_null() { String::new() } else { format!(", tier {}", text(&found["tier"])) };
        let shadow = if found["enforced"] == true { "" } else { " (not enforced)" };
        _ = writeln!(out, "{}{tier}: {}{shadow}", text(&found["policy"]), text(&found["reason"]).replace('_', " "));
        for window in list(&found["windows"]) {
            let full = match window["full_in_ms"] == 0 {
                true => "full".to_owned(),
                false => format!("full in {}", duration(&window["full_in_ms"])),
            };
            let other = if window["other_quota"] == true { "; last charged under another quota" } else { "" };
            let (quota, spent, left) = (text(&window["quota"]), &window["spent"], &window["left"]);
            _ = writeln!(out, "  {quota}: {spent} spent, {left} left, {full}{other}");
        }
        _ = writeln!(out, "  quotas {}", source(&found["quotas_from"]));
        for help in list(&found["helps"]) {
            _ = writeln!(out, "  helps: {}", help_line(help, &quoted(key), &quoted(&text(&found["policy"]))));
        }
    }
    list(&answer["blocks"]).iter().for_each(|block| _ = writeln!(out, "blocked {}", block_line(block)));
    match &answer["on_deny_list"] {
        Value::Bool(true) => _ = writeln!(out, "on the deny list of the process that answered"),
        Value::Null => _ = writeln!(out, "the digest does not show whether the key is on the deny list"),
        _ => {}
    }
    _ = writeln!(out, "{} (tokens of {})", text(&answer["key"]), scope(&answer["scope"]["rows"]));
}

fn source(from: &Value) -> &'static str {
    match from.as_str() {
        Some("set_for_key") => "set for this key at run time",
        Some("set_for_tier") => "set for its tier at run time",
        Some("set_for_all") => "set for all callers at run time",
        Some("tier") => "from its tier",
        _ => "from the policy",
    }
}

/// Quotes an argument for a shell if necessary.
fn quoted(argument: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:".contains(c);
    if argument.chars().all(is_plain) { argument.to_owned() } else { format!("'{}'", argument.replace('\'', "'\\''")) }
}

fn help_line(help: &Value, key: &str, policy: &str) -> String {
    match help["action"].as_str() {
        Some("wait") => format!("waiting {}", duration(&help["ms"])),
        Some("credit") => format!("tollgate credit {key} --policy {policy} --tokens {}", help["tokens"]),
        Some("reset") => format!("tollgate reset {key} --policy {policy}"),
        Some("quota") => format!("tollgate quota QUOTA --policy {policy} --key {key}"),
        Some("unblock") => format!("tollgate unblock {key}"),
        Some("deny_list") => "removing the key from the program's deny list".to_owned(),
        _ => text(&help["action"]),
    }
}

/// Prints the answer as JSON, or as the text that `write` produces.
pub(super) fn print(answer: &Value, json: bool, write: impl FnOnce(&mut String)) {
    let mut out = String::new();
    match json {
        true => _ = writeln!(out, "{answer:#}"),
        false => write(&mut out),
    }
    // Escape the characters that could affect the terminal. JSON has them only in strings, where escapes are valid.
    let mut shown = String::with_capacity(out.len());
    for c in out.chars() {
        match c != '\n' && changes_terminal(c) {
            true => _ = write!(shown, "\\u{:04x}", u32::from(c)),
            false => shown.push(c),
        }
    }
    print!("{shown}");
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_key_on_a_deny_list_has_no_time_to_retry() {
        let limited = |wait: Value| json!({ "allowed": false, "reason": "deny_list", "retry_after_ms": wait });
        assert_eq!(outcome_now(&limited(Value::Null)), "deny_list");
        assert_eq!(outcome_now(&limited(json!(1500))), "deny_list, retry in 1.5 s");
        assert_eq!(outcome_now(&json!({ "allowed": true })), "allowed now");
    }
}
