//! Tests of the text form of keys.

use proptest::prelude::*;

use super::*;

fn texts() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z0-9_:./+=-]{0,6}", "[\"\\\\(), ab\u{0}\n\u{e9}…]{0,6}", any::<String>()]
}

fn keys() -> impl Strategy<Value = Key> {
    let bytes = || prop_oneof![texts().prop_map(String::into_bytes), proptest::collection::vec(any::<u8>(), 0..6)];
    let leaf = prop_oneof![
        texts().prop_map(Key::from),
        bytes().prop_map(Key::from),
        any::<u64>().prop_map(Key::from),
        any::<u128>().prop_map(Key::from),
        any::<i64>().prop_map(Key::from),
        prop_oneof![any::<i128>(), Just(i128::MIN)].prop_map(Key::from),
        any::<bool>().prop_map(Key::from),
        any::<u128>().prop_map(Key::uuid),
        any::<u128>().prop_map(|bits| Key::from(Digest::from_bits(bits))),
        (any::<IpAddr>(), 0u8..=33, 0u8..=129).prop_map(|(address, v4, v6)| Key::network(address, v4, v6)),
        Just(Key::anonymous()),
        Just(Key::global()),
        bytes().prop_map(|token| Key::found(KeySource::Bearer, "", &token)),
        ("[a-z-]{1,9}", bytes()).prop_map(|(name, value)| Key::found(KeySource::Header, &name, &value)),
        (texts(), bytes()).prop_map(|(name, value)| Key::found(KeySource::Cookie, &name, &value)),
        (texts(), bytes()).prop_map(|(name, value)| Key::found(KeySource::Path, &name, &value)),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            inner.clone().prop_map(|a| Key::from((a,))),
            (inner.clone(), inner.clone()).prop_map(Key::from),
            (inner.clone(), inner.clone(), inner).prop_map(Key::from),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]

    #[test]
    fn every_key_can_be_parsed_from_its_text_form(key in keys()) {
        let text = key.to_text();
        prop_assert_eq!(text.parse::<Key>(), Ok(key), "{}", text);
    }

    #[test]
    fn different_keys_have_different_text_forms(a in keys(), b in keys()) {
        prop_assert_eq!(a == b, a.to_text() == b.to_text());
    }

    #[test]
    fn a_pair_splits_into_its_two_keys(a in keys(), b in keys()) {
        prop_assert_eq!(Key::from((&a, &b)).pair(), Some((a, b)));
    }

    #[test]
    fn parsing_never_panics_and_parsed_keys_survive_a_round_trip(text in "[a-z(),:\"\\\\b0-9/.{}\u{e9} -]{0,12}") {
        if let Ok(key) = text.parse::<Key>() {
            prop_assert_eq!(key.to_text().parse::<Key>(), Ok(key));
        }
    }
}

#[test]
fn each_kind_of_key_has_a_text_form() {
    let network = |text: &str, v4, v6| Key::network(text.parse().expect("an address"), v4, v6);
    for (key, text, kind) in [
        (Key::from("ada"), "\"ada\"", "a string"),
        (Key::from("a\"\n\u{e9}"), "\"a\\\"\\n\u{e9}\"", "a string"),
        (Key::from("7"), "\"7\"", "a string"),
        (Key::from(7), "7", "a number"),
        (Key::from(-7), "-7", "a number"),
        (Key::from(u128::MAX), "340282366920938463463374607431768211455", "a number"),
        (Key::from(i128::MIN), "-170141183460469231731687303715884105728", "a number"),
        (Key::from(true), "true", "true or false"),
        (Key::from(b"a\xff\""), "b\"a\\xff\\\"\"", "bytes"),
        (Key::uuid(0x67e5_5044_10b1_426f_9247_bb68_0e5f_e0c8), "uuid:67e55044-10b1-426f-9247-bb680e5fe0c8", "uuid:…"),
        (network("192.0.2.7", 32, 64), "192.0.2.7", "IPv4/32"),
        (network("192.0.2.7", 24, 64), "192.0.2.0/24", "IPv4/24"),
        (network("2001:db8::7", 32, 64), "2001:db8::/64", "IPv6/64"),
        (network("2001:db8::7", 32, 128), "2001:db8::7", "IPv6/128"),
        (Key::anonymous(), "anonymous", "anonymous"),
        (Key::global(), "global", "global"),
        (Key::found(KeySource::Bearer, "", b"sk/7+f=="), "bearer:sk/7+f==", "bearer:…"),
        (Key::found(KeySource::Bearer, "", b" a b "), "bearer:\"a b\"", "bearer:…"),
        (Key::found(KeySource::Header, "x-api-key", b"k7"), "header(x-api-key):k7", "header(x-api-key):…"),
        (Key::found(KeySource::Cookie, "a)b", b"\xff"), "cookie(\"a)b\"):\"\\xff\"", "cookie(\"a)b\"):…"),
        (Key::found(KeySource::Path, "id", b""), "path(id):\"\"", "path(id):…"),
        (Key::from(("ada", 7)), "(\"ada\", 7)", "(a string, a number)"),
        (Key::from((("ada",), Key::global())), "((\"ada\",), global)", "((a string,), global)"),
    ] {
        assert_eq!((key.to_text().as_str(), key.kind().as_str()), (text, kind));
        assert_eq!(text.parse::<Key>(), Ok(key));
    }
    let read = |text: &str| text.parse::<Key>().expect("a key");
    assert_eq!(read(" ( 7 ,\"x\" , ) "), Key::from((7, "x")));
    assert_eq!(read("header(X-Api-Key):k7"), Key::found(KeySource::Header, "x-api-key", b"k7"));
    assert_eq!(read(r#""\x41\u{e9}\'\0""#), Key::from("A\u{e9}'\0"));
}

#[test]
fn errors_name_the_position_and_what_was_expected_but_not_the_text() {
    for (text, at, expected) in [
        ("hunter2", 0, "a key: write"),
        ("", 0, "a key: write"),
        ("(7, hunter2)", 4, "a key: write"),
        ("7 hunter2", 2, "the end"),
        ("(7)", 3, "a comma"),
        ("(7 8)", 3, "a comma"),
        ("()", 1, "a key: write"),
        ("(7,", 3, "a key: write"),
        ("\"hunter2", 8, "a closing quote"),
        (r#""a\q""#, 2, "an escape: write"),
        (r#""\x4""#, 1, "an escape: write"),
        (r#""\u{d800}""#, 1, "an escape: write"),
        (r#""\xff""#, 0, "UTF-8 text"),
        ("bearer:", 7, "a value: write"),
        ("bearer:a b", 9, "the end"),
        ("header(x-api-key) k7", 16, "\"):\" after the name"),
        ("header():k7", 7, "a value: write"),
        ("192.0.2.7/24", 0, "a key: write"),
        ("340282366920938463463374607431768211456", 0, "a key: write"),
        ("uuid:67e5504410b1426f9247bb680e5fe0c8", 0, "a key: write"),
        ("+7", 0, "a key: write"),
    ] {
        let error = text.parse::<Key>().expect_err(text);
        assert_eq!(error.at, at, "{text}");
        assert!(error.expected.starts_with(expected), "{text}: {error}");
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}

#[test]
fn deeply_nested_keys_do_not_overflow_the_stack() {
    let text = format!("{}7{}", "(".repeat(100_000), ",)".repeat(100_000));
    let key: Key = text.parse().expect("a key");
    assert_eq!(key.to_text(), text);
    assert!("(".repeat(100_000).parse::<Key>().is_err());
}
