//! Keys built from values equal the keys that extractors derive from requests.

use axum::extract::Request;
use axum::routing::get;
use axum::{Router, body::Body};
use tollgate::key::{KeyExtractor, PeerAddr};
use tollgate::{Key, MINUTE, Policy, Quota, RateLimitLayer, key};

use crate::support::client::{limiter, oneshot};

static API: Policy = Policy::new("api", Quota::token_bucket(10, MINUTE));

#[tokio::test]
async fn keys_built_from_values_equal_extracted_keys() {
    let v4 = "192.0.2.7".parse().unwrap();
    let v6 = "2001:db8::7".parse().unwrap();
    let cases: Vec<(Box<dyn KeyExtractor>, Key, &str, &str)> = vec![
        (Box::new(key::client_ip()), key::client_ip().key(v4), "192.0.2.7", "x-a: 1"),
        (Box::new(key::client_ip()), key::client_ip().key(v6), "2001:db8::8", "x-a: 1"),
        (
            Box::new(key::client_ip().prefixes(24, 48)),
            key::client_ip().prefixes(24, 48).key(v6),
            "2001:db8:0:1::",
            "x-a: 1",
        ),
        (Box::new(key::bearer()), key::bearer().key("sk_7"), "192.0.2.7", "authorization: bearer sk_7"),
        (Box::new(key::header("x-api-key")), key::header("x-api-key").key(" k7\n"), "192.0.2.7", "x-api-key: k7"),
        (Box::new(key::cookie("session")), key::cookie("session").key("s7"), "192.0.2.7", "cookie: session=s7"),
        (
            Box::new(key::cookie("session")),
            key::cookie("session").key("\"s7\""),
            "192.0.2.7",
            "cookie: session=%22s%37%22",
        ),
        (
            Box::new(key::client_ip().nat64(["2001:db8:64::/96"])),
            key::client_ip().nat64(["2001:db8:64::/96"]).key("2001:db8:64::c000:207".parse().unwrap()),
            "192.0.2.7",
            "x-a: 1",
        ),
        (Box::new(key::path("id")), key::path("id").key("a b"), "192.0.2.7", "x-a: 1"),
        (
            Box::new(key::bearer().and(key::client_ip())),
            Key::from((key::bearer().key("sk_7"), key::client_ip().key(v4))),
            "192.0.2.7",
            "authorization: Bearer sk_7",
        ),
    ];
    for (by, key, peer, line) in cases {
        let (limiter, _clock) = limiter();
        let layer = RateLimitLayer::new(&API, by).limiter(&limiter);
        let app = Router::new().route("/{id}", get(|| async {})).layer(layer);
        let (name, value) = line.split_once(": ").unwrap();
        let mut request = Request::get("/a%20b").header(name, value).body(Body::empty()).unwrap();
        request.extensions_mut().insert(PeerAddr((peer.parse::<std::net::IpAddr>().unwrap(), 1).into()));
        assert_eq!(oneshot(&app, request).await.status, 200);
        assert_eq!(limiter.remaining(&API, &key).await.unwrap(), 9, "{line} {peer}");
        assert!(limiter.reset(&API, &key).await.unwrap(), "{line} {peer}");
        assert_eq!(limiter.remaining(&API, &key).await.unwrap(), 10, "{line} {peer}");
    }
}

#[tokio::test]
async fn reset_returns_false_if_the_key_has_no_row() {
    let (limiter, _clock) = limiter();
    let v6: std::net::IpAddr = "2001:db8::7".parse().unwrap();
    for key in [Key::from(1), key::client_ip().key(v6)] {
        limiter.acquire(&API, &key).cost(3).await.unwrap();
    }
    assert!(!limiter.reset(&API, "1").await.unwrap(), "a string and a number must be different keys");
    assert!(!limiter.reset(&API, v6).await.unwrap(), "an address and its network must be different keys");
    assert!(
        !limiter.reset(&Policy::new("other", Quota::per_minute(10)), 1).await.unwrap(),
        "the other policy must have no row for this key"
    );
    assert!(limiter.reset(&API, 1).await.unwrap());
    assert!(!limiter.reset(&API, 1).await.unwrap(), "the first reset must have removed the row");

    let work = limiter.acquire(&API, 7).hold().await.unwrap().into_receipt();
    assert!(work.reset().await.unwrap());
    let work = limiter.acquire(&API, 7).hold().await.unwrap().into_receipt();
    assert!(limiter.reset(&API, 7).await.unwrap());
    assert!(!work.reset().await.unwrap());
}
