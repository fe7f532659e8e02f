//! Checks the claims of `docs::migrating::express_rate_limit` about tollgate. `typescript/tests` checks those about the peer.

mod down;

use axum::{Router, routing::get};
use down::Down;
use tollgate::algorithm::Micros;
use tollgate::{
    DAY, FailureMode, HOUR, MINUTE, MemoryBackend, OnResponse, Policy, Quota, RateLimitLayer, RateLimiter,
    clock::ManualClock,
    key::{self, Secret},
};
use tollgate_migrating::{get as request, ours, send, with};

fn limited(key: key::ClientIp) -> Router {
    bare().layer(RateLimitLayer::new(Quota::fixed_window(1, HOUR), key))
}

fn bare() -> Router {
    let broken = || async { http::StatusCode::INTERNAL_SERVER_ERROR };
    Router::new().route("/", get(|| async { "hello" })).route("/broken", get(broken))
}

#[tokio::test]
async fn a_hundred_requests_pass_with_draft_11_headers() {
    let app = ours::express_rate_limit::app();
    for left in (0..100).rev() {
        let response = send(&app, request("/", "203.0.113.9")).await;
        assert_eq!(response.status, 200);
        assert_eq!(response.header("ratelimit-policy"), r#""api";q=100;w=900"#);
        assert!(response.header("ratelimit").starts_with(&format!(r#""api";r={left};t="#)));
    }
    let denied = send(&app, request("/", "203.0.113.9")).await;
    assert_eq!(denied.status, 429);
    assert_eq!(denied.header("content-type"), "application/problem+json");
    assert!(denied.header("ratelimit").ends_with(&format!("t={}", denied.retry_after())));
    let health = send(&app, request("/health", "203.0.113.9")).await;
    assert_eq!((health.status.as_u16(), health.header("ratelimit")), (200, ""));
}

#[tokio::test]
async fn trusted_hops_are_counted_from_the_right() {
    let app = limited(key::client_ip().trust_hops(1));
    let mut passed = 0;
    for i in 0..20 {
        let forwarded = format!("198.51.100.{i}, 203.0.113.9");
        passed +=
            u32::from(send(&app, with(request("/", "10.0.0.1"), "x-forwarded-for", &forwarded)).await.status == 200);
    }
    assert_eq!(passed, 1);
}

#[tokio::test]
async fn without_trust_all_clients_behind_a_proxy_share_a_key() {
    let app = limited(key::client_ip());
    let mut passed = 0;
    for i in 0..20 {
        let request = with(request("/", "10.0.0.1"), "x-forwarded-for", &format!("198.51.100.{i}"));
        passed += u32::from(send(&app, request).await.status == 200);
    }
    assert_eq!(passed, 1);
}

/// A key has the same window start under all limiters that share the secret.
#[test]
fn each_key_has_its_own_window_start() {
    let quota = Quota::fixed_window(100, 15 * MINUTE);
    let policy = Policy::new("api", quota);
    let limiter = || {
        let backend = MemoryBackend::builder().clock(ManualClock::at(Micros::EPOCH + 1000 * DAY)).build();
        RateLimiter::builder(backend).secret(Secret::new(*b"a secret of ours")).build()
    };
    let (one, other) = (limiter(), limiter());
    let mut waits = Vec::new();
    for key in 0..50_u64 {
        let wait = |limiter: &RateLimiter| {
            (0..101).filter_map(|_| limiter.limit_now(&policy, key).err()?.denied()?.retry_after()).next()
        };
        let waits_here = wait(&one).expect("the 101st is denied");
        assert_eq!(Some(waits_here), wait(&other));
        assert!(waits_here <= 15 * MINUTE);
        waits.push(waits_here);
    }
    waits.sort_unstable();
    waits.dedup();
    assert!(waits.len() > 10);
}

#[tokio::test]
async fn ipv6_clients_are_keyed_by_their_64_bit_prefix_by_default() {
    for (client, clients) in [(key::client_ip(), 3), (key::client_ip().prefixes(32, 56), 2)] {
        let app = limited(client);
        let mut passed = 0;
        for peer in ["2001:db8::1", "2001:db8:0:ff::1", "2001:db8:0:100::1"] {
            passed += u32::from(send(&app, request("/", peer)).await.status == 200);
        }
        assert_eq!(passed, clients);
    }
}

#[tokio::test]
async fn failed_requests_are_refunded_by_on_response() {
    let layer = RateLimitLayer::new(Quota::fixed_window(1, HOUR), key::client_ip());
    let app = bare()
        .layer(layer.on_response(|res| if res.status.as_u16() >= 400 { OnResponse::Refund } else { OnResponse::Keep }));
    for _ in 0..5 {
        assert_eq!(send(&app, request("/broken", "203.0.113.9")).await.status, 500);
    }
    assert_eq!(send(&app, request("/", "203.0.113.9")).await.status, 200);
    assert_eq!(send(&app, request("/", "203.0.113.9")).await.status, 429);
}

#[tokio::test]
async fn a_request_refused_by_one_rule_is_charged_to_none() {
    let limiter = RateLimiter::new(MemoryBackend::new());
    let daily = Policy::new("daily", Quota::fixed_window(1000, DAY));
    let layer = RateLimitLayer::new(&daily, key::global()).and(Quota::fixed_window(10, HOUR), key::client_ip());
    let app = bare().layer(layer.limiter(&limiter));
    for _ in 0..100 {
        send(&app, request("/", "203.0.113.9")).await;
    }
    assert_eq!(limiter.remaining(&daily, tollgate::Key::global()).await.unwrap(), 990);
}

#[tokio::test]
async fn a_failing_backend_results_in_503_by_default() {
    for (mode, status) in [(FailureMode::Deny, 503), (FailureMode::Allow, 200), (FailureMode::fallback(1.0), 200)] {
        let limiter = RateLimiter::builder(Down).on_failure(mode).build();
        let layer = RateLimitLayer::new(Quota::fixed_window(1, HOUR), key::client_ip()).limiter(&limiter);
        let response = send(&bare().layer(layer), request("/", "203.0.113.9")).await;
        assert_eq!(response.status, status);
        assert_eq!(response.headers.contains_key("retry-after"), status == 503);
    }
}

#[tokio::test]
async fn rows_are_bounded() {
    let limiter = RateLimiter::new(MemoryBackend::builder().max_rows(1000).build());
    let policy = Policy::new("flood", Quota::fixed_window(100, 15 * MINUTE));
    for key in 0..20_000_u64 {
        limiter.limit(&policy, key).await.unwrap();
        assert!(limiter.stats().rows.unwrap() <= 1000);
    }
}
