//! Threat 18: a client that bypasses a limit by using another HTTP method.

use axum::Router;
use axum::http::Method;
use axum::routing::{any, get, post};
use tollgate::{MINUTE, Policy, Quota, RateLimitLayer, RateLimiter, RouteLimits, key, middleware::is_cors_preflight};

use super::client::{ONE, hello, limiter, request, send};

const PEER: &str = "198.51.100.1";
const WRITE: Policy = Policy::new("write", Quota::token_bucket(1, MINUTE));
const DEFAULT: Policy = Policy::new("default", Quota::token_bucket(1_000_000, MINUTE));

async fn status(app: &Router, method: &str, lines: &[(&str, &str)]) -> u16 {
    let mut request = request(PEER, lines);
    *request.method_mut() = Method::from_bytes(method.as_bytes()).unwrap();
    send(app, request).await.status
}

fn limits(limiter: &RateLimiter) -> RouteLimits {
    RouteLimits::new(key::client_ip()).policy(ONE).policy(WRITE).default_policy(DEFAULT).limiter(limiter)
}

#[tokio::test]
async fn t18_head_and_get_share_a_bucket() {
    for (first, second) in [("GET", "HEAD"), ("HEAD", "GET"), ("HEAD", "HEAD")] {
        let (limiter, _backend, _clock) = limiter();
        let route = || get(|| async { "hello" });
        let table = Router::new().route("/", route()).layer(limits(&limiter).table([("GET /", "one")]));
        assert_eq!(status(&table, first, &[]).await, 200);
        assert_eq!(status(&table, second, &[]).await, 429, "{first} and then {second}");
        let (limiter, _backend, _clock) = super::client::limiter();
        let per_route = Router::new().route("/", route().layer(limits(&limiter).route("one")));
        assert_eq!(status(&per_route, first, &[]).await, 200);
        assert_eq!(status(&per_route, second, &[]).await, 429, "{first} and then {second}");
    }
}

#[tokio::test]
async fn t18_no_method_is_exempt() {
    let (limiter, _backend, _clock) = limiter();
    let layers = [
        RateLimitLayer::new(ONE, key::client_ip()),
        RateLimitLayer::new(ONE, key::client_ip()).skip(is_cors_preflight),
        limits(&limiter).table([("/", "one")]),
    ];
    for layer in layers {
        for method in ["OPTIONS", "TRACE", "HEAD", "POST", "PATCH", "CONNECT", "get", "GETS", "PROPFIND"] {
            let (limiter, _backend, _clock) = super::client::limiter();
            let app = hello().layer(layer.clone().limiter(&limiter));
            assert_eq!(status(&app, "GET", &[]).await, 200);
            assert_eq!(status(&app, method, &[]).await, 429, "{method}");
        }
    }
}

#[tokio::test]
async fn t18_a_header_does_not_change_the_method() {
    let (limiter, _backend, _clock) = limiter();
    let app = Router::new()
        .route("/", post(|| async { "written" }).get(|| async { "read" }))
        .layer(limits(&limiter).table([("POST /", "write"), ("GET /", "one")]));
    assert_eq!(status(&app, "POST", &[]).await, 200);
    for name in ["x-http-method-override", "x-http-method", "x-method-override"] {
        for method in ["GET", "OPTIONS", "HEAD"] {
            assert_eq!(status(&app, "POST", &[(name, method)]).await, 429);
        }
    }
    assert_eq!(status(&app, "GET", &[("x-http-method-override", "POST")]).await, 200);
    // Requests with methods that the route does not serve are charged under the default policy and get 405.
    for method in ["TRACE", "OPTIONS", "post", "PUT"] {
        assert_eq!(status(&app, method, &[]).await, 405);
    }
    assert_eq!(limiter.remaining(&DEFAULT, PEER.parse::<std::net::IpAddr>().unwrap()).await.unwrap(), 999_996);
}

#[tokio::test]
async fn t18_only_a_true_preflight_is_skipped() {
    let preflight = [("origin", "https://app.example"), ("access-control-request-method", "POST")];
    let app = || {
        let layer = RateLimitLayer::new(ONE, key::client_ip()).skip(is_cors_preflight);
        Router::new().route("/", any(|| async { "hello" })).layer(layer.limiter(&limiter().0))
    };
    let skipping = app();
    for _ in 0..5 {
        assert_eq!(status(&skipping, "OPTIONS", &preflight).await, 200);
    }
    assert_eq!(status(&skipping, "GET", &[]).await, 200, "the preflights must not spend tokens");
    assert_eq!(status(&skipping, "GET", &[]).await, 429);
    for (method, lines) in [
        ("OPTIONS", &[][..]),
        ("OPTIONS", &preflight[..1]),
        ("OPTIONS", &preflight[1..]),
        ("GET", &preflight),
        ("POST", &preflight),
        ("HEAD", &preflight),
        ("options", &preflight),
        ("TRACE", &preflight),
        ("POST", &[("x-http-method-override", "OPTIONS"), preflight[0], preflight[1]]),
    ] {
        let app = app();
        assert_eq!(status(&app, method, lines).await, 200);
        assert_eq!(status(&app, method, lines).await, 429, "{method} {lines:?}");
    }
}
