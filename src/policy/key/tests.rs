//! Tests of keys and their digests.

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
    // `leaf` needs a separate branch, because `prop_recursive` generated no leaves in 20,000 cases.
    let tuples = leaf.clone().prop_recursive(3, 12, 2, |inner| {
        (inner.clone(), inner).prop_map(|(a, b)| Part::Tuple(Box::new(a), Box::new(b)))
    });
    prop_oneof![leaf, tuples]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]
    #[test]
    fn different_keys_have_different_encodings(a in part(), b in part()) {
        prop_assert_eq!(a == b, Key::from(a) == Key::from(b));
    }
}

#[test]
fn every_spelling_of_an_address_yields_the_same_key() {
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
fn ipv6_networks_are_masked() {
    let key = |text: &str, v6| Key::network(text.parse().unwrap(), 32, v6);
    assert_eq!(key("2001:db8:1:2::3", 64), key("2001:db8:1:2:ffff::", 64));
    assert_ne!(key("2001:db8:1:2::3", 64), key("2001:db8:1:3::3", 64));
    assert_eq!(key("2001:db8:1:2::3", 0), key("fe80::", 0));
    assert_eq!(key("2001:db8::3", 255), Key::from("2001:db8::3".parse::<Ipv6Addr>().unwrap()));
    assert_ne!(key("2001:db8::3", 128), key("2001:db8::4", 128));
}

#[test]
fn strings_of_any_length_are_encoded_in_full() {
    for length in [1, 7, 8, 9, 15, 16, 17, 55, 56, 57, 1000] {
        let (one, other) = ("x".repeat(length), "x".repeat(length - 1) + "y");
        assert_eq!(Key::from(one.as_str()), Key::from(one.clone()));
        assert_ne!(Key::from(one.as_str()), Key::from(other.as_str()));
        assert_eq!(format!("{:?}", Key::from(one)), format!("Key({} bytes)", 8 + length.next_multiple_of(8)));
    }
}

#[test]
fn bytes_are_padded_with_zeros_to_whole_words() {
    let text: Vec<u8> = (0..100).map(|i| (i * 37 + 11) as u8).collect();
    for length in 0..text.len() {
        let key = Key::from(&text[..length]);
        let (head, words) = key.bytes().split_at(8);
        assert_eq!(head, (Tag::Bytes as u64 | (length as u64) << 8).to_le_bytes());
        assert!(words.starts_with(&text[..length]), "{length}: {words:?}");
        assert_eq!(words.len(), length.next_multiple_of(8));
        assert!(words[length..].iter().all(|byte| *byte == 0), "{length}: {words:?}");
    }
}

#[test]
fn keys_of_up_to_64_bytes_need_no_allocation() {
    let allocates = |key: Key| key.bytes.spilled();
    assert!(!allocates(Key::from("x".repeat(56))) && allocates(Key::from("x".repeat(57))));
    let allocates_with_number = |length: usize| allocates(Key::from((7, "x".repeat(length))));
    assert!(!allocates_with_number(32) && allocates_with_number(33));
}

#[test]
fn equal_keys_have_equal_hashes() {
    let hash = |key: &Key| std::hash::BuildHasherDefault::<std::hash::DefaultHasher>::default().hash_one(key);
    assert_eq!(hash(&Key::from(7u8)), hash(&Key::from(7i64)));
    assert_ne!(hash(&Key::from(7)), hash(&Key::from(8)));
}

#[test]
fn an_integer_is_the_same_key_regardless_of_its_width() {
    assert_eq!(Key::from(0u8), Key::from(0i64));
    assert_eq!(Key::from(7u8), Key::from(7i64));
    assert_eq!(Key::from(u128::MAX), Key::from(u128::MAX));
    assert_ne!(Key::from(-7), Key::from(7));
    assert_ne!(Key::from(i128::MIN), Key::from(i128::MIN.unsigned_abs()));
}

#[test]
fn debug_output_shows_neither_keys_nor_secrets() {
    assert_eq!(format!("{:?}", Key::from("hunter2")), "Key(16 bytes)");
    assert_eq!(format!("{:?}", Secret::new(*b"0123456789abcdef")), "Secret(..)");
}
