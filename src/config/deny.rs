//! `[deny]`: whom to deny whatever the limits say.

use super::error::{Faults, Path};
use super::fields::{Fields, entries, list, text};
use super::raw::Node;
use crate::policy::{DenyRule, DenyRuleError};

pub(super) fn read(node: &Node, path: &Path<'_>, faults: &mut Faults) -> Option<Vec<DenyRule>> {
    let mut fields = Fields::of(node, path, r#"ips = ["192.0.2.0/24"]"#, faults)?;
    let mut rules = Vec::new();
    let by = |rule: fn(&str) -> Result<DenyRule, DenyRuleError>| {
        move |node: &Node, path: &Path<'_>, faults: &mut Faults| list(node, path, faults, one(rule))
    };
    rules.extend(fields.read("ips", faults, by(DenyRule::network)).unwrap_or_default());
    rules.extend(fields.read("user_agents", faults, by(DenyRule::user_agent)).unwrap_or_default());
    let patterns = rules.iter().filter(|rule| rule.is_pattern()).count();
    if patterns > MOST_PATTERNS {
        faults.add(
            path,
            format_args!("there are {patterns} user agents with a `*`; there may be {MOST_PATTERNS} at most"),
        );
    }
    rules.extend(fields.read("countries", faults, by(DenyRule::country)).unwrap_or_default());
    rules.extend(fields.read("keys", faults, keys).unwrap_or_default());
    rules.extend(fields.read("labels", faults, labels).unwrap_or_default());
    fields.end(faults);
    if rules.len() > MOST_RULES {
        faults.add(path, format_args!("there are {} rules; there may be {MOST_RULES} at most", rules.len()));
    }
    Some(rules)
}

fn one(
    rule: impl Fn(&str) -> Result<DenyRule, DenyRuleError>,
) -> impl FnMut(&Node, &Path<'_>, &mut Faults) -> Option<DenyRule> {
    move |node, path, faults| rule(text(node, path, faults)?).map_err(|error| faults.add_cause(path, error)).ok()
}

/// Keys are nobody's business: no message shows one.
fn keys(node: &Node, path: &Path<'_>, faults: &mut Faults) -> Option<Vec<DenyRule>> {
    list(node, path, faults, |node, path, faults| match node {
        Node::Text(key) if !key.is_empty() => Some(DenyRule::key(key.as_str())),
        Node::Text(_) => {
            faults.add(path, "the text is empty; write a key, or leave it out");
            None
        }
        _ => {
            faults.add(path, format_args!("{} is no text; write the key in quotes", node.kind()));
            None
        }
    })
}

fn labels(node: &Node, path: &Path<'_>, faults: &mut Faults) -> Option<Vec<DenyRule>> {
    let mut rules = Vec::new();
    for (name, node) in entries(node, path, r#"asn = ["64496"]"#, faults)? {
        let rule = one(|value| DenyRule::label(name.to_owned(), value));
        rules.extend(list(node, &path.field(name), faults, rule).unwrap_or_default());
    }
    Some(rules)
}

/// But for patterns, a deny list finds one among so many as fast as among ten.
const MOST_RULES: usize = 100_000;

/// Each of these is looked for in what a client says of itself: some 70 ns apiece.
const MOST_PATTERNS: usize = 1_000;
