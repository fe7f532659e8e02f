//! The text form of keys, and the parts that keys consist of.

use std::fmt::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use smallvec::SmallVec;

use super::digest::Digest;
use super::key::{Key, KeySource, Tag};
use super::network::parse_network;

pub(super) enum Part<'k> {
    Anonymous,
    Text(&'k [u8]),
    Bytes(&'k [u8]),
    Number { is_negative: bool, size: u128 },
    Bool(bool),
    Network(IpAddr, u64),
    Uuid(u128),
    Tuple(u64),
    Found { source: KeySource, name: &'k [u8], value: &'k [u8] },
    Digest(u128),
}

impl<'k> Part<'k> {
    /// Splits off the first part of a key's bytes. Returns `None` at the end.
    pub(super) fn split(bytes: &'k [u8]) -> Option<(Part<'k>, &'k [u8])> {
        let (head, rest) = bytes.split_first_chunk::<8>()?;
        let head = u64::from_le_bytes(*head);
        let detail = head >> 8;
        let padded = |length: u64| {
            let length = usize::try_from(length).ok()?;
            let (part, rest) = rest.split_at_checked(length.next_multiple_of(8))?;
            Some((part.get(..length)?, rest))
        };
        let narrow =
            || padded(8).and_then(|(part, rest)| Some((u64::from_le_bytes(part.try_into().ok()?).into(), rest)));
        let wide = || padded(16).and_then(|(part, rest)| Some((u128::from_le_bytes(part.try_into().ok()?), rest)));
        let number = |is_negative, (size, rest)| (Part::Number { is_negative, size }, rest);
        Some(match Tag::of(head as u8)? {
            Tag::Anonymous => (Part::Anonymous, rest),
            Tag::Text => padded(detail).map(|(text, rest)| (Part::Text(text), rest))?,
            Tag::Bytes => padded(detail).map(|(bytes, rest)| (Part::Bytes(bytes), rest))?,
            Tag::NonNegative => number(false, narrow()?),
            Tag::Negative => number(true, narrow()?),
            Tag::WideNonNegative => number(false, wide()?),
            Tag::WideNegative => number(true, wide()?),
            Tag::V4 => (Part::Network(Ipv4Addr::from((detail >> 8) as u32).into(), detail & 0xff), rest),
            Tag::V6 => wide().map(|(bits, rest)| (Part::Network(Ipv6Addr::from(bits).into(), detail), rest))?,
            Tag::Uuid => wide().map(|(uuid, rest)| (Part::Uuid(uuid), rest))?,
            Tag::Digest => wide().map(|(bits, rest)| (Part::Digest(bits), rest))?,
            Tag::Tuple => (Part::Tuple(detail), rest),
            Tag::Bool => (Part::Bool(detail != 0), rest),
            Tag::Found => {
                let source = SOURCES.iter().find(|(source, _)| *source as u64 == detail & 0xff)?.0;
                let (name, rest) = padded(detail >> 8)?;
                let Some((Part::Bytes(value), rest)) = Part::split(rest) else { return None };
                (Part::Found { source, name, value }, rest)
            }
        })
    }
}

impl Key {
    /// Returns the part of the request that contained the key, and the header, cookie or parameter name.
    pub(crate) fn source(&self) -> Option<(KeySource, &[u8])> {
        match Part::split(self.bytes())?.0 {
            Part::Found { source, name, .. } => Some((source, name)),
            _ => None,
        }
    }

    /// Returns the prefix length of a network, as the first number for IPv4 or as the second for IPv6.
    pub(crate) fn prefix(&self) -> Option<(Option<u64>, Option<u64>)> {
        match Part::split(self.bytes())?.0 {
            Part::Network(IpAddr::V4(_), prefix) => Some((Some(prefix), None)),
            Part::Network(IpAddr::V6(_), prefix) => Some((None, Some(prefix))),
            _ => None,
        }
    }

    /// Returns the address of a key that is an IPv4 address or an IPv6 network with a prefix of at least 64 bits.
    #[cfg(feature = "admin")]
    pub(crate) fn address(&self) -> Option<IpAddr> {
        match Part::split(self.bytes())?.0 {
            Part::Network(address, 32..) if address.is_ipv4() => Some(address),
            Part::Network(address, 64..) => Some(address),
            _ => None,
        }
    }

    pub(crate) fn pair(&self) -> Option<(Key, Key)> {
        let (Part::Tuple(2), rest) = Part::split(self.bytes())? else { return None };
        let (mut behind, mut left) = (rest, 1);
        while left > 0 {
            let (part, rest) = Part::split(behind)?;
            left += if let Part::Tuple(parts) = part { parts } else { 0 };
            left -= 1;
            behind = rest;
        }
        let (first, second) = rest.split_at_checked(rest.len() - behind.len())?;
        Some((Key::from_bytes(first), Key::from_bytes(second)))
    }

    /// Returns the parts that extractors found in requests, at any nesting depth.
    pub(crate) fn found_inside(&self) -> impl Iterator<Item = Key> {
        let mut rest = self.bytes();
        std::iter::from_fn(move || {
            loop {
                let (part, behind) = Part::split(rest)?;
                let bytes = rest.get(..rest.len() - behind.len())?;
                rest = behind;
                if matches!(part, Part::Found { .. }) {
                    return Some(Key::from_bytes(bytes));
                }
            }
        })
    }

    /// Returns whether the key contains the value of a header or a cookie, or a bearer token.
    pub(crate) fn may_be_credential(&self) -> bool {
        self.found_inside().any(|part| part.source().is_some_and(|(source, _)| source != KeySource::Path))
    }

    /// Returns the text form without the content of the key, for messages: `header(x-api-key):…`.
    pub(crate) fn kind(&self) -> String {
        write(self, false)
    }
}

const SOURCES: [(KeySource, &str); 4] = [
    (KeySource::Bearer, "bearer"),
    (KeySource::Header, "header"),
    (KeySource::Cookie, "cookie"),
    (KeySource::Path, "path"),
];

/// Returns the text form of a key, or only its type if `shown` is false.
pub(super) fn write(key: &Key, shown: bool) -> String {
    let (mut text, mut rest) = (String::new(), key.bytes());
    // For each tuple that encloses the next part, the number of parts left and the total number of parts.
    let mut open: SmallVec<[(u64, u64); 4]> = SmallVec::new();
    while let Some((part, behind)) = Part::split(rest) {
        rest = behind;
        if let Part::Tuple(parts @ 1..) = part {
            text.push('(');
            open.push((parts, parts));
            continue;
        }
        write_part(&mut text, part, shown);
        while let Some((left, parts)) = open.last_mut() {
            *left -= 1;
            if *left > 0 {
                text.push_str(", ");
                break;
            }
            text.push_str(if *parts == 1 { ",)" } else { ")" });
            open.pop();
        }
    }
    text
}

fn write_part(text: &mut String, part: Part<'_>, shown: bool) {
    let _ = match part {
        Part::Anonymous => text.write_str("anonymous"),
        Part::Tuple(_) => text.write_str("global"),
        Part::Network(IpAddr::V4(address), 32) if shown => write!(text, "{address}"),
        Part::Network(IpAddr::V6(address), 128) if shown => write!(text, "{address}"),
        Part::Network(address, prefix) if shown => write!(text, "{address}/{prefix}"),
        Part::Network(IpAddr::V4(_), prefix) => write!(text, "IPv4/{prefix}"),
        Part::Network(IpAddr::V6(_), prefix) => write!(text, "IPv6/{prefix}"),
        Part::Text(content) if shown => write!(text, "{:?}", String::from_utf8_lossy(content)),
        Part::Text(_) => text.write_str("a string"),
        Part::Bytes(content) if shown => write!(text, "b\"{}\"", content.escape_ascii()),
        Part::Bytes(_) => text.write_str("bytes"),
        Part::Number { .. } | Part::Bool(_) if !shown => {
            text.write_str(if matches!(part, Part::Bool(_)) { "true or false" } else { "a number" })
        }
        Part::Number { is_negative, size } => write!(text, "{}{size}", if is_negative { "-" } else { "" }),
        Part::Bool(value) => write!(text, "{value}"),
        Part::Uuid(uuid) if shown => {
            let digits = format!("{uuid:032x}");
            let groups = [0..8, 8..12, 12..16, 16..20, 20..32].map(|group| &digits[group]);
            write!(text, "uuid:{}", groups.join("-"))
        }
        Part::Uuid(_) => text.write_str("uuid:…"),
        Part::Digest(bits) => write!(text, "digest:{bits:032x}"),
        Part::Found { source, name, value } => {
            let word = SOURCES.iter().find(|(known, _)| *known == source).map_or("", |(_, word)| word);
            let name = if source == KeySource::Bearer { String::new() } else { format!("({})", bare_or_quoted(name)) };
            let value = if shown { bare_or_quoted(value) } else { "…".to_owned() };
            write!(text, "{word}{name}:{value}")
        }
    };
}

fn bare_or_quoted(content: &[u8]) -> String {
    match content.iter().all(is_bare) && !content.is_empty() {
        true => String::from_utf8_lossy(content).into_owned(),
        false => format!("\"{}\"", content.escape_ascii()),
    }
}

fn is_bare(byte: &u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\' | b'(' | b')' | b',')
}

impl FromStr for Key {
    type Err = ParseKeyError;

    /// Parses the [text form](Key#text-form).
    ///
    /// # Errors
    /// Fails if `text` is not the text form of a key.
    fn from_str(text: &str) -> Result<Key, ParseKeyError> {
        Reader { text, rest: text }.key()
    }
}

/// The error for text that is not the text form of a key. The message shows what was expected and where, but not the
/// text, which may be a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseKeyError {
    at: usize,
    expected: &'static str,
}

