//! The `[deny]` table, which contains the deny list.

use super::fields::DENY;
use super::raw::Node;
use super::value::Value;
use crate::policy::deny_rule::DenyRuleError;
use crate::policy::{DenyRule, Key};

pub(super) fn read(value: &Value<'_>) -> Option<Vec<DenyRule>> {
    let mut fields = value.fields(&DENY)?;
    let mut rules = Vec::new();
    rules.extend(fields.take("ips").and_then(|value| list(&value, DenyRule::network)).unwrap_or_default());
    rules.extend(fields.take("user_agents").and_then(|value| list(&value, DenyRule::user_agent)).unwrap_or_default());
    let patterns = rules.iter().filter(|rule| rule.is_pattern()).count();
    if patterns > MAX_PATTERNS {
        value.fault(format_args!("found {patterns} user agents with a `*`; at most {MAX_PATTERNS} are allowed"));
    }
    let slow_patterns = rules.iter().filter(|rule| rule.is_searched_alone()).count();
    if slow_patterns > MAX_SLOW_PATTERNS {
        value.fault(format_args!(
            "found {slow_patterns} user agents such as \"a*b*\", which have text between two `*` but are not of the \
             form \"*b*\"; at most {MAX_SLOW_PATTERNS} are allowed. Up to {MAX_PATTERNS} of the form \"*b*\" are \
             allowed"
        ));
    }
    rules.extend(fields.take("countries").and_then(|value| list(&value, DenyRule::country)).unwrap_or_default());
    rules.extend(fields.take("keys").and_then(|value| value.list(|value| key(&value))).unwrap_or_default());
    rules.extend(fields.take("labels").and_then(|value| labels(&value)).unwrap_or_default());
    fields.end();
    if rules.len() > MAX_RULES {
        value.fault(format_args!("found {} rules; at most {MAX_RULES} are allowed", rules.len()));
    }
    Some(rules)
}

fn list(value: &Value<'_>, rule: impl Fn(&str) -> Result<DenyRule, DenyRuleError>) -> Option<Vec<DenyRule>> {
    value.list(|value| value.accept(rule(value.text()?)))
}

/// Reads a key, either in its text form or as a number. Messages never show the key.
fn key(value: &Value<'_>) -> Option<DenyRule> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    match value.node {
        Node::Integer(number) => Some(DenyRule::key(*number)),
        Node::Text(text) if is_number(text) => {
            value.refuse("expected a key, found a number in quotes; write 7 for the number, or '\"7\"' for the string")
        }
        Node::Text(text) => match value.accept(text.parse::<Key>())? {
            key if key.as_digest().is_some() => value.refuse(
                "expected a key, found a digest, which a deny list cannot contain; block the digest with \
                 `RateLimiter::block` instead",
            ),
            key => Some(DenyRule::key(key)),
        },
        node => value
            .refuse(format_args!("expected a key, found {}; write it as a string, such as 'bearer:…'", node.kind())),
    }
}

fn labels(value: &Value<'_>) -> Option<Vec<DenyRule>> {
    let labels = value.entries(r#"asn = ["64496"]"#)?;
    let rules = |(name, values): (&str, Value<'_>)| list(&values, |value| DenyRule::label(name.to_owned(), value));
    Some(labels.into_iter().filter_map(rules).flatten().collect())
}

const MAX_RULES: usize = 100_000;

/// The automaton that matches the patterns takes several times their size in memory.
const MAX_PATTERNS: usize = 1_000;

/// Each of these patterns is searched for separately, and each search takes up to a microsecond per request.
const MAX_SLOW_PATTERNS: usize = 100;
