//! Requests that are not limited, and requests without a key.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::routing::{any, get};
use tollgate::key::{KeyExtractor, PeerAddr};
use tollgate::{Policy, RateLimitLayer, RateLimitStatus, Subject, key, middleware::is_cors_preflight};

use super::app::{call, limiter, policy, quota_headers, send, user};
use crate::support::answer::Answer;

const ONE: Policy = policy("one", 1);

fn hello() -> Router {
    Router::new().route("/", any(|| async { "hello" })).route("/health", get(|| async { "fine" }))
}

#[tokio::test]
async fn skipped_requests_are_not_limited_and_get_no_headers() {
    let (limiter, _clock) = limiter();
    let layer = RateLimitLayer::new(ONE, key::global())
        .skip(|req: &Parts| req.uri.path() == "/health")
        .skip(|req: &Parts| req.headers.contains_key("x-internal"))
        .skip(is_cors_preflight)
        .limiter(&limiter);
    let app = hello().layer(layer);
    let preflight = ["origin: https://a.test", "access-control-request-method: PUT"];
    for _ in 0..3 {
        for (line, lines) in [("GET /health", &[][..]), ("GET /", &["x-internal: 1"]), ("OPTIONS /", &preflight)] {
            let answer = call(&app, line, lines).await;
            assert_eq!(answer.status, 200, "{line}");
            assert!(!answer.headers.contains_key("ratelimit") && !answer.headers.contains_key("ratelimit-policy"));
        }
    }
    // None of the requests above was charged. Requests that only resemble a preflight are charged.
    assert_eq!(limiter.remaining(&ONE, "global").await.unwrap(), 1);
    assert_eq!(call(&app, "OPTIONS /", &preflight[..1]).await.status, 200);
    for (line, lines) in [("OPTIONS /", &preflight[..1]), ("OPTIONS /", &preflight[1..]), ("POST /", &preflight)] {
        assert_eq!(call(&app, line, lines).await.status, 429, "{line} {lines:?}");
    }
}

#[tokio::test]
async fn the_status_of_an_unlimited_request_is_empty() {
    let ask = |status: RateLimitStatus| async move {
        format!("{} {}", status.decisions().iter().count(), status.decisions().is_shadowed())
    };
    let layer = RateLimitLayer::new(ONE, user)
        .skip(|req: &Parts| req.headers.contains_key("x-internal"))
        .with_status()
        .limiter(&limiter().0);
    let app = Router::new().route("/", get(ask)).layer(layer);
    let skipped = call(&app, "GET /", &["x-internal: 1"]).await;
    assert_eq!((skipped.status, &skipped.body[..]), (200, &b"0 false"[..]));
    let limited = call(&app, "GET /", &["x-user: ada"]).await;
    assert_eq!((limited.status, &limited.body[..]), (200, &b"1 false"[..]));
    let layer = RateLimitLayer::new(ONE, user.or_skip()).with_status().limiter(&limiter().0);
    let app = Router::new().route("/", get(ask)).layer(layer);
    let skipped = call(&app, "GET /", &[]).await;
    assert_eq!((skipped.status, &skipped.body[..]), (200, &b"0 false"[..]));
}

async fn from(app: &Router, peer: &str, xff: Option<&str>) -> Answer {
    let peer = SocketAddr::new(peer.parse().unwrap(), 40_000);
    let mut request = Request::builder().extension(PeerAddr(peer));
    if let Some(xff) = xff {
        request = request.header("x-forwarded-for", xff);
    }
    send(app, request.body(Body::empty()).unwrap()).await
}

