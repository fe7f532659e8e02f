//! Threats 5 and 6: two callers with the same key, and keys that inject commands into a backend.

use std::sync::Mutex;

use axum::Router;
use axum::http::request::Parts;
use proptest::prelude::*;
use tollgate::backend::{Adjustment, Backend, BackendFuture, RowId, Steps, Take};
use tollgate::{
    MemoryBackend, RateLimitLayer, RateLimiter,
    key::{self, Digest, KeyExtractor},
};

use super::client::{ONE, hello, limiter, request, send};

const PEER: &str = "198.51.100.100";

/// Text chosen by the client. The tests insert it as an extension, as an outer layer would.
#[derive(Clone)]
struct User(String);

async fn status(app: &Router, lines: &[(&str, &[u8])]) -> u16 {
    send(app, request(PEER, lines)).await.status
}

async fn status_of_user(app: &Router, name: &str) -> u16 {
    let mut request = request::<&str, &str>(PEER, &[]);
    request.extensions_mut().insert(User(name.into()));
    send(app, request).await.status
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn t05_different_tuples_of_values_have_different_keys(
        one in (part(), part(), part()),
        shift in 0..4_usize,
        other in (part(), part(), part()),
    ) {
        // In the third case, the same bytes are split in different places. If parts were joined without their lengths,
        // the keys would collide.
        let other = match shift {
            0 => other,
            1 => (one.1.clone(), one.0.clone(), one.2.clone()),
            2 => shifted(&one),
            _ => one.clone(),
        };
        let app = {
            let by = key::header("x-a").and(key::header("x-b")).and(key::cookie("c"));
            hello().layer(RateLimitLayer::new(ONE, by).limiter(&limiter().0))
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let ask = |(a, b, c): &(Vec<u8>, Vec<u8>, Vec<u8>)| {
            let cookie = [b"c=", &c[..]].concat();
            runtime.block_on(status(&app, &[("x-a", a), ("x-b", b), ("cookie", &cookie)]))
        };
        prop_assert_eq!(ask(&one), 200);
        prop_assert_eq!(ask(&other), if one == other { 429 } else { 200 });
    }
}

fn shifted(parts: &(Vec<u8>, Vec<u8>, Vec<u8>)) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    let (mut a, mut b, c) = parts.clone();
    if a.len() > 1 {
        b.insert(0, a.pop().unwrap());
    }
    (a, b, c)
}

/// Generates bytes that header and cookie values preserve, so spaces and semicolons are excluded.
fn part() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(prop::sample::select(b":|,/{}ab01\x80\xff".to_vec()), 1..5)
}

#[tokio::test]
async fn t05_separators_inside_a_part_do_not_split_it() {
    // An attacker can send any separator, so only the length of a part can mark its end.
    type Pair = (Vec<u8>, Vec<u8>);
    let mut separators = vec![b":".to_vec(), b"\0".to_vec(), b"\x1f".to_vec(), Vec::new()];
    for tag in 0..10 {
        separators.extend([vec![tag], [&[tag][..], &[0; 8]].concat(), [&[tag, 1][..], &[0; 7]].concat()]);
    }
    let by = key::extension(|pair: &Pair| pair.clone());
    for separator in separators {
        let app = hello().layer(RateLimitLayer::new(ONE, by.clone()).limiter(&limiter().0));
        let separator_x = [&separator[..], b"x"].concat();
        let pairs: [Pair; 4] = [
            (vec![], separator_x.clone()),
            (separator.clone(), b"x".to_vec()),
            (separator_x.clone(), vec![]),
            (b"x".to_vec(), separator.clone()),
        ];
        for (i, pair) in pairs.iter().enumerate() {
            let mut request = request::<&str, &str>(PEER, &[]);
            request.extensions_mut().insert(pair.clone());
            let expected = if pairs[..i].contains(pair) { 429 } else { 200 };
            assert_eq!(send(&app, request).await.status, expected, "{pair:?}");
        }
    }
}

