//! The `default`, `all_routes` and `routes` fields, which select the policies for requests.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use super::fields::ROUTE;
use super::policies::{self, ConfiguredPolicy};
use super::raw::{Node, shortened};
use super::value::{Value, listed};
use crate::algorithm::Quota;
use crate::middleware::parse_line;
use crate::policy::suggestion;

/// A route's policies, and the cost for those policies that have no cost of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) policies: Vec<String>,
    pub(super) cost: Option<u64>,
}

pub(super) struct Choices<'r, 'n> {
    pub(super) known: &'r PolicyNames<'n>,
    pub(super) policies: &'r BTreeMap<String, ConfiguredPolicy>,
    pub(super) all_routes: &'r [String],
}

pub(super) fn default(value: Option<Value<'_>>, choices: &Choices<'_, '_>) -> Option<Choice> {
    match value {
        Some(value) => choices.read(&value),
        None if choices.all_routes.iter().any(|name| name == DEFAULT_POLICY) => None,
        None => {
            choices.known.0.get(DEFAULT_POLICY).map(|name| Choice { policies: vec![(*name).to_owned()], cost: None })
        }
    }
}

pub(super) fn read(value: &Value<'_>, choices: &Choices<'_, '_>) -> Option<BTreeMap<String, Choice>> {
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
        if let Some(choice) = choices.read(&value) {
            lines.insert(line.to_owned(), choice);
        }
    }
    Some(lines)
}

impl Choices<'_, '_> {
    fn read(&self, value: &Value<'_>) -> Option<Choice> {
        let (policies, cost) = match value.node {
            Node::Nothing => {
                return value.refuse(
                    "expected a policy such as \"api\", a list of policies, or a table such as { policies = [\"api\"], \
                     cost = 10 }, found an empty value",
                );
            }
            Node::Table(_) => {
                let mut fields = value.fields(&ROUTE)?;
                let policies = fields.need("policies").and_then(|value| self.known.list(&value));
                let cost = fields.take("cost").and_then(|value| Some((value.number(0, Quota::MAX_TOKENS)?, value)));
                fields.end();
                (policies, cost)
            }
            _ => (self.known.list(value), None),
        };
        let policies = policies?;
        if let Some(name) = policies.iter().find(|name| self.all_routes.contains(name)) {
            value.fault(format_args!(
                "policy {name:?} already applies to all routes; remove it here or from all_routes"
            ));
        }
        if let Some((cost, value)) = &cost {
            let configured = policies.iter().filter_map(|name| self.policies.get(name));
            for ConfiguredPolicy { policy, settings } in configured.filter(|known| known.settings.cost.is_none()) {
                policies::check_cost(*cost, policy, settings.wait.is_some(), value);
            }
        }
        Some(Choice { policies, cost: cost.map(|(cost, _)| cost) })
    }
}

/// Displays the choice as it would be written in a file.
impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.policies[..], self.cost) {
            ([policy], None) => write!(f, "{policy:?}"),
            (policies, None) => write!(f, "{policies:?}"),
            (policies, Some(cost)) => write!(f, "{{ policies = {policies:?}, cost = {cost} }}"),
        }
    }
}

pub(super) struct PolicyNames<'n>(BTreeSet<&'n str>);

impl<'n> PolicyNames<'n> {
    pub(super) fn of(value: Option<&Value<'n>>) -> PolicyNames<'n> {
        match value.map(|value| value.node) {
            Some(Node::Table(entries)) => PolicyNames(entries.iter().map(|(name, _)| name.as_str()).collect()),
            _ => PolicyNames(BTreeSet::new()),
        }
    }

    /// Returns the policy name in `value`. Adds a fault if no policy has this name.
    pub(super) fn name<'v>(&self, value: &Value<'v>) -> Option<&'v str> {
        let name = value.text()?;
        if !self.0.contains(name) {
            let (near, known) = (suggestion(name, self.0.iter().copied()), listed(self.0.iter().copied()));
            let name = shortened(name);
            value.fault(format_args!("unknown policy {name:?}{near}; known policies: {known}"));
        }
        Some(name)
    }

    /// Reads a list of policy names, or a single name.
    pub(super) fn list(&self, value: &Value<'_>) -> Option<Vec<String>> {
        let Node::List(items) = value.node else { return Some(vec![self.name(value)?.to_owned()]) };
        if items.len() > MAX_CHOSEN {
            let len = items.len();
            return value.refuse(format_args!("found {len} policies; at most {MAX_CHOSEN} can apply together"));
        }
        let mut names = Vec::new();
        value.list(|value| {
            let name = self.name(&value)?.to_owned();
            if names.contains(&name) {
                value.fault("given more than once; write it only once");
            }
            names.push(name);
            Some(())
        })?;
        Some(names)
    }
}

const DEFAULT_POLICY: &str = "default";

const MAX_ROUTES: usize = 10_000;

/// The length of a list of policies is limited because each request is charged under all of them.
const MAX_CHOSEN: usize = 16;