#[tokio::test]
async fn an_allow_list_matches_the_resolved_address_and_ignores_spoofed_headers() {
    let clients = key::client_ip().trust(["10.0.0.0/8"]);
    let layer = RateLimitLayer::new(ONE, clients.clone())
        .skip(clients.within(["192.0.2.0/24", "2001:db8:7::/48", "198.51.100.7"]))
        .limiter(&limiter().0);
    let app = hello().layer(layer);
    for (peer, xff) in [
        ("192.0.2.1", None),
        ("::ffff:192.0.2.200", None),
        ("2001:db8:7:1::1", None),
        ("198.51.100.7", None),
        ("10.0.0.1", Some("192.0.2.1")),
        ("10.0.0.1", Some("203.0.113.1, 192.0.2.1, 10.9.9.9")),
    ] {
        for _ in 0..3 {
            let answer = from(&app, peer, xff).await;
            assert_eq!((peer, answer.status, answer.headers.contains_key("ratelimit")), (peer, 200, false));
        }
    }
    for (peer, xff) in [
        ("198.51.100.8", None),
        ("2001:db8:8::1", None),
        // Spoofed headers must not put a client on the allow list.
        ("203.0.113.9", Some("192.0.2.1")),
        ("10.0.0.1", Some("192.0.2.1, 203.0.113.10")),
        ("10.0.0.1", Some("192.0.2.1, nonsense")),
    ] {
        assert_eq!((peer, from(&app, peer, xff).await.status), (peer, 200));
        assert_eq!((peer, from(&app, peer, xff).await.status), (peer, 429), "{xff:?}");
    }
    assert_eq!(call(&app, "GET /", &[]).await.status, 500);
}

#[tokio::test]
async fn callers_without_a_key_share_a_bucket_unless_the_extractor_uses_or_skip() {
    let (limiter, _clock) = limiter();
    let app = hello().layer(RateLimitLayer::new(ONE, user).limiter(&limiter));
    assert_eq!(quota_headers(&call(&app, "GET /", &[]).await), ("one".into(), 1, 0));
    assert_eq!(call(&app, "POST /", &[]).await.status, 429, "anonymous requests must share one bucket");
    assert_eq!(call(&app, "GET /", &["x-user: ada"]).await.status, 200);
    assert_eq!(limiter.remaining(&ONE, Subject::anonymous()).await.unwrap(), 0);

    let skipping = hello().layer(RateLimitLayer::new(policy("skip", 1), user.or_skip()).limiter(&limiter));
    for _ in 0..3 {
        let answer = call(&skipping, "GET /", &[]).await;
        assert_eq!((answer.status, answer.headers.contains_key("ratelimit-policy")), (200, false));
    }
    assert_eq!(call(&skipping, "GET /", &["x-user: ada"]).await.status, 200);
    assert_eq!(call(&skipping, "GET /", &["x-user: ada"]).await.status, 429);
}

#[tokio::test]
async fn or_reject_responds_with_a_problem_and_charges_nothing() {
    let (limiter, _clock) = limiter();
    let layer = RateLimitLayer::new(policy("all", 5), key::global()).and(ONE, user.or_reject()).limiter(&limiter);
    let app = hello().layer(layer);
    let rejected = call(&app, "GET /", &[]).await;
    let problem = rejected.problem();
    assert_eq!((rejected.status, &problem["title"], rejected.retry_after()), (400, &"Bad Request".into(), None));
    assert!(problem["detail"].as_str().unwrap().contains("identify its caller"), "{problem}");
    // No quota was exceeded, so the problem has neither a type nor a list of policies.
    assert!(problem.get("type").is_none() && problem.get("violated-policies").is_none(), "{problem}");
    assert_eq!(rejected.headers["cache-control"], "no-store");
    assert!(!rejected.headers.contains_key("ratelimit") && !rejected.headers.contains_key("ratelimit-policy"));
    assert_eq!(limiter.remaining(&policy("all", 5), "global").await.unwrap(), 5);
    let known = call(&app, "GET /", &["x-user: ada"]).await;
    assert_eq!((known.status, known.limits()[0].1, known.limits()[1].1), (200, 4, 0));
}

#[tokio::test]
async fn the_other_rules_apply_if_one_rule_skips_a_request() {
    let layer = RateLimitLayer::new(policy("all", 2), key::global()).and(policy("user", 1), user.or_skip());
    let app = hello().layer(layer.limiter(&limiter().0));
    assert_eq!(quota_headers(&call(&app, "GET /", &[]).await), ("all".into(), 2, 1));
    let both = call(&app, "GET /", &["x-user: ada"]).await;
    assert_eq!(both.policies(), [("all".into(), 2, 60), ("user".into(), 1, 60)]);
    let refused = call(&app, "GET /", &["x-user: ada"]).await;
    assert_eq!((refused.status, refused.violated_policies()), (429, vec!["all".into(), "user".into()]));
    assert_eq!(call(&app, "GET /", &[]).await.violated_policies(), ["all"]);
}
