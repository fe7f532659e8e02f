//! A parsed configuration: a tree of unchecked values.

use std::cell::Cell;
use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Unexpected, Visitor};

#[allow(missing_debug_implementations)] // A deny list may contain the keys of callers, which `Debug` would show.
pub struct RawConfig(pub(super) Node);

pub(super) enum Node {
    Nothing,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    /// The entries are in the order of the file. There may be duplicates if the format allows them.
    Table(Vec<(String, Node)>),
}

impl Node {
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Node::Nothing => "an empty value",
            Node::Bool(_) => "a boolean",
            Node::Integer(_) | Node::Float(_) => "a number",
            Node::Text(_) => "a string",
            Node::List(_) => "a list",
            Node::Table(_) => "a table",
        }
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Node::Bool(value) => write!(f, "{value}"),
            Node::Integer(number) => write!(f, "the number {number}"),
            Node::Float(number) => write!(f, "the number {number}"),
            Node::Text(text) => write!(f, "the string {:?}", shortened(text)),
            Node::Nothing | Node::List(_) | Node::Table(_) => f.write_str(self.kind()),
        }
    }
}

impl<'de> Deserialize<'de> for RawConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RawConfig, D::Error> {
        let budget = Cell::new(MAX_BYTES);
        Reader { budget: &budget, depth: 0 }.deserialize(deserializer).map(RawConfig)
    }
}

#[derive(Clone, Copy)]
struct Reader<'r> {
    budget: &'r Cell<usize>,
    depth: usize,
}

impl Reader<'_> {
    /// Charges a value with `text_len` bytes of text to the budget.
    fn charge<E: Error>(self, text_len: usize) -> Result<(), E> {
        let Some(rest) = self.budget.get().checked_sub(size_of::<(String, Node)>() + text_len) else {
            return Err(E::custom(format_args!(
                "the configuration takes more than {} MiB of memory; make it smaller",
                MAX_BYTES >> 20
            )));
        };
        self.budget.set(rest);
        Ok(())
    }

    fn nested<E: Error>(self) -> Result<Self, E> {
        if self.depth == MAX_DEPTH {
            return Err(E::custom(format_args!("nested more than {MAX_DEPTH} levels deep")));
        }
        self.charge(0)?;
        Ok(Reader { depth: self.depth + 1, ..self })
    }

    fn leaf<E: Error>(self, node: Node) -> Result<Node, E> {
        self.charge(0)?;
        Ok(node)
    }
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Node;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, a number, true, false, a list or a table")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Node, E> {
        self.leaf(Node::Bool(value))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Node, E> {
        self.leaf(Node::Integer(number.into()))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Node, E> {
        self.leaf(Node::Integer(number.into()))
    }

    fn visit_i128<E: Error>(self, number: i128) -> Result<Node, E> {
        self.leaf(Node::Integer(number))
    }

    fn visit_u128<E: Error>(self, number: u128) -> Result<Node, E> {
        self.leaf(i128::try_from(number).map_or(Node::Float(number as f64), Node::Integer))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Node, E> {
        self.leaf(Node::Float(number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Node, E> {
        self.charge(text.len())?;
        Ok(Node::Text(text.to_owned()))
    }

    fn visit_unit<E: Error>(self) -> Result<Node, E> {
        self.leaf(Node::Nothing)
    }

    fn visit_none<E: Error>(self) -> Result<Node, E> {
        self.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Node, A::Error> {
        let inside = self.nested()?;
        let mut nodes = Vec::new();
        while let Some(node) = list.next_element_seed(inside)? {
            nodes.push(node);
        }
        Ok(Node::List(nodes))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let inside = self.nested()?;
        let mut entries = Vec::new();
        while let Some(name) = map.next_key_seed(inside)? {
            // YAML parsers read `404:` as a number and `true:` as a boolean, but here both are names.
            let name = match name {
                Node::Text(name) => name,
                Node::Integer(number) => number.to_string(),
                Node::Bool(value) => value.to_string(),
                other => return Err(Error::invalid_type(Unexpected::Other(&other.to_string()), &"a name")),
            };
            entries.push((name, map.next_value_seed(inside)?));
        }
        Ok(Node::Table(entries))
    }
}

pub(super) fn shortened(text: &str) -> String {
    let mut start: String = text.chars().take(MAX_QUOTE_CHARS).collect();
    if start.len() < text.len() {
        start.push_str("...");
    }
    start
}

const MAX_QUOTE_CHARS: usize = 80;

const MAX_BYTES: usize = 64 << 20;

/// The deepest valid value, a field of a tier's quota, is at level 6.
const MAX_DEPTH: usize = 16;
