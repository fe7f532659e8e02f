//! The targets of a request: keys in text form, and callers to block.

use std::net::IpAddr;
use std::time::Duration;

use serde::Deserialize;

use super::problem::Problem;
use crate::policy::{DenyRule, Key, Signal, parse_duration};

/// Parses a key in its text form. The error does not show the key.
pub(super) fn key(text: &str) -> Result<Key, Problem> {
    if text.len() > MAX_KEY {
        return Err(Problem::invalid(format!("`key` has {} bytes; at most {MAX_KEY} are allowed", text.len())));
    }
    text.parse().map_err(|error| Problem::invalid(format!("`key`: {error}; a digest is written as digest:…")))
}

/// Returns the signals by which a key can be blocked: its key signal and, if the key is an address, its address signal.
pub(super) fn signals(key: &Key) -> impl Iterator<Item = Signal> {
    std::iter::once(Signal::key(key.clone())).chain(key.address().map(Signal::ip))
}

/// In bytes.
const MAX_KEY: usize = 4096;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BlockTarget {
    key: Option<String>,
    ip: Option<IpAddr>,
    user_agent: Option<String>,
    label: Option<Label>,
    pub(super) lasts: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Label {
    name: String,
    value: String,
}

impl BlockTarget {
    pub(super) fn signal(self) -> Result<Signal, Problem> {
        match (self.key, self.ip, self.user_agent, self.label) {
            (Some(text), None, None, None) => Ok(Signal::key(key(&text)?)),
            (None, Some(address), None, None) => Ok(Signal::ip(address)),
            (None, None, Some(text), None) => within(&text).map(|()| Signal::user_agent(text)),
            (None, None, None, Some(Label { name, value })) => {
                within(&name)?;
                within(&value)?;
                Ok(Signal::label(name, value))
            }
            _ => Err(Problem::invalid("expected exactly one of `key`, `ip`, `user_agent` and `label`")),
        }
    }
}

fn within(text: &str) -> Result<(), Problem> {
    if (1..=DenyRule::MAX_LENGTH).contains(&text.len()) {
        return Ok(());
    }
    let (length, max) = (text.len(), DenyRule::MAX_LENGTH);
    Err(Problem::invalid(format!("expected a string of 1 to {max} bytes, found {length}")))
}

/// Parses the duration of a block, such as `15min`.
pub(super) fn lasts(text: Option<&str>) -> Result<Duration, Problem> {
    let found = text.and_then(parse_duration).filter(|lasts| !lasts.is_zero());
    found.ok_or_else(|| Problem::invalid("`lasts`: expected a duration, such as \"15min\", \"2h\" or \"7d\""))
}