impl fmt::Display for ParseKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (expected, more) = self.expected.split_once(':').unwrap_or((self.expected, ""));
        let colon = if more.is_empty() { "" } else { ":" };
        write!(f, "expected {expected} at byte {}{colon}{more}; the text is not shown", self.at)
    }
}

impl std::error::Error for ParseKeyError {}

const KEY: &str = "a key: write \"ada\" in quotes for a string, 7 for a number, 192.0.2.0/24 for a network, or \
    bearer:…, header(x-api-key):…, cookie(session):…, path(id):… for a value that a client sends";

struct Reader<'t> {
    text: &'t str,
    rest: &'t str,
}

impl<'t> Reader<'t> {
    fn key(mut self) -> Result<Key, ParseKeyError> {
        let mut bytes: SmallVec<[u8; 64]> = SmallVec::new();
        // For each tuple that encloses the next part, its offset in `bytes` and the number of its parts read so far.
        let mut open: SmallVec<[(usize, u64); 4]> = SmallVec::new();
        loop {
            self.skip_spaces();
            if self.take("(") {
                open.push((bytes.len(), 0));
                bytes.extend_from_slice(&[0; 8]);
                continue;
            }
            bytes.extend_from_slice(self.part()?.bytes());
            loop {
                self.skip_spaces();
                let Some((start, parts)) = open.last_mut() else {
                    return if self.rest.is_empty() { Ok(Key::from_bytes(&bytes)) } else { self.expected("the end") };
                };
                *parts += 1;
                let comma = self.take(",");
                self.skip_spaces();
                if self.take(")") && (comma || *parts > 1) {
                    bytes[*start..*start + 8].copy_from_slice(Key::part(Tag::Tuple, *parts, &[]).bytes());
                    open.pop();
                } else if comma {
                    break;
                } else {
                    return self.expected("a comma");
                }
            }
        }
    }

