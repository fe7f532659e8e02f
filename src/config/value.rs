//! Typed access to the values of a parsed file. A value of the wrong type is recorded as a fault.

use std::collections::HashSet;
use std::error::Error;
use std::fmt;
use std::time::Duration;

use super::error::{Faults, Path};
use super::fields::Table;
use super::raw::{Node, shortened};
use crate::algorithm::Quota;
use crate::policy::{Enforce, parse_duration, suggestion};

pub(super) struct Value<'n> {
    pub(super) node: &'n Node,
    pub(super) path: Path,
    faults: &'n Faults,
}

impl<'n> Value<'n> {
    pub(super) fn file(node: &'n Node, faults: &'n Faults) -> Value<'n> {
        Value { node, path: Path::FILE, faults }
    }

    pub(super) fn fault(&self, message: impl fmt::Display) {
        self.faults.add(&self.path, message);
    }

    pub(super) fn refuse<T>(&self, message: impl fmt::Display) -> Option<T> {
        self.fault(message);
        None
    }

    pub(super) fn accept<T>(&self, result: Result<T, impl Error + Send + Sync + 'static>) -> Option<T> {
        result.map_err(|error| self.faults.add_cause(&self.path, error.to_string(), error)).ok()
    }

    pub(super) fn text(&self) -> Option<&'n str> {
        match self.node {
            Node::Text(text) => Some(text),
            Node::Integer(_) | Node::Float(_) | Node::Bool(_) => {
                self.refuse(format_args!("expected a string, found {}; write it in quotes", self.node))
            }
            _ => self.refuse(format_args!("expected a string in quotes, found {}", self.node)),
        }
    }

    pub(super) fn boolean(&self) -> Option<bool> {
        match self.node {
            Node::Bool(value) => Some(*value),
            node => self.refuse(format_args!("expected true or false without quotes, found {node}")),
        }
    }

    pub(super) fn share(&self) -> Option<Enforce> {
        let share = match self.node {
            Node::Integer(number @ 0..=1) => Some(*number as f64),
            Node::Float(share) => Some(*share),
            _ => None,
        };
        share
            .and_then(Enforce::of_share)
            .or_else(|| self.refuse(format_args!("expected a share from 0.0 to 1.0, found {}", self.node)))
    }

    pub(super) fn number<T>(&self, min: T, max: T) -> Option<T>
    where
        T: Copy + PartialOrd + fmt::Display + TryFrom<i128>,
    {
        let number = match self.node {
            Node::Integer(number) => T::try_from(*number).ok(),
            _ => None,
        };
        number
            .filter(|number| (min..=max).contains(number))
            .or_else(|| self.refuse(format_args!("expected a whole number from {min} to {max}, found {}", self.node)))
    }

    pub(super) fn duration(&self) -> Option<Duration> {
        let node = self.node;
        let time = match node {
            Node::Text(text) => parse_duration(text),
            _ => None,
        };
        match time {
            Some(time) if time.is_zero() => self.refuse(format_args!("expected a duration above 0, found {node}")),
            Some(time) if time > Quota::MAX_PERIOD => {
                self.refuse(format_args!("expected a duration of at most 100 years, found {node}"))
            }
            Some(time) => Some(time),
            None => self.refuse(format_args!(
                "expected a duration such as \"10 min\" (units: us ms s min h d w), found {node}"
            )),
        }
    }

    pub(super) fn list<T>(&self, mut read: impl FnMut(Value<'n>) -> Option<T>) -> Option<Vec<T>> {
        let Node::List(items) = self.node else {
            // The message omits the value, which may be a caller's key.
            let kind = self.node.kind();
            return self.refuse(format_args!("expected a list such as [\"a\", \"b\"], found {kind}"));
        };
        let items = items.iter().enumerate();
        Some(items.filter_map(|(i, node)| read(Value { node, path: self.path.item(i), ..*self })).collect())
    }

    pub(super) fn entries(&self, example: &str) -> Option<Vec<(&'n str, Value<'n>)>> {
        let Node::Table(entries) = self.node else {
            return self.refuse(format_args!("expected a table such as {{ {example} }}, found {}", self.node));
        };
        let mut names = HashSet::new();
        let mut unique = Vec::new();
        for (name, node) in entries {
            let value = Value { node, path: self.path.field(name), ..*self };
            if names.insert(name) {
                unique.push((name.as_str(), value));
            } else {
                value.fault("given more than once; write it only once");
            }
        }
        Some(unique)
    }

    pub(super) fn fields(&self, table: &'static Table) -> Option<Fields<'n>> {
        let entries = self.entries(table.example)?;
        Some(Fields { path: self.path.clone(), faults: self.faults, entries, table })
    }
}

/// A table whose field names are known. [`end`](Fields::end) adds a fault for each entry that was not taken.
pub(super) struct Fields<'n> {
    path: Path,
    faults: &'n Faults,
    entries: Vec<(&'n str, Value<'n>)>,
    table: &'static Table,
}

impl<'n> Fields<'n> {
    pub(super) fn take(&mut self, name: &'static str) -> Option<Value<'n>> {
        debug_assert!(self.table.fields.iter().any(|field| field.name == name), "the table has no field {name:?}");
        let index = self.entries.iter().position(|(known, _)| *known == name)?;
        Some(self.entries.remove(index).1)
    }

    /// Takes a required field. If the field is missing, adds a fault that shows an example of its value.
    pub(super) fn need(&mut self, name: &'static str) -> Option<Value<'n>> {
        let value = self.take(name);
        if value.is_none() {
            let field = self.table.fields.iter().find(|field| field.name == name);
            let example = field.and_then(|field| field.required).unwrap_or_default();
            self.faults.add(&self.path.field(name), format_args!("missing; add a value such as {example}"));
        }
        value
    }

    pub(super) fn end(self) {
        let known = || self.table.fields.iter().map(|field| field.name);
        for (name, value) in self.entries {
            let (near, known) = (suggestion(name, known()), listed(known()));
            value.fault(format_args!("unknown field{near}; known fields: {known}"));
        }
    }
}

/// Returns the first twenty names in the form `"a", "b"`, or `none` if there are no names.
pub(super) fn listed<'t>(names: impl IntoIterator<Item = &'t str>) -> String {
    let mut names: Vec<&str> = names.into_iter().collect();
    names.sort_unstable();
    let quoted: Vec<String> = names.iter().take(MAX_LISTED).map(|name| format!("{:?}", shortened(name))).collect();
    let more = if names.len() > MAX_LISTED { ", and others" } else { "" };
    if quoted.is_empty() { "none".to_owned() } else { format!("{}{more}", quoted.join(", ")) }
}

const MAX_LISTED: usize = 20;
