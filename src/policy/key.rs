//! Keys: whom a policy counts. Typed parts, written so that no two different keys ever read the same.

use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whom a policy counts: a user, an address, a tenant, or several of these together.
///
/// A key is typed: the string `"7"` and the number 7 are two keys; 7 as `u32` and as `u64` is one. Each part is written
/// with its type and length, so `("ab", "c")` and `("a", "bc")` differ too. An IPv4-mapped IPv6 address is its IPv4
/// address.
///
/// A socket's address is no key, since its port changes with each connection: take its `.ip()`.
///
/// The limiter hashes a key once, under its secret, and keeps nothing else of it. Its `Debug` shows no content.
///
/// ```
/// use std::net::IpAddr;
/// use tollgate::Key;
///
/// let user = Key::from(42);
/// let login = Key::from(("ada@example.com", IpAddr::from([203, 0, 113, 7])));
/// assert_ne!(Key::from("42"), user);
/// assert_eq!(format!("{login:?}"), "Key(39 bytes)");
/// ```
///
/// Up to 64 bytes need no allocation: of text 56; of a tuple, 56 for its parts, of which an IPv4 network takes 8, an
/// IPv6 one 24, a number 16 and a text its length and 8.
// Not a SmallVec: each time one of those moves, what was just written in words is copied in other portions, which the
// processor does with a delay; there were three moves, and as many delays as a decision takes.
#[derive(Clone)]
pub struct Key {
    /// The bytes, if they are few, and zeros.
    short: [u8; INLINE],
    length: usize,
    long: Option<Box<[u8]>>,
}