    fn part(&mut self) -> Result<Key, ParseKeyError> {
        if self.rest.starts_with('"') {
            let start = self.rest;
            let text = self.quoted()?;
            return String::from_utf8(text).map(Key::from).or_else(|_| {
                self.rest = start;
                self.expected("UTF-8 text")
            });
        }
        if self.rest.starts_with("b\"") {
            self.take("b");
            return self.quoted().map(Key::from);
        }
        for (source, word) in SOURCES {
            if source == KeySource::Bearer && self.take("bearer:") {
                return Ok(Key::found(source, "", &self.bare_or_quoted()?));
            }
            let Some(rest) = self.rest.strip_prefix(word).and_then(|rest| rest.strip_prefix('(')) else { continue };
            self.rest = rest;
            let mut name = self.bare_or_quoted()?;
            if !self.take("):") {
                return self.expected("\"):\" after the name");
            }
            if source == KeySource::Header {
                name.make_ascii_lowercase();
            }
            let Ok(name) = String::from_utf8(name) else { return self.expected("a UTF-8 name") };
            return Ok(Key::found(source, &name, &self.bare_or_quoted()?));
        }
        let (start, word) = (self.rest, self.word());
        let key = match word {
            "anonymous" => Some(Key::anonymous()),
            "global" => Some(Key::global()),
            "true" => Some(Key::from(true)),
            "false" => Some(Key::from(false)),
            _ => match word.split_once(':') {
                Some(("uuid", uuid)) => parse_uuid(uuid),
                Some(("digest", digits)) => parse_digest(digits),
                _ => number(word).or_else(|| network(word)),
            },
        };
        key.map_or_else(
            || {
                self.rest = start;
                self.expected(KEY)
            },
            Ok,
        )
    }

