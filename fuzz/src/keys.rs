//! Keys: the hashed bytes of a key can be parsed back to its parts, so different keys never hash the same bytes.

use std::hash::{Hash, Hasher};
use std::net::IpAddr;

use arbitrary::{Arbitrary, Unstructured};
use tollgate::{Key, key::Secret};

/// Reads `data` as two typed keys.
pub fn run(data: &[u8]) {
    let mut u = Unstructured::new(data);
    let (Ok(part), Ok(other)) = (Part::arbitrary(&mut u), Part::arbitrary(&mut u)) else { return };
    let (meaning, other_meaning) = (part.meaning(), other.meaning());
    let (key, other_key) = (Key::from(part), Key::from(other));
    reads_back(&meaning, &key);
    reads_back(&other_meaning, &other_key);
    let is_same = meaning == other_meaning;
    assert_eq!(key == other_key, is_same, "{meaning:?} and {other_meaning:?}");
    let digest = |key: &Key| Secret::new(*b"0123456789abcdef").digest(key);
    assert_eq!(digest(&key) == digest(&other_key), is_same, "{meaning:?} and {other_meaning:?}");
    let pair = |a: &Key, b: &Key| Key::from((a, b));
    assert_eq!(pair(&key, &other_key) == pair(&other_key, &key), is_same, "{meaning:?} and {other_meaning:?}");
}

#[derive(Arbitrary, Debug)]
enum Part {
    Text(String),
    Bytes(Vec<u8>),
    Byte(u8),
    Natural(u128),
    Word(u64),
    Short(i8),
    Whole(i128),
    Bool(bool),
    Address(IpAddr),
    Mapped(std::net::Ipv4Addr),
    Network(IpAddr, u8, u8),
    Anonymous,
    Global,
    Tuple(Vec<Part>),
}

/// The meaning of a key, independent of how it was created.
#[derive(Debug, PartialEq)]
enum Meaning {
    Text(Vec<u8>),
    Bytes(Vec<u8>),
    /// Whether the number is negative, and its magnitude.
    Number(bool, u128),
    Bool(bool),
    V4(u32, u8),
    V6(u128, u8),
    Anonymous,
    Tuple(Vec<Meaning>),
}

impl Part {
    fn meaning(&self) -> Meaning {
        match self {
            Part::Text(text) => Meaning::Text(text.as_bytes().to_vec()),
            Part::Bytes(bytes) => Meaning::Bytes(bytes.clone()),
            Part::Byte(number) => Meaning::Number(false, (*number).into()),
            Part::Natural(number) => Meaning::Number(false, *number),
            Part::Word(number) => Meaning::Number(false, (*number).into()),
            Part::Short(number) => Meaning::Number(*number < 0, number.unsigned_abs().into()),
            Part::Whole(number) => Meaning::Number(*number < 0, number.unsigned_abs()),
            Part::Bool(value) => Meaning::Bool(*value),
            Part::Address(address) => network(*address, 32, 128),
            Part::Mapped(address) => Meaning::V4((*address).into(), 32),
            Part::Network(address, v4, v6) => network(*address, *v4, *v6),
            Part::Anonymous => Meaning::Anonymous,
            Part::Global => Meaning::Tuple(Vec::new()),
            Part::Tuple(parts) => Meaning::Tuple(parts.iter().take(6).map(Part::meaning).collect()),
        }
    }
}

fn network(address: IpAddr, v4: u8, v6: u8) -> Meaning {
    match crate::as_counted(address) {
        IpAddr::V4(address) => {
            let prefix = v4.min(32);
            let host = 32 - u32::from(prefix);
            Meaning::V4((u64::from(u32::from(address)) >> host << host) as u32, prefix)
        }
        IpAddr::V6(address) => {
            let prefix = v6.min(128);
            let bits = u128::from(address);
            let kept = (0..u32::from(prefix)).map(|i| 1 << (127 - i)).fold(0u128, |mask, bit| mask | bit);
            Meaning::V6(bits & kept, prefix)
        }
    }
}

