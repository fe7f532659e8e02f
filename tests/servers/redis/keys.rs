//! Keys may contain arbitrary text, but the server receives only their digests. Different keys have different digests,
//! and all rows of a key are in one slot.

use std::collections::HashSet;

use redis::{Connection, cmd};
use tollgate::backend::RedisBackend;
use tollgate::{Charge, HOUR, Key, Policy, Quota, RateLimiter};

use super::outage::SLOW;
use super::proxy::Proxy;
use crate::support::cluster_server::{SLOTS, add_slots, node};
use crate::support::server::{PATIENCE, Server};

static ONCE: Policy = Policy::new("once", Quota::token_bucket(1, HOUR));

/// Returns keys that a careless encoding would confuse with each other.
fn similar_keys() -> Vec<Key> {
    let mut long = "x".repeat(1 << 20);
    let mut keys: Vec<Key> = vec![Key::from(long.as_str())];
    long.push('y');
    keys.push(Key::from(long.as_str()));
    let texts = [
        "",
        "{",
        "}",
        "{}",
        "{}{}",
        "{a}",
        "{a}b",
        "a{b}",
        "}{",
        ":",
        "::",
        "a:b",
        "a::b",
        "tollgate:{a}:once",
        "\n",
        "\r\n",
        "a\nb",
        "a\r\nb",
        "a\r\n\r\nb",
        "*1\r\n$8\r\nFLUSHALL\r\n",
        "\0",
        "\0\0",
        "a\0b",
        "a",
        "A",
        " a",
        "a ",
        "*",
        "?",
        "[a]",
        "\\",
        "'",
        "\"",
        "%s",
        "%",
        "..",
        "\u{fffd}",
        "\u{e9}",
        "e\u{301}",
        "7",
        "7.0",
        "-7",
        "0",
        "None",
        "nil",
    ];
    keys.extend(texts.map(Key::from));
    let bytes: [&[u8]; 7] = [b"", b"\xff", b"\xff\xfe", b"\xc3\x28", b"\xed\xa0\x80", b"\xef\xbf\xbd", b"\x80{}"];
    keys.extend(bytes.map(Key::from));
    keys.extend([Key::from(7), Key::from(true), Key::anonymous(), Key::global()]);
    keys.extend([Key::from(("a", "b")), Key::from(("ab", "")), Key::from(("", "ab")), Key::from(("a:b", ""))]);
    keys
}

#[tokio::test]
async fn similar_keys_have_separate_rows() {
    let server = Server::start();
    let limiter = RateLimiter::new(server.backend().await);
    let keys = similar_keys();
    for round in [true, false] {
        for (i, key) in keys.iter().enumerate() {
            assert_eq!(limiter.try_limit(&ONCE, key).await.unwrap().is_allowed(), round, "key {i}: {key:?}");
        }
    }
    let rows: usize = cmd("DBSIZE").query(&mut server.admin()).unwrap();
    assert_eq!(rows, keys.len());
}

/// The first braces in a row's name contain the digest, even if the name of the policy contains braces. All rows of a
/// key are therefore in the same slot.
#[tokio::test]
async fn all_rows_of_a_key_are_in_one_slot() {
    let server = Server::with(node());
    let mut admin = server.admin();
    add_slots(&mut admin, 0..SLOTS);
    wait_for_slots(&mut admin);
    let backend = RedisBackend::builder().deadline(PATIENCE).connect_cluster([server.url()]).await.unwrap();
    let limiter = RateLimiter::new(backend.clone());
    let policies = ["a", "{b}", "}c{", "{}", "d:{0}", "e f", "\"", "\\"]
        .map(|name| Policy::new(name, Quota::token_bucket(9, HOUR)));
    let mut slots = HashSet::new();
    for key in similar_keys() {
        // The server refuses a script call with keys in several slots.
        let all = policies.iter().map(|policy| Charge::new(policy, &key));
        assert!(limiter.try_limit_all(all).await.unwrap().is_allowed(), "{key:?}");
        let of_key: HashSet<u16> = policies
            .iter()
            .map(|policy| {
                let row = backend.row_key(policy.name(), limiter.digest(Some(&key)));
                assert_eq!(cmd("EXISTS").arg(&row).query(&mut admin), Ok(1), "{row}");
                cmd("CLUSTER").arg("KEYSLOT").arg(&row).query(&mut admin).unwrap()
            })
            .collect();
        assert_eq!(of_key.len(), 1, "{key:?}");
        slots.extend(of_key);
    }
    assert!(slots.len() > 40, "the keys are spread over only {} slots", slots.len());
}

