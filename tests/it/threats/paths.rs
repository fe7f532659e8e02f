//! Threats 16 and 17: alternative spellings of a path, and an unbounded number of paths.

use std::net::Ipv4Addr;

use axum::Router;
use axum::routing::get;
use proptest::prelude::*;
use tollgate::{MINUTE, Policy, Quota, RateLimitLayer, RateLimiter, RouteLimits, key};

use super::client::{self, ONE, limiter, raw, serve_v4};

const DEFAULT: Policy = Policy::new("default", Quota::token_bucket(1_000_000, MINUTE));
const PEER: &str = "198.51.100.1";

fn limits(limiter: &RateLimiter) -> RouteLimits {
    RouteLimits::new(key::client_ip()).policy(ONE).default_policy(DEFAULT).limiter(limiter)
}

fn routes() -> Router {
    let nested = Router::new().route("/x", get(|| async { "nested" }));
    Router::new().route("/x", get(|| async { "x" })).route("/users/{id}", get(|| async { "user" })).nest("/in", nested)
}

/// Spellings that at least one router, proxy or file system has treated as `/x`.
const VARIANTS: [&str; 28] = [
    "//x",
    "///x",
    "/x/",
    "/x//",
    "/X",
    "/%78",
    "/%58",
    "/x%2f",
    "/%2fx",
    "/./x",
    "/%2e/x",
    "/x/.",
    "/y/../x",
    "/y/%2e%2e/x",
    "/x;a=1",
    "/;a=1/x",
    "/x%3ba=1",
    "/x?y=1",
    "/x?",
    "/x?/../y",
    "/x%00",
    "/x%20",
    "/x%0a",
    "/x.",
    "/x.json",
    "/\\x",
    "/x%5c",
    "http://elsewhere.example/x",
];

#[tokio::test]
async fn t16_other_spellings_of_a_path_get_404_or_share_the_bucket() {
    let (limiter, _backend, _clock) = limiter();
    let table = limits(&limiter).table([("GET /x", "one"), ("GET /in/x", "one")]);
    let per_route = Router::new()
        .route("/x", get(|| async { "x" }).layer(limits(&limiter).route("one")))
        .layer(limits(&limiter).table([]));
    for app in [routes().layer(table), per_route] {
        let port = serve_v4(app).await;
        limiter.reset(&ONE, loopback_key()).await.unwrap();
        let ask = |path: String| async move { raw(port, Ipv4Addr::LOCALHOST, &format!("GET {path}"), &[]).await.0 };
        assert_eq!(ask("/x".into()).await, 200);
        let (mut refused, mut not_found) = (0, 0);
        for path in VARIANTS {
            for path in [path.to_owned(), format!("/in{path}")] {
                match ask(path.clone()).await {
                    429 => refused += 1,
                    404 => not_found += 1,
                    // These paths are invalid.
                    400 if path.contains(['\\', ':']) => {}
                    status => panic!("{path} got status {status}"),
                }
            }
        }
        assert!(refused >= 4 && not_found > 30, "{refused} refused, {not_found} not found");
    }
}

fn loopback_key() -> std::net::IpAddr {
    Ipv4Addr::LOCALHOST.into()
}

#[tokio::test]
async fn t16_all_spellings_of_a_path_parameter_share_a_bucket() {
    let by = || RateLimitLayer::new(ONE, key::path("id")).limiter(&limiter().0);
    let hello = || get(|| async { "user" });
    let flat = Router::new().route("/users/{id}", hello()).layer(by());
    let nested = Router::new().nest("/users", Router::new().route("/{id}", hello()).layer(by()));
    let on_route = Router::new().route("/users/{id}", hello().layer(by()));
    let wildcard = Router::new().route("/users/{*id}", hello()).layer(by());
    for app in [flat, nested, on_route, wildcard] {
        let ask = async |path: &str| client::get(&app, PEER, path).await.status;
        assert_eq!(ask("/users/ada").await, 200);
        for path in ["/users/ada", "/users/%61da", "/users/%61%64%61", "/users/ad%61?x=y", "/users/ada?id=bob"] {
            assert_eq!((path, ask(path).await), (path, 429));
        }
        for path in ["/users/Ada", "/users/%2561da", "/users/ada%00", "/users/%c3%a9", "/users/bob?id=ada"] {
            assert_eq!((path, ask(path).await), (path, 200));
        }
        assert_eq!(ask("/users/%C3%A9").await, 429);
    }
}

#[tokio::test]
async fn t17_ten_thousand_paths_create_one_row_per_policy() {
    let (limiter, backend, _clock) = limiter();
    let app = routes().layer(limits(&limiter).table([("/x", "one")]));
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for i in 0..10_000 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let path = match i % 4 {
            0 => format!("/users/{random:x}"),
            1 => format!("/x?{random:x}"),
            2 => format!("/{random:x}/%{:02x}//{i}", random % 256),
            _ => format!("/users/{random:x}/{i}?{random}"),
        };
        let status = client::get(&app, PEER, &path).await.status;
        assert!([200, 404, 429].contains(&status), "{path} got status {status}");
    }
    assert_eq!(backend.len(), 2);
    assert_eq!(limiter.remaining(&DEFAULT, PEER.parse::<std::net::IpAddr>().unwrap()).await.unwrap(), 1_000_000 - 7500);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn t16_no_path_bypasses_the_limit_of_a_route(path in "/[xX/.;%27eEfF0a?=]{0,8}") {
        let (limiter, _backend, _clock) = limiter();
        let app = routes().layer(limits(&limiter).table([("GET /x", "one")]));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            assert_eq!(client::get(&app, PEER, "/x").await.status, 200);
            if path.parse::<axum::http::Uri>().is_ok() {
                let answer = client::get(&app, PEER, &path).await;
                assert!(answer.body != b"x", "{path}");
            }
        });
    }
}