#[tokio::test]
async fn t05_equal_values_of_different_types_have_different_keys() {
    let by = key::extension(|user: &User| user.0.clone())
        .or(|req: &Parts| req.headers.get("x-id").map(|id| id.to_str().unwrap().parse::<u64>().unwrap()))
        .or(key::header("x-api-key"))
        .or(key::client_ip());
    let app = hello().layer(RateLimitLayer::new(ONE, by).limiter(&limiter().0));
    // These keys represent two values, the peer's address and 7, as an address, text, a number or bytes.
    assert_eq!(status(&app, &[]).await, 200);
    assert_eq!(status_of_user(&app, PEER).await, 200);
    assert_eq!(status_of_user(&app, "7").await, 200);
    assert_eq!(status(&app, &[("x-id", b"7")]).await, 200);
    assert_eq!(status(&app, &[("x-api-key", b"7")]).await, 200);
    assert_eq!(status(&app, &[("x-api-key", &[198, 51, 100, 100])]).await, 200);
    assert_eq!(status(&app, &[]).await, 429);
    assert_eq!(status_of_user(&app, "7").await, 429);
    assert_eq!(status(&app, &[("x-api-key", b"7")]).await, 429);
}

#[tokio::test]
async fn t05_no_user_name_shares_the_anonymous_or_the_global_bucket() {
    let by = || key::extension(|user: &User| user.0.clone());
    let anonymous = hello().layer(RateLimitLayer::new(ONE, by()).limiter(&limiter().0));
    let global = hello().layer(RateLimitLayer::new(ONE, by().or(key::global())).limiter(&limiter().0));
    for app in [anonymous, global] {
        assert_eq!(status(&app, &[]).await, 200);
        assert_eq!(status(&app, &[]).await, 429);
        for name in ["", "\0", "anonymous", "global", "None", "null", "undefined"] {
            assert_eq!((name, status_of_user(&app, name).await), (name, 200));
        }
    }
}

#[tokio::test]
async fn t05_keys_are_case_sensitive_and_not_normalized() {
    let app =
        hello().layer(RateLimitLayer::new(ONE, key::extension(|user: &User| user.0.clone())).limiter(&limiter().0));
    for name in ["ada", "Ada", "ada ", "\u{e9}", "e\u{301}", "k", "\u{212a}", "K", "k-", "k45"] {
        assert_eq!((name, status_of_user(&app, name).await), (name, 200));
    }
}

/// A backend that records every `Take` passed to `acquire`.
#[derive(Debug, Default)]
struct Spy {
    rows: MemoryBackend,
    takes: Mutex<Vec<(String, Digest)>>,
}

impl Backend for Spy {
    fn acquire(&self, takes: &[Take<'_>]) -> BackendFuture<Steps> {
        for take in takes {
            self.takes.lock().unwrap().push((format!("{take:?}"), take.row.digest()));
        }
        self.rows.acquire(takes)
    }

    fn peek(&self, takes: &[Take<'_>]) -> BackendFuture<Steps> {
        self.rows.peek(takes)
    }

    fn settle(&self, settlements: &[Adjustment<'_>]) -> BackendFuture<bool> {
        self.rows.settle(settlements)
    }

    fn reset(&self, rows: &[RowId<'_>]) -> BackendFuture<usize> {
        self.rows.reset(rows)
    }
}

#[tokio::test]
async fn t06_the_backend_receives_hostile_keys_only_as_digests() {
    let spy = std::sync::Arc::new(Spy::default());
    let limiter = RateLimiter::new(std::sync::Arc::clone(&spy));
    let by = key::extension(|user: &User| user.0.clone()).or(key::header("x-api-key"));
    let app = hello().layer(RateLimitLayer::new(ONE, by).limiter(&limiter));
    let long = "hostile".repeat(150_000);
    let names = [
        "hostile",
        "{hostile}",
        "hostile{}",
        "hostile}{",
        "hostile\r\nFLUSHALL\r\n",
        "hostile\0",
        "hostile' --",
        &long,
    ];
    for name in names {
        assert_eq!(status_of_user(&app, name).await, 200);
        assert_eq!(status_of_user(&app, name).await, 429);
    }
    // These long values are not UTF-8 and differ only in the last byte.
    let mut bytes = b"\xff\xfe hostile \x80".repeat(80_000);
    for _ in 0..2 {
        assert_eq!(status(&app, &[("x-api-key", &bytes)]).await, 200);
        assert_eq!(status(&app, &[("x-api-key", &bytes)]).await, 429);
        *bytes.last_mut().unwrap() = b'\x81';
    }
    let takes = spy.takes.lock().unwrap();
    assert!(takes.iter().all(|(take, _)| !take.contains("hostile") && take.len() < 1000), "{:?}", takes[0]);
    let digests: std::collections::HashSet<_> = takes.iter().map(|(_, digest)| *digest).collect();
    assert_eq!(digests.len(), names.len() + 2);
}