pub(crate) fn wait_for_slots(admin: &mut Connection) {
    let begin = std::time::Instant::now();
    while !cmd("CLUSTER").arg("INFO").query::<String>(admin).unwrap().contains("cluster_state:ok") {
        assert!(begin.elapsed() < PATIENCE, "the cluster is not ready");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[tokio::test]
async fn the_text_of_a_key_is_never_sent() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let backend = RedisBackend::builder().deadline(PATIENCE).connect(&proxy.url()).await.unwrap();
    let limiter = RateLimiter::new(backend);
    let canary = "canary@example.com";
    let held = limiter.acquire(&SLOW, canary).cost(2).hold().await.unwrap().into_receipt();
    held.settle(1).await.unwrap();
    drop(limiter.try_limit_all([Charge::new(&ONCE, canary), Charge::new(&SLOW, (canary, 7))]).await.unwrap());
    drop(limiter.try_limit_all([Charge::new(&ONCE, canary), Charge::new(&SLOW, canary.as_bytes())]).await.unwrap());
    drop(limiter.try_limit(&SLOW, 0xCA4A_2222_3333_4444_u64).await.unwrap());
    limiter.reset(&ONCE, "canary of a reset").await.unwrap();
    let mut all = proxy.bytes_seen();
    let mut admin = server.admin();
    let rows: Vec<Vec<u8>> = cmd("KEYS").arg("*").query(&mut admin).unwrap();
    assert_eq!(rows.len(), 4);
    for row in &rows {
        let text = std::str::from_utf8(row).expect("expected an ASCII row name");
        let digest =
            text.strip_prefix("tollgate:2:{").and_then(|rest| rest.get(..32)).unwrap_or_else(|| panic!("{text}"));
        assert!(digest.bytes().all(|byte| byte.is_ascii_hexdigit()), "{text}");
        assert!(text.ends_with("}:slow") || text.ends_with("}:once"), "{text}");
        all.extend(row);
        let value: Vec<u8> = cmd("GET").arg(row).query(&mut admin).unwrap();
        assert_eq!(value.len(), 40);
        all.extend(value);
    }
    let (big, little) = (0xCA4A_2222_3333_4444_u64.to_be_bytes(), 0xCA4A_2222_3333_4444_u64.to_le_bytes());
    for secret in [&b"canary"[..], b"example.com", &big, &little, b"14575716418480587844"] {
        assert!(!all.windows(secret.len()).any(|part| part == secret), "{}", String::from_utf8_lossy(secret));
    }
}

#[tokio::test]
async fn different_secrets_or_prefixes_use_different_rows() {
    let server = Server::start();
    let with = |prefix: &str, secret: Option<[u8; 16]>| {
        let mut builder = RedisBackend::builder().deadline(PATIENCE).prefix(prefix);
        if let Some(secret) = secret {
            builder = builder.secret(tollgate::key::Secret::new(secret));
        }
        let url = server.url();
        async move { RateLimiter::new(builder.connect(&url).await.unwrap()) }
    };
    for (prefix, secret) in [("a", None), ("b", None), ("a", Some([1; 16])), ("a", Some([2; 16])), ("a:b", None)] {
        let limiter = with(prefix, secret).await;
        assert!(limiter.try_limit(&ONCE, "ada").await.unwrap().is_allowed(), "{prefix} {secret:?}");
        assert!(!with(prefix, secret).await.try_limit(&ONCE, "ada").await.unwrap().is_allowed(), "{prefix} {secret:?}");
    }
}
