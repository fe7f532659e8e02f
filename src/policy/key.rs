//! Keys. Each part of a key is encoded with its type, so different keys never have the same bytes.

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use smallvec::SmallVec;

use super::digest::Digest;
use super::nat64::canonical;

/// Identifies what a policy limits: a user, an address, a tenant, or a combination of these. `Debug` does not show the
/// content of the key.
///
/// Keys are typed: the string `"7"` and the number 7 are different keys, but the number 7 is the same key whether it is
/// a `u32` or a `u64`. `("ab", "c")` and `("a", "bc")` are different keys. IPv4-mapped IPv6 addresses and addresses in
/// NAT64's well-known prefix, `64:ff9b::/96`, count as IPv4 addresses. A `SocketAddr` cannot be a key, because its port
/// changes with each connection; use its `.ip()`.
///
/// ```
/// use tollgate::{key, Key};
///
/// let login = Key::from(("ada@example.com", 7));
/// assert_eq!(login.to_text(), r#"("ada@example.com", 7)"#);
/// assert_eq!(format!("{login:?}"), "Key(48 bytes)");
/// assert_eq!("bearer:sk_7f3a".parse(), Ok(key::bearer().key("sk_7f3a")));
/// assert_ne!(Key::from("7"), Key::from(7));
/// ```
///
/// # Text form
/// [`to_text`](Key::to_text) returns the text form of a key, which shows its type. `parse` converts it back to the key.
///
/// | text | key |
/// | --- | --- |
/// | `"ada"` | a string, with Rust's escapes |
/// | `7`, `-7` | a number |
/// | `true`, `false` | a boolean |
/// | `192.0.2.7`, `192.0.2.0/24`, `2001:db8::/64` | an address, a network |
/// | `b"\x00ada"` | bytes |
/// | `uuid:67e55044-10b1-426f-9247-bb680e5fe0c8` | a UUID |
/// | `bearer:sk_7f3a` | a token found by [`key::bearer`](crate::key::bearer) |
/// | `header(x-api-key):k7`, `cookie(session):s7`, `path(id):7` | a value found by the extractor with this name |
/// | `("ada", 7)`, `("ada",)` | a tuple |
/// | `anonymous`, `global` | [`Key::anonymous`], [`Key::global`] |
/// | `digest:294e0d5fb181c1cb9574defe851b4208` | the key with this [digest](crate::key::Digest), as shown in logs |
///
/// In the `bearer`, `header`, `cookie` and `path` forms, a name or value must be quoted if it is empty or contains a
/// space, a non-ASCII character or one of `"`, `\`, `(`, `)` and `,`: for example, `cookie(session):"a, b"`.
///
/// # Size
/// Keys of up to 64 bytes need no allocation. A string takes 8 bytes plus its length, rounded up to a multiple of 8. An
/// IPv4 network takes 8 bytes, an IPv6 network takes 24, and a number of up to 64 bits takes 16. A tuple takes 8 bytes
/// plus the size of its parts.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key {
    /// The parts, one after the other. Each part encodes its length, so padding never makes two keys equal.
    bytes: SmallVec<[u8; 64]>,
}

impl Key {
    /// The key under which all callers without a key of their own are limited.
    pub fn anonymous() -> Key {
        Key::part(Tag::Anonymous, 0, &[])
    }

    /// The key that [`key::global`](crate::key::global) finds for every request, for limits that all callers share.
    pub fn global() -> Key {
        Key::tuple(&[])
    }

    /// The default prefix length for IPv4 clients and blocks, which covers the whole address.
    pub const DEFAULT_IPV4_PREFIX: u8 = 32;

    /// The default prefix length for IPv6 clients and blocks. A client usually has a whole /64 network.
    pub const DEFAULT_IPV6_PREFIX: u8 = 64;

