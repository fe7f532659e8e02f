//! `[deny]`: whom to deny whatever the limits say.

use super::raw::Node;
use super::value::Value;
use crate::policy::{DenyRule, DenyRuleError};

pub(super) fn read(value: &Value<'_>) -> Option<Vec<DenyRule>> {
    let mut fields = value.fields(r#"ips = ["192.0.2.0/24"]"#)?;
    let mut rules = Vec::new();
    rules.extend(fields.take("ips").and_then(|value| list(&value, DenyRule::network)).unwrap_or_default());
    rules.extend(fields.take("user_agents").and_then(|value| list(&value, DenyRule::user_agent)).unwrap_or_default());
    let patterns = rules.iter().filter(|rule| rule.is_pattern()).count();
    if patterns > MOST_PATTERNS {
        value.fault(format_args!("there are {patterns} user agents with a `*`; there may be {MOST_PATTERNS} at most"));
    }
    rules.extend(fields.take("countries").and_then(|value| list(&value, DenyRule::country)).unwrap_or_default());
    rules.extend(fields.take("keys").and_then(|value| value.list(|value| key(&value))).unwrap_or_default());
    rules.extend(fields.take("labels").and_then(|value| labels(&value)).unwrap_or_default());
    fields.end();
    if rules.len() > MOST_RULES {
        value.fault(format_args!("there are {} rules; there may be {MOST_RULES} at most", rules.len()));
    }
    Some(rules)
}

fn list(value: &Value<'_>, rule: impl Fn(&str) -> Result<DenyRule, DenyRuleError>) -> Option<Vec<DenyRule>> {
    value.list(|value| value.accept(rule(value.text()?)))
}

/// Keys are nobody's business: no message shows one.
fn key(value: &Value<'_>) -> Option<DenyRule> {
    match value.node {
        Node::Text(key) if !key.is_empty() => Some(DenyRule::key(key.as_str())),
        Node::Text(_) => value.refuse("the text is empty; write a key, or leave it out"),
        node => value.refuse(format_args!("{} is no text; write the key in quotes", node.kind())),
    }
}

fn labels(value: &Value<'_>) -> Option<Vec<DenyRule>> {
    let labels = value.entries(r#"asn = ["64496"]"#)?;
    let rules = |(name, values): (&str, Value<'_>)| list(&values, |value| DenyRule::label(name.to_owned(), value));
    Some(labels.into_iter().filter_map(rules).flatten().collect())
}

/// But for patterns, a deny list finds one among so many as fast as among ten.
const MOST_RULES: usize = 100_000;

/// Each of these is looked for in what a client says of itself: some 70 ns apiece.
const MOST_PATTERNS: usize = 1_000;
