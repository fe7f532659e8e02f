//! The `default` field and the `[routes]` table, which select the policies of routes.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::raw::{Node, shortened};
use super::value::{Value, listed};
use crate::middleware::parse_line;
use crate::policy::suggestion;

pub(super) fn default<'n>(value: Option<Value<'n>>, policies: &PolicyNames<'n>) -> Option<&'n str> {
    match value {
        Some(value) => policies.name(&value),
        None => policies.0.get(DEFAULT_POLICY).copied(),
    }
}

pub(super) fn read<'n>(value: &Value<'n>, policies: &PolicyNames<'n>) -> Option<BTreeMap<String, String>> {
    let entries = value.entries(r#""POST /todos" = "api""#)?;
    if entries.len() > MAX_ROUTES {
        return value.refuse(format_args!("found {} routes; at most {MAX_ROUTES} are allowed", entries.len()));
    }
    let mut known = HashMap::new();
    let mut lines = BTreeMap::new();
    for (line, value) in entries {
        match parse_line(line) {
            Ok(parsed) => {
                if let Some(other) = known.insert(parsed, line) {
                    value.fault(format_args!("same route as {other:?}; remove one of them"));
                }
            }
            Err(fault) => value.fault(format_args!("the line {fault}")),
        }
        if let Some(name) = policies.name(&value) {
            lines.insert(line.to_owned(), name.to_owned());
        }
    }
    Some(lines)
}

pub(super) struct PolicyNames<'n>(BTreeSet<&'n str>);

impl<'n> PolicyNames<'n> {
    pub(super) fn of(value: Option<&Value<'n>>) -> PolicyNames<'n> {
        match value.map(|value| value.node) {
            Some(Node::Table(entries)) => PolicyNames(entries.iter().map(|(name, _)| name.as_str()).collect()),
            _ => PolicyNames(BTreeSet::new()),
        }
    }

    /// Returns the name of a policy in `value`, and adds a fault if there is no such policy.
    pub(super) fn name(&self, value: &Value<'n>) -> Option<&'n str> {
        let name = value.text()?;
        if !self.0.contains(name) {
            let (near, known) = (suggestion(name, self.0.iter().copied()), listed(self.0.iter().copied()));
            let name = shortened(name);
            value.fault(format_args!("unknown policy {name:?}{near}; known policies: {known}"));
        }
        Some(name)
    }
}

const DEFAULT_POLICY: &str = "default";

const MAX_ROUTES: usize = 10_000;