    /// Creates a key for the network of an address, with a prefix of `prefix_v4` bits for IPv4 or `prefix_v6` bits for
    /// IPv6. A prefix longer than the address covers the whole address.
    pub fn network(address: IpAddr, prefix_v4: u8, prefix_v6: u8) -> Key {
        match canonical(address) {
            IpAddr::V4(address) => {
                let prefix = prefix_v4.min(32);
                let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
                Key::part(Tag::V4, u64::from(prefix) | u64::from(u32::from(address) & mask) << 8, &[])
            }
            IpAddr::V6(address) => {
                let prefix = prefix_v6.min(128);
                let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
                Key::part(Tag::V6, u64::from(prefix), &(u128::from(address) & mask).to_le_bytes())
            }
        }
    }

    pub(super) fn number([narrow, wide]: [Tag; 2], number: u128) -> Key {
        match u64::try_from(number) {
            Ok(number) => Key::part(narrow, 0, &number.to_le_bytes()),
            Err(_) => Key::part(wide, 0, &number.to_le_bytes()),
        }
    }

    pub(super) fn of(tag: Tag, bytes: &[u8]) -> Key {
        Key::part(tag, bytes.len() as u64, bytes)
    }

    /// Encodes a part of a key. The first word contains the tag and a `detail`, such as the length. `part` follows,
    /// padded with zeros to whole words.
    pub(super) fn part(tag: Tag, detail: u64, part: &[u8]) -> Key {
        let length = 8 + part.len().next_multiple_of(8);
        let mut bytes = match length {
            0..=64 => SmallVec::from_buf_and_len([0; 64], length),
            _ => SmallVec::from_vec(vec![0; length]),
        };
        bytes[..8].copy_from_slice(&(tag as u64 | detail << 8).to_le_bytes());
        bytes[8..8 + part.len()].copy_from_slice(part);
        Key { bytes }
    }

    pub(super) fn uuid(uuid: u128) -> Key {
        Key::part(Tag::Uuid, 0, &uuid.to_le_bytes())
    }

    /// Returns the digest from which this key was created, if any.
    #[inline]
    pub(crate) fn as_digest(&self) -> Option<Digest> {
        if self.bytes.first() != Some(&(Tag::Digest as u8)) {
            return None;
        }
        let bits = self.bytes.get(8..24)?.try_into().ok()?;
        Some(Digest::from_bits(u128::from_le_bytes(bits)))
    }

    fn tuple(parts: &[Key]) -> Key {
        let mut key = Key::part(Tag::Tuple, parts.len() as u64, &[]);
        parts.iter().for_each(|part| key.bytes.extend_from_slice(&part.bytes));
        key
    }

    pub(crate) fn found(source: KeySource, name: &str, value: &[u8]) -> Key {
        // Whitespace around a header's value is not part of the value.
        let is_field = matches!(source, KeySource::Bearer | KeySource::Header);
        let value = if is_field { value.trim_ascii() } else { value };
        let detail = source as u64 | (name.len() as u64) << 8;
        let mut key = Key::part(Tag::Found, detail, name.as_bytes());
        key.bytes.extend_from_slice(&Key::of(Tag::Bytes, value).bytes);
        key
    }

    /// Returns the [text form](Key#text-form), which shows the type and the whole content of the key. Do not log the
    /// text form of a credential.
    pub fn to_text(&self) -> String {
        super::key_text::write(self, true)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Key {
        Key { bytes: bytes.into() }
    }
}

/// The parts of a request in which this crate's extractors find keys. Stored digests depend on these numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum KeySource {
    Bearer = 0,
    Header = 1,
    Cookie = 2,
    Path = 3,
}

/// The type of a part, as encoded in its first byte. Stored digests depend on these numbers.
#[derive(Clone, Copy)]
#[repr(u8)]
pub(super) enum Tag {
    Anonymous = 0,
    Text = 1,
    Bytes = 2,
    NonNegative = 3,
    Negative = 4,
    V4 = 5,
    V6 = 6,
    Uuid = 7,
    Tuple = 8,
    Bool = 9,
    WideNonNegative = 10,
    WideNegative = 11,
    Found = 12,
    Digest = 13,
}

impl Tag {
    pub(super) fn of(byte: u8) -> Option<Tag> {
        use Tag::*;
        let all =
            [Anonymous, Text, Bytes, NonNegative, Negative, V4, V6, Uuid, Tuple, Bool, WideNonNegative, WideNegative];
        all.into_iter().chain([Found, Digest]).find(|tag| *tag as u8 == byte)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({} bytes)", self.bytes.len())
    }
}

