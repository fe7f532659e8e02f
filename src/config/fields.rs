//! Values of one kind out of a tree, and what is wrong with those that are of another.

use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

use super::error::{Faults, Path};
use super::raw::{Node, shortened};
use crate::algorithm::Quota;
use crate::policy::parse_duration;

/// A table of which the fields are known. What was not asked for at the end is a fault.
pub(super) struct Fields<'n, 'p> {
    pub(super) path: &'p Path<'p>,
    entries: Vec<(&'n str, &'n Node)>,
    known: Vec<&'static str>,
}

impl<'n, 'p> Fields<'n, 'p> {
    pub(super) fn of(node: &'n Node, path: &'p Path<'p>, example: &str, faults: &mut Faults) -> Option<Fields<'n, 'p>> {
        Some(Fields { path, entries: entries(node, path, example, faults)?, known: Vec::new() })
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.entries.iter().any(|(known, _)| *known == name)
    }

    pub(super) fn take(&mut self, name: &'static str) -> Option<&'n Node> {
        self.known.push(name);
        let at = self.entries.iter().position(|(known, _)| *known == name)?;
        Some(self.entries.remove(at).1)
    }

    /// The field's value, if it is there and `read` makes something of it.
    pub(super) fn read<T>(
        &mut self,
        name: &'static str,
        faults: &mut Faults,
        read: impl FnOnce(&'n Node, &Path<'_>, &mut Faults) -> Option<T>,
    ) -> Option<T> {
        let node = self.take(name)?;
        read(node, &self.path.field(name), faults)
    }

    /// [`read`](Fields::read) of a field that has to be there.
    pub(super) fn need<T>(
        &mut self,
        name: &'static str,
        example: &str,
        faults: &mut Faults,
        read: impl FnOnce(&'n Node, &Path<'_>, &mut Faults) -> Option<T>,
    ) -> Option<T> {
        if !self.has(name) {
            faults.add(&self.path.field(name), format_args!("it is missing; give it, as in {example}"));
        }
        self.read(name, faults, read)
    }

    /// To be called when all fields have been asked for.
    pub(super) fn end(self, faults: &mut Faults) {
        for (name, _) in self.entries {
            let known = listed(self.known.iter().copied());
            faults.add(&self.path.field(name), format_args!("there is no such field; there {known}"));
        }
    }
}

/// The entries of a table, each once.
pub(super) fn entries<'n>(
    node: &'n Node,
    path: &Path<'_>,
    example: &str,
    faults: &mut Faults,
) -> Option<Vec<(&'n str, &'n Node)>> {
    let Node::Table(entries) = node else {
        faults.add(path, format_args!("{node} is no table; write one, as in {{ {example} }}"));
        return None;
    };
    let mut names = HashSet::new();
    let mut once = Vec::new();
    for (name, node) in entries {
        if names.insert(name.as_str()) {
            once.push((name.as_str(), node));
        } else {
            faults.add(&path.field(name), "it is there twice; leave one out");
        }
    }
    Some(once)
}

/// What `read` makes of each item of a list; all that it can.
pub(super) fn list<'n, T>(
    node: &'n Node,
    path: &Path<'_>,
    faults: &mut Faults,
    mut read: impl FnMut(&'n Node, &Path<'_>, &mut Faults) -> Option<T>,
) -> Option<Vec<T>> {
    let Node::List(items) = node else {
        // Not the value: it may be the key of a caller.
        faults.add(path, format_args!("{} is no list; write it in brackets, as in [\"a\", \"b\"]", node.kind()));
        return None;
    };
    Some(items.iter().enumerate().filter_map(|(i, item)| read(item, &path.item(i), faults)).collect())
}

pub(super) fn text<'n>(node: &'n Node, path: &Path<'_>, faults: &mut Faults) -> Option<&'n str> {
    match node {
        Node::Text(text) => return Some(text),
        Node::Integer(_) | Node::Float(_) | Node::Bool(_) => {
            faults.add(path, format_args!("{node} is no text; write it in quotes"));
        }
        _ => faults.add(path, format_args!("{node} is no text; write one, in quotes")),
    }
    None
}

pub(super) fn truth(node: &Node, path: &Path<'_>, faults: &mut Faults) -> Option<bool> {
    match node {
        Node::Bool(value) => Some(*value),
        _ => {
            faults.add(path, format_args!("{node} is neither true nor false; write one of them, without quotes"));
            None
        }
    }
}

/// A whole number within bounds.
pub(super) fn number<T>(node: &Node, least: T, most: T, path: &Path<'_>, faults: &mut Faults) -> Option<T>
where
    T: Copy + fmt::Display + Into<u64> + TryFrom<i128>,
{
    if let Node::Integer(number) = node {
        if (i128::from(least.into())..=i128::from(most.into())).contains(number) {
            return T::try_from(*number).ok();
        }
    }
    faults.add(path, format_args!("{node} will not do; write a whole number from {least} to {most}"));
    None
}

/// A duration, not of 0.
pub(super) fn duration(node: &Node, path: &Path<'_>, faults: &mut Faults) -> Option<Duration> {
    let read = match node {
        Node::Text(text) => parse_duration(text),
        _ => None,
    };
    match read {
        Some(time) if time.is_zero() => faults.add(path, format_args!("{node} is no time at all; write a longer one")),
        Some(time) if time > Quota::MAX_PERIOD => {
            faults.add(path, format_args!("{node} is longer than 100 years; write a shorter time"));
        }
        Some(time) => return Some(time),
        None => faults.add(
            path,
            format_args!(
                "{node} is no duration; write a text of a number and a unit (us ms s min h d w), as in \"10 min\""
            ),
        ),
    }
    None
}

/// `is "a"`, `are "a", "b"`, as the end of a sentence; the first twenty.
pub(super) fn listed<'t>(names: impl IntoIterator<Item = &'t str>) -> String {
    let mut names: Vec<&str> = names.into_iter().collect();
    names.sort_unstable();
    let quoted: Vec<String> = names.iter().take(MOST_LISTED).map(|name| format!("{:?}", shortened(name))).collect();
    let more = if names.len() > MOST_LISTED { ", and others" } else { "" };
    match quoted.len() {
        0 => "is none".to_owned(),
        1 => format!("is {}", quoted[0]),
        _ => format!("are {}{more}", quoted.join(", ")),
    }
}

/// Names that a message lists.
const MOST_LISTED: usize = 20;