    /// Reads a quoted string, starting at the opening quote.
    fn quoted(&mut self) -> Result<Vec<u8>, ParseKeyError> {
        let mut content = Vec::new();
        self.take("\"");
        loop {
            let plain = self.rest.find(['"', '\\']).unwrap_or(self.rest.len());
            let (before, rest) = self.rest.split_at(plain);
            content.extend_from_slice(before.as_bytes());
            self.rest = rest;
            if self.take("\"") {
                return Ok(content);
            }
            let start = self.rest;
            let Some(()) = self.escape(&mut content) else {
                self.rest = start;
                return self.expected(match start {
                    "" => "a closing quote",
                    _ => "an escape: write \\\" \\\\ \\n \\r \\t \\0, \\x7f or \\u{e9}",
                });
            };
        }
    }

    fn escape(&mut self, content: &mut Vec<u8>) -> Option<()> {
        let mut rest = self.rest.strip_prefix('\\')?.chars();
        let escaped = rest.next()?;
        self.rest = rest.as_str();
        match escaped {
            'n' => content.push(b'\n'),
            'r' => content.push(b'\r'),
            't' => content.push(b'\t'),
            '0' => content.push(0),
            '"' | '\'' | '\\' => content.push(escaped as u8),
            'x' => {
                let (digits, rest) = self.rest.split_at_checked(2)?;
                content.push(u8::try_from(hexadecimal(digits)?).ok()?);
                self.rest = rest;
            }
            'u' => {
                let (digits, rest) = self.rest.strip_prefix('{')?.split_once('}')?;
                let character = char::from_u32(u32::try_from(hexadecimal(digits)?).ok()?)?;
                content.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                self.rest = rest;
            }
            _ => return None,
        }
        Some(())
    }

    fn bare_or_quoted(&mut self) -> Result<Vec<u8>, ParseKeyError> {
        if self.rest.starts_with('"') {
            return self.quoted();
        }
        match self.word() {
            "" => self.expected("a value: write it in quotes if it is empty or contains a space, a non-ASCII character or one of \" \\ ( ) ,"),
            word => Ok(word.into()),
        }
    }

    fn word(&mut self) -> &'t str {
        let end = self.rest.bytes().position(|byte| !is_bare(&byte)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    fn take(&mut self, text: &str) -> bool {
        let rest = self.rest.strip_prefix(text);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn skip_spaces(&mut self) {
        self.rest = self.rest.trim_start_matches(' ');
    }

    fn expected<T>(&self, expected: &'static str) -> Result<T, ParseKeyError> {
        Err(ParseKeyError { at: self.text.len() - self.rest.len(), expected })
    }
}

fn number(word: &str) -> Option<Key> {
    let digits = word.strip_prefix('-').unwrap_or(word);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    word.parse::<u128>().map(Key::from).or_else(|_| word.parse::<i128>().map(Key::from)).ok()
}

fn network(word: &str) -> Option<Key> {
    let network = parse_network(word).ok()?;
    Some(Key::network(network.addr(), network.prefix_len(), network.prefix_len()))
}

fn parse_digest(digits: &str) -> Option<Key> {
    let bits = hexadecimal(digits).filter(|_| digits.len() == 32)?;
    Some(Key::from(Digest::from_bits(bits)))
}

fn parse_uuid(text: &str) -> Option<Key> {
    let groups: Vec<&str> = text.split('-').collect();
    let is_uuid = groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12]);
    Some(Key::uuid(hexadecimal(&groups.concat()).filter(|_| is_uuid)?))
}

fn hexadecimal(digits: &str) -> Option<u128> {
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    u128::from_str_radix(digits, 16).ok().filter(|_| is_number)
}

#[cfg(test)]
mod tests;
