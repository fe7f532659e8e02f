//! The callers in a log, identified as `--key` specifies.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use tollgate::Key;

use crate::log::Entry;

/// What identifies a caller in a log line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CallerKey {
    /// The client's IPv4 address, or the first `v6_bits` bits of its IPv6 address.
    Address {
        v6_bits: u8,
    },
    User,
    UserAgent,
    /// All requests count together.
    Global,
}

/// A caller in a log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Caller {
    V4(Ipv4Addr),
    V6(Ipv6Addr, u8),
    Text(Box<str>),
    Global,
    /// The line does not name a caller.
    Anonymous,
}

impl CallerKey {
    pub fn of(self, entry: &Entry<'_>) -> Caller {
        let text =
            |text: &str| if matches!(text, "" | "-") { Caller::Anonymous } else { Caller::Text(cut(text).into()) };
        match self {
            CallerKey::Address { v6_bits } => match entry.address {
                Some(IpAddr::V4(address)) => Caller::V4(address),
                Some(IpAddr::V6(address)) => {
                    let mask = u128::MAX.checked_shl(128 - u32::from(v6_bits)).unwrap_or(0);
                    Caller::V6(Ipv6Addr::from_bits(address.to_bits() & mask), v6_bits)
                }
                None => Caller::Anonymous,
            },
            CallerKey::User => text(entry.user),
            CallerKey::UserAgent => text(entry.user_agent),
            CallerKey::Global => Caller::Global,
        }
    }
}

/// Truncates a string, because the strings of millions of callers may be kept in memory.
fn cut(text: &str) -> &str {
    let end = (0..=text.len().min(MAX_TEXT)).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

const MAX_TEXT: usize = 512;

impl CallerKey {
    /// Describes the field that identifies the caller.
    pub fn field(self) -> &'static str {
        match self {
            CallerKey::Address { .. } => "an address",
            CallerKey::User => "a user",
            CallerKey::UserAgent => "a user agent",
            CallerKey::Global => "a caller",
        }
    }
}

impl FromStr for CallerKey {
    type Err = String;

    fn from_str(text: &str) -> Result<CallerKey, String> {
        let bits = |bits: &str| bits.parse().ok().filter(|bits| (1..=128).contains(bits));
        match text {
            "ip" => Ok(CallerKey::Address { v6_bits: 64 }),
            "user" => Ok(CallerKey::User),
            "user-agent" => Ok(CallerKey::UserAgent),
            "global" => Ok(CallerKey::Global),
            _ => {
                text.strip_prefix("ip/").and_then(bits).map(|v6_bits| CallerKey::Address { v6_bits }).ok_or_else(|| {
                    "expected ip, ip/N (N bits of an IPv6 address, from 1 to 128), user, user-agent or global"
                        .to_owned()
                })
            }
        }
    }
}

impl Caller {
    pub fn key(&self) -> Key {
        match self {
            Caller::V4(address) => Key::from(IpAddr::V4(*address)),
            Caller::V6(address, _) => Key::from(IpAddr::V6(*address)),
            Caller::Text(text) => Key::from(&**text),
            Caller::Global => Key::from("global"),
            Caller::Anonymous => Key::from("anonymous"),
        }
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Caller::V4(address) => address.fmt(f),
            Caller::V6(address, 128) => address.fmt(f),
            Caller::V6(address, bits) => write!(f, "{address}/{bits}"),
            // A log can contain control characters, which could affect the terminal.
            Caller::Text(text) => text.chars().take(60).flat_map(char::escape_debug).try_for_each(|c| write!(f, "{c}")),
            Caller::Global => f.write_str("all callers"),
            Caller::Anonymous => f.write_str("(no caller)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_is_identified_by_the_selected_key() {
        let address = Some("2001:db8:1:2:3::4".parse().unwrap());
        let entry = Entry { address, user: "ada", user_agent: "curl/8", ..Entry::default() };
        let name = |key: &str| key.parse::<CallerKey>().unwrap().of(&entry).to_string();
        assert_eq!(name("ip"), "2001:db8:1:2::/64");
        assert_eq!(name("ip/48"), "2001:db8:1::/48");
        assert_eq!(name("ip/128"), "2001:db8:1:2:3::4");
        assert_eq!([name("user"), name("user-agent"), name("global")], ["ada", "curl/8", "all callers"]);
        assert_eq!(CallerKey::User.of(&Entry { user: "-", ..entry.clone() }), Caller::Anonymous);
        for key in ["ip/0", "ip/129", "ip/", "address", ""] {
            assert!(key.parse::<CallerKey>().is_err(), "{key}");
        }
    }

    /// Regression: a compressed log of a few megabytes filled the memory with long user agents.
    #[test]
    fn long_names_are_truncated() {
        let (long, other) = (format!("{}a", "ä".repeat(30_000)), format!("{}b", "ä".repeat(30_000)));
        let of = |user_agent| CallerKey::UserAgent.of(&Entry { user_agent, ..Entry::default() });
        assert_eq!(of(&long), of(&other));
        assert!(matches!(of(&long), Caller::Text(text) if text.len() <= 512));
    }
}