impl Key {
    /// The key shared by all callers that have none of their own.
    ///
    /// ```
    /// use tollgate::{Key, Policy, Quota, RateLimiter, Subject, MINUTE};
    ///
    /// static API: Policy = Policy::new("api", Quota::token_bucket(10, MINUTE));
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::Error> {
    /// let limiter = RateLimiter::default();
    /// limiter.limit(&API, Subject::anonymous()).await?;
    /// assert_eq!(limiter.remaining(&API, Key::anonymous()).await?, 9);
    /// # Ok(())
    /// # }
    /// ```
    pub fn anonymous() -> Key {
        Key::fixed(Tag::Anonymous, 0, [])
    }

    /// The one key of limits on everybody together, which no caller's own key is: what
    /// [`key::global`](crate::key::global) finds.
    ///
    /// ```
    /// use tollgate::Key;
    ///
    /// assert_ne!(Key::everybody(), Key::from("everybody"));
    /// assert_ne!(Key::everybody(), Key::anonymous());
    /// ```
    pub fn everybody() -> Key {
        Key::tuple(&[])
    }

    /// The network of `prefix_v4` or `prefix_v6` leading bits in which an address lies. Prefixes beyond the address's
    /// length mean the whole address.
    ///
    /// ```
    /// use std::net::IpAddr;
    /// use tollgate::Key;
    ///
    /// let one: IpAddr = "2001:db8::1".parse()?;
    /// let other: IpAddr = "2001:db8::ffff:2".parse()?;
    /// assert_eq!(Key::network(one, 32, 64), Key::network(other, 32, 64));
    /// # Ok::<(), std::net::AddrParseError>(())
    /// ```
    pub fn network(address: IpAddr, prefix_v4: u8, prefix_v6: u8) -> Key {
        match address.to_canonical() {
            IpAddr::V4(address) => {
                let prefix = prefix_v4.min(32);
                let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
                let bits = u64::from(u32::from(address) & mask);
                Key::fixed(Tag::V4, u64::from(prefix) | bits << 8, [])
            }
            IpAddr::V6(address) => {
                let prefix = prefix_v6.min(128);
                let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
                Key::fixed(Tag::V6, u64::from(prefix), (u128::from(address) & mask).to_be_bytes())
            }
        }
    }

    /// A whole number: in one word if it fits.
    #[inline]
    fn number([word, wide]: [Tag; 2], number: u128) -> Key {
        match u64::try_from(number) {
            Ok(number) => Key::fixed(word, 0, number.to_le_bytes()),
            Err(_) => Key::fixed(wide, 0, number.to_le_bytes()),
        }
    }

    /// A part of any length: one word that tells its type and length, then its bytes.
    // Not inlined, so that it is written where it is wanted.
    #[inline(never)]
    fn of(tag: Tag, bytes: &[u8]) -> Key {
        let head = (tag as u64 | (bytes.len() as u64) << 8).to_le_bytes();
        let length = HEAD + bytes.len();
        if length > INLINE {
            return Key::long([&head, bytes].concat());
        }
        let mut key = Key { short: [0; INLINE], length, long: None };
        key.short[..HEAD].copy_from_slice(&head);
        // Word by word, as it will be hashed: see `Key`.
        let mut words = bytes.chunks_exact(8);
        let mut places = key.short[HEAD..].chunks_exact_mut(8);
        for (word, place) in words.by_ref().zip(places.by_ref()) {
            place.copy_from_slice(word);
        }
        let rest = words.remainder();
        if let (false, Some(place)) = (rest.is_empty(), places.next()) {
            let mut word = 0;
            for byte in rest.iter().rev() {
                word = word << 8 | u64::from(*byte);
            }
            place.copy_from_slice(&word.to_le_bytes());
        }
        key
    }

    /// A part whose type tells its length: `about` goes into the same word as that, in 56 bits.
    #[inline]
    fn fixed<const N: usize>(tag: Tag, about: u64, bytes: [u8; N]) -> Key {
        const { assert!(HEAD + N <= INLINE) };
        let mut key = Key { short: [0; INLINE], length: HEAD + N, long: None };
        key.short[..HEAD].copy_from_slice(&(tag as u64 | about << 8).to_le_bytes());
        key.short[HEAD..HEAD + N].copy_from_slice(&bytes);
        key
    }

    fn tuple(parts: &[Key]) -> Key {
        let mut key = Key::fixed(Tag::Tuple, parts.len() as u64, []);
        let length = parts.iter().fold(key.length, |length, part| length + part.length);
        if length > INLINE {
            let parts = parts.iter().map(Key::bytes);
            return Key::long(std::iter::once(key.bytes()).chain(parts).collect::<Vec<_>>().concat());
        }
        let mut places = &mut key.short[key.length..];
        for part in parts {
            let (place, rest) = places.split_at_mut(part.length);
            place.copy_from_slice(part.bytes());
            places = rest;
        }
        key.length = length;
        key
    }

    fn long(bytes: Vec<u8>) -> Key {
        Key { short: [0; INLINE], length: bytes.len(), long: Some(bytes.into()) }
    }

    /// As it is hashed.
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        match &self.long {
            None => self.short.get(..self.length).unwrap_or_default(),
            Some(bytes) => bytes,
        }
    }
}

/// Bytes of a key that need no allocation.
const INLINE: usize = 64;
/// Bytes of the word before each part.
const HEAD: usize = 8;

/// The first byte of each part: what it is. Stored digests depend on these numbers.
#[repr(u8)]
enum Tag {
    Anonymous = 0,
    Text = 1,
    Bytes = 2,
    NonNegative = 3,
    Negative = 4,
    V4 = 5,
    V6 = 6,
    #[cfg(feature = "uuid")]
    Uuid = 7,
    Tuple = 8,
    Bool = 9,
    WideNonNegative = 10,
    WideNegative = 11,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({} bytes)", self.length)
    }
}

impl Eq for Key {}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.bytes().hash(state);
    }
}

impl From<&Key> for Key {
    fn from(key: &Key) -> Key {
        key.clone()
    }
}

impl From<&str> for Key {
    #[inline]
    fn from(text: &str) -> Key {
        Key::of(Tag::Text, text.as_bytes())
    }
}

