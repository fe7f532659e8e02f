//! `default` and `[routes]`: which policy a route has.

use std::collections::HashMap;

use super::error::{Faults, Path};
use super::fields::{entries, listed, text};
use super::raw::Node;
use crate::middleware::parse_line;
use crate::policy::Policy;

/// The name of the default policy.
pub(super) fn default<'n>(
    node: Option<&'n Node>,
    path: &Path<'_>,
    policies: &Policies<'n>,
    faults: &mut Faults,
) -> Option<&'n str> {
    match node {
        Some(node) => {
            let name = text(node, path, faults)?;
            policies.expect(name, path, faults);
            Some(name)
        }
        None => policies.has(DEFAULT).then_some(DEFAULT),
    }
}

/// Lines and the names of their policies, in the order of the lines.
pub(super) fn read<'n>(
    node: &'n Node,
    path: &Path<'_>,
    policies: &Policies<'n>,
    faults: &mut Faults,
) -> Option<Vec<(&'n str, &'n str)>> {
    let entries = entries(node, path, r#""POST /todos" = "api""#, faults)?;
    if entries.len() > MOST_ROUTES {
        faults.add(path, format_args!("there are {}; there may be {MOST_ROUTES} at most", entries.len()));
        return None;
    }
    let mut known = HashMap::new();
    let mut lines = Vec::new();
    for (line, node) in entries {
        let path = path.field(line);
        match parse_line(line) {
            Ok((_, route)) if route.contains(['?', '#']) => {
                faults.add(&path, "a route has no \"?\" and no \"#\"; write its path only");
            }
            Ok((_, route)) if route.split('/').any(|part| part.starts_with([':', '*'])) => {
                faults.add(&path, "it would match no request; write \"{id}\" for \":id\", \"{*rest}\" for \"*rest\"");
            }
            Ok(parsed) => {
                if let Some(other) = known.insert(parsed, line) {
                    faults.add(&path, format_args!("{other:?} is the same route; leave one out"));
                }
            }
            Err(fault) => faults.add(&path, format_args!("the line {fault}")),
        }
        if let Some(name) = text(node, &path, faults) {
            policies.expect(name, &path, faults);
            lines.push((line, name));
        }
    }
    lines.sort_unstable();
    Some(lines)
}

/// The names that others may name: those of the policies in the file, whether these make sense or not.
pub(super) struct Policies<'n>(Vec<&'n str>);

impl<'n> Policies<'n> {
    /// Of the table of policies, if it is one.
    pub(super) fn of(node: Option<&'n Node>) -> Policies<'n> {
        let mut names = match node {
            Some(Node::Table(entries)) => entries.iter().map(|(name, _)| name.as_str()).collect(),
            _ => Vec::new(),
        };
        names.sort_unstable();
        Policies(names)
    }

    fn has(&self, name: &str) -> bool {
        self.0.binary_search(&name).is_ok()
    }

    /// It is a fault if there is none of that name.
    pub(super) fn expect(&self, name: &str, path: &Path<'_>, faults: &mut Faults) {
        if !self.has(name) {
            let name = super::raw::shortened(name);
            faults.add(path, format_args!("there is no policy {name:?}; there {}", listed(self.0.iter().copied())));
        }
    }
}

/// The policy of that name, which is there.
pub(super) fn index(policies: &[Policy], name: &str) -> Option<usize> {
    policies.binary_search_by(|policy| policy.name().as_str().cmp(name)).ok()
}

/// The policy that is the default one unless another is named.
const DEFAULT: &str = "default";

const MOST_ROUTES: usize = 10_000;