impl From<Part> for Key {
    fn from(part: Part) -> Key {
        match part {
            Part::Text(text) => text.into(),
            Part::Bytes(bytes) => bytes.into(),
            Part::Byte(number) => number.into(),
            Part::Natural(number) => number.into(),
            Part::Word(number) => number.into(),
            Part::Short(number) => number.into(),
            Part::Whole(number) => number.into(),
            Part::Bool(value) => value.into(),
            Part::Address(address) => address.into(),
            Part::Mapped(address) => address.to_ipv6_mapped().into(),
            Part::Network(address, v4, v6) => Key::network(address, v4, v6),
            Part::Anonymous => Key::anonymous(),
            Part::Global => Key::global(),
            Part::Tuple(parts) => tuple(parts),
        }
    }
}

/// Returns a tuple of the first six parts. Six is the maximum length.
fn tuple(parts: Vec<Part>) -> Key {
    let mut keys = parts.into_iter().take(6).map(Key::from);
    let six = [(); 6].map(|()| keys.next());
    match six {
        [None, ..] => Key::global(),
        [Some(a), None, ..] => (a,).into(),
        [Some(a), Some(b), None, ..] => (a, b).into(),
        [Some(a), Some(b), Some(c), None, ..] => (a, b, c).into(),
        [Some(a), Some(b), Some(c), Some(d), None, _] => (a, b, c, d).into(),
        [Some(a), Some(b), Some(c), Some(d), Some(e), None] => (a, b, c, d, e).into(),
        [Some(a), Some(b), Some(c), Some(d), Some(e), Some(f)] => (a, b, c, d, e, f).into(),
    }
}

/// Checks that the hashed bytes parse back to the key's meaning.
fn reads_back(meaning: &Meaning, key: &Key) {
    let mut recorded = RecordingHasher::default();
    key.hash(&mut recorded);
    let mut rest = &recorded.0[..];
    let read = read(&mut rest);
    assert!(rest.is_empty(), "{} bytes too many after {read:?}", rest.len());
    assert_eq!(read.as_ref(), Some(meaning), "{:?}", recorded.0);
}

/// Records the bytes that a key hashes, from which its digest is computed.
#[derive(Default)]
struct RecordingHasher(Vec<u8>);

impl Hasher for RecordingHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0.extend(bytes);
    }

    // Ignores the length prefix of slices.
    fn write_usize(&mut self, _: usize) {}

    fn finish(&self) -> u64 {
        0
    }
}

fn read(bytes: &mut &[u8]) -> Option<Meaning> {
    let head = u64::from_le_bytes(take(bytes)?);
    let (tag, info) = (head as u8, head >> 8);
    Some(match (tag, info) {
        (0, 0) => Meaning::Anonymous,
        (1, length) => Meaning::Text(padded_bytes(bytes, length)?),
        (2, length) => Meaning::Bytes(padded_bytes(bytes, length)?),
        (3 | 4, 0) => Meaning::Number(tag == 4, u64::from_le_bytes(take(bytes)?).into()),
        (10 | 11, 0) => {
            let number = u128::from_le_bytes(take(bytes)?);
            // Numbers that fit in one word must be recorded in one word.
            u64::try_from(number).is_err().then_some(Meaning::Number(tag == 11, number))?
        }
        (5, info) => Meaning::V4(u32::try_from(info >> 8).ok()?, info as u8),
        (6, prefix) => Meaning::V6(u128::from_le_bytes(take(bytes)?), u8::try_from(prefix).ok()?),
        (8, parts) => Meaning::Tuple((0..parts).map(|_| read(bytes)).collect::<Option<_>>()?),
        (9, value @ (0 | 1)) => Meaning::Bool(value == 1),
        _ => return None,
    })
}

/// Bytes, padded with zeros to whole words.
fn padded_bytes(bytes: &mut &[u8], length: u64) -> Option<Vec<u8>> {
    let length = usize::try_from(length).ok()?;
    let (part, rest) = bytes.split_at_checked(length)?;
    let (padding, rest) = rest.split_at_checked(length.next_multiple_of(8) - length)?;
    *bytes = rest;
    padding.iter().all(|byte| *byte == 0).then(|| part.to_vec())
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*taken)
}