impl From<&[u8]> for Key {
    fn from(bytes: &[u8]) -> Key {
        Key::of(Tag::Bytes, bytes)
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

impl From<u128> for Key {
    #[inline]
    fn from(number: u128) -> Key {
        Key::number([Tag::NonNegative, Tag::WideNonNegative], number)
    }
}

impl From<i128> for Key {
    fn from(number: i128) -> Key {
        let tags = match number < 0 {
            true => [Tag::Negative, Tag::WideNegative],
            false => [Tag::NonNegative, Tag::WideNonNegative],
        };
        Key::number(tags, number.unsigned_abs())
    }
}

impl From<IpAddr> for Key {
    /// The whole address. [`key::client_ip`](crate::key::client_ip) counts the first 64 bits of an IPv6 one, which is
    /// [`Key::network`]`(address, 32, 64)`.
    fn from(address: IpAddr) -> Key {
        Key::network(address, 32, 128)
    }
}

impl From<bool> for Key {
    fn from(value: bool) -> Key {
        Key::fixed(Tag::Bool, u64::from(value), [])
    }
}

#[cfg(feature = "uuid")]
impl From<uuid::Uuid> for Key {
    fn from(uuid: uuid::Uuid) -> Key {
        Key::fixed(Tag::Uuid, 0, *uuid.as_bytes())
    }
}

macro_rules! from_via {
    ($($from:ty => |$value:ident| $key:expr;)*) => {$(
        impl From<$from> for Key {
            #[inline]
            fn from($value: $from) -> Key {
                Key::from($key)
            }
        }
    )*};
}

from_via! {
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
    u8 => |number| u128::from(number);
    u16 => |number| u128::from(number);
    u32 => |number| u128::from(number);
    u64 => |number| u128::from(number);
    usize => |number| number as u128;
    i8 => |number| i128::from(number);
    i16 => |number| i128::from(number);
    i32 => |number| i128::from(number);
    i64 => |number| i128::from(number);
    isize => |number| number as i128;
    &u8 => |number| *number;
    &u16 => |number| *number;
    &u32 => |number| *number;
    &u64 => |number| *number;
    &u128 => |number| *number;
    &usize => |number| *number;
    &i8 => |number| *number;
    &i16 => |number| *number;
    &i32 => |number| *number;
    &i64 => |number| *number;
    &i128 => |number| *number;
    &isize => |number| *number;
    &&str => |text| *text;
    &Ipv4Addr => |address| *address;
    &Ipv6Addr => |address| *address;
    bytes::Bytes => |bytes| &*bytes;
    &http::HeaderValue => |value| value.as_bytes();
}

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
mod tests {
    use super::super::digest::Secret;
    use super::*;
    use proptest::prelude::*;
    use std::hash::BuildHasher;

    #[derive(Clone, Debug, PartialEq)]
    enum Part {
        Text(String),
        Bytes(Vec<u8>),
        Number(i128),
        Address(IpAddr),
        Tuple(Box<Part>, Box<Part>),
    }

    impl From<Part> for Key {
        fn from(part: Part) -> Key {
            match part {
                Part::Text(text) => text.into(),
                Part::Bytes(bytes) => bytes.into(),
                Part::Number(number) => number.into(),
                Part::Address(address) => address.into(),
                Part::Tuple(a, b) => (Key::from(*a), Key::from(*b)).into(),
            }
        }
    }

    fn part() -> impl Strategy<Value = Part> {
        let leaf = prop_oneof![
            prop_oneof!["[:a\0{}]{0,3}", "[:a]{7,9}", "a{50}[:a\0]{5,8}"].prop_map(Part::Text),
            proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(8), Just(b':')], 0..4).prop_map(Part::Bytes),
            (-2i128..3).prop_map(Part::Number),
            any::<[u8; 2]>().prop_map(|[a, b]| Part::Address(IpAddr::from([10, 0, a & 1, b & 1]))),
        ];
        // Leaves by themselves too: of 20,000 recursive ones alone, none was.
        let tuples = leaf.clone().prop_recursive(3, 12, 2, |inner| {
            (inner.clone(), inner).prop_map(|(a, b)| Part::Tuple(Box::new(a), Box::new(b)))
        });
        prop_oneof![leaf, tuples]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]
        #[test]
        fn no_two_keys_read_the_same(a in part(), b in part()) {
            prop_assert_eq!(a == b, Key::from(a) == Key::from(b));
        }
    }

    #[test]
    fn every_spelling_of_an_address_is_one_key() {
        let key = Key::from(IpAddr::from([1, 2, 3, 4]));
        for text in ["1.2.3.4", "::ffff:1.2.3.4", "::ffff:102:304", "0:0:0:0:0:ffff:0102:0304"] {
            assert_eq!(Key::from(text.parse::<IpAddr>().unwrap()), key);
            assert_eq!(Key::network(text.parse().unwrap(), 32, 64), key);
        }
    }

    #[test]
    fn networks_are_masked() {
        let key = |text: &str, v4, v6| Key::network(text.parse().unwrap(), v4, v6);
        assert_eq!(key("10.1.2.3", 24, 64), key("10.1.2.99", 24, 64));
        assert_ne!(key("10.1.2.3", 24, 64), key("10.1.3.3", 24, 64));
        assert_eq!(key("10.1.2.3", 0, 0), key("99.1.2.3", 0, 0));
        assert_eq!(key("10.1.2.3", 255, 64), Key::from(IpAddr::from([10, 1, 2, 3])));
        assert_ne!(key("10.1.2.0", 24, 64), key("10.1.2.0", 32, 64));
        assert_ne!(key("2001:db8::", 32, 0), key("0.0.0.0", 0, 0));
    }

    #[test]
    fn networks_of_ipv6_are_masked_too() {
        let key = |text: &str, v6| Key::network(text.parse().unwrap(), 32, v6);
        assert_eq!(key("2001:db8:1:2::3", 64), key("2001:db8:1:2:ffff::", 64));
        assert_ne!(key("2001:db8:1:2::3", 64), key("2001:db8:1:3::3", 64));
        assert_eq!(key("2001:db8:1:2::3", 0), key("fe80::", 0));
        assert_eq!(key("2001:db8::3", 255), Key::from("2001:db8::3".parse::<Ipv6Addr>().unwrap()));
        assert_ne!(key("2001:db8::3", 128), key("2001:db8::4", 128));
    }

    #[test]
    fn texts_of_any_length_are_read_whole() {
        // Up to 64 bytes with what is written before them they need no allocation.
        for length in [1, 7, 8, 9, 15, 16, 17, 55, 56, 57, 1000] {
            let (one, other) = ("x".repeat(length), "x".repeat(length - 1) + "y");
            assert_eq!(Key::from(one.as_str()), Key::from(one.clone()));
            assert_ne!(Key::from(one.as_str()), Key::from(other.as_str()));
            assert_eq!(format!("{:?}", Key::from(one)), format!("Key({} bytes)", 8 + length));
        }
    }

    #[test]
    fn up_to_64_bytes_need_no_allocation() {
        let allocates = |key: Key| key.long.is_some();
        assert!(!allocates(Key::from("x".repeat(56))) && allocates(Key::from("x".repeat(57))));
        let beside_a_number = |length: usize| allocates(Key::from((7, "x".repeat(length))));
        assert!(!beside_a_number(32) && beside_a_number(33));
    }

    #[test]
    fn equal_keys_have_equal_hashes_and_others_have_others() {
        let hash = |key: &Key| std::hash::BuildHasherDefault::<std::hash::DefaultHasher>::default().hash_one(key);
        assert_eq!(hash(&Key::from(7u8)), hash(&Key::from(7i64)));
        assert_ne!(hash(&Key::from(7)), hash(&Key::from(8)));
    }

    #[test]
    fn integers_are_one_key_in_every_width() {
        assert_eq!(Key::from(0u8), Key::from(0i64));
        assert_eq!(Key::from(7u8), Key::from(7i64));
        assert_eq!(Key::from(u128::MAX), Key::from(u128::MAX));
        assert_ne!(Key::from(-7), Key::from(7));
        assert_ne!(Key::from(i128::MIN), Key::from(i128::MIN.unsigned_abs()));
    }

    #[test]
    fn neither_keys_nor_secrets_show() {
        assert_eq!(format!("{:?}", Key::from("hunter2")), "Key(15 bytes)");
        assert_eq!(format!("{:?}", Secret::new(*b"0123456789abcdef")), "Secret(..)");
    }
}