impl<const N: usize> From<[u8; N]> for Key {
    fn from(bytes: [u8; N]) -> Key {
        Key::of(Tag::Bytes, &bytes)
    }
}

impl<const N: usize> From<&[u8; N]> for Key {
    fn from(bytes: &[u8; N]) -> Key {
        Key::of(Tag::Bytes, bytes)
    }
}

impl From<IpAddr> for Key {
    /// Creates a key for the whole address. By default, [`key::client_ip`](crate::key::client_ip) uses only the first
    /// 64 bits of an IPv6 address.
    fn from(address: IpAddr) -> Key {
        Key::network(address, 32, 128)
    }
}

impl From<Digest> for Key {
    /// Creates a key from the digest of another key, such as a digest found in a log. A limiter with the
    /// [secret](crate::key::Secret) that produced the digest finds the rows and blocks of the original key. A [deny
    /// list](crate::protection::DenyList) compares keys, not digests, so a rule for the original key does not match.
    fn from(digest: Digest) -> Key {
        Key::part(Tag::Digest, 0, &digest.to_bits().to_le_bytes())
    }
}

macro_rules! from_via {
    ($($(#[$attribute:meta])* $from:ty => |$value:ident| $key:expr;)*) => {$(
        $(#[$attribute])*
        impl From<$from> for Key {
            fn from($value: $from) -> Key {
                Key::from($key)
            }
        }
    )*};
}

from_via! {
    &Key => |key| key.clone();
    &str => |text| Key::of(Tag::Text, text.as_bytes());
    &[u8] => |bytes| Key::of(Tag::Bytes, bytes);
    u128 => |number| Key::number([Tag::NonNegative, Tag::WideNonNegative], number);
    i128 => |number| match u128::try_from(number) {
        Ok(number) => Key::from(number),
        Err(_) => Key::number([Tag::Negative, Tag::WideNegative], number.unsigned_abs()),
    };
    bool => |value| Key::part(Tag::Bool, u64::from(value), &[]);
    #[cfg(feature = "uuid")]
    uuid::Uuid => |uuid| Key::uuid(uuid.as_u128());
    String => |text| text.as_str();
    &String => |text| text.as_str();
    Cow<'_, str> => |text| &*text;
    Box<str> => |text| &*text;
    std::sync::Arc<str> => |text| &*text;
    Vec<u8> => |bytes| bytes.as_slice();
    &Vec<u8> => |bytes| bytes.as_slice();
    Ipv4Addr => |address| IpAddr::V4(address);
    Ipv6Addr => |address| IpAddr::V6(address);
    &IpAddr => |address| *address;
    &u128 => |number| *number;
    &i128 => |number| *number;
    &&str => |text| *text;
    &Ipv4Addr => |address| *address;
    &Ipv6Addr => |address| *address;
    bytes::Bytes => |bytes| &*bytes;
    &http::HeaderValue => |value| value.as_bytes();
}

macro_rules! from_integers {
    ($($number:ty as $wide:ty),*) => {$(
        impl From<$number> for Key {
            fn from(number: $number) -> Key {
                Key::from(number as $wide)
            }
        }

        impl From<&$number> for Key {
            fn from(number: &$number) -> Key {
                Key::from(*number)
            }
        }
    )*};
}

from_integers!(u8 as u128, u16 as u128, u32 as u128, u64 as u128, usize as u128);
from_integers!(i8 as i128, i16 as i128, i32 as i128, i64 as i128, isize as i128);

macro_rules! from_tuple {
    ($($part:ident)+) => {
        impl<$($part: Into<Key>),+> From<($($part,)+)> for Key {
            fn from(parts: ($($part,)+)) -> Key {
                #[allow(non_snake_case)]
                let ($($part,)+) = parts;
                Key::tuple(&[$($part.into()),+])
            }
        }
    };
}

from_tuple!(A);
from_tuple!(A B);
from_tuple!(A B C);
from_tuple!(A B C D);
from_tuple!(A B C D E);
from_tuple!(A B C D E F);

#[cfg(test)]
mod tests;
