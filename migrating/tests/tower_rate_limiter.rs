//! Checks the claims of `docs::migrating::tower_rate_limiter` about both crates.

use std::collections::VecDeque;
use std::thread;
use std::time::Duration;

use axum::{Router, routing::get};
use tollgate::algorithm::Micros;
use tollgate::{
    HOUR, MINUTE, MemoryBackend, Policy, Quota, RateLimitLayer, RateLimiter, SECOND, clock::ManualClock, key,
};
use tollgate_migrating::{TestResponse, get as request, get_without_peer, ours, send, theirs, with};
use tower_rate_limiter::{
    FixedWindow, GcraQuota, IpKeyExtractor, MemoryGcra, MemoryStore, TrustedProxyClientIpKeyExtractor,
};

/// One request per hour, with tower-rate-limiter.
macro_rules! theirs_by {
    ($extractor:expr) => {{
        let policy = FixedWindow::new(MemoryStore::new(), 1, HOUR).unwrap();
        bare().layer(tower_rate_limiter::RateLimitLayer::builder($extractor).with_policy(policy).build().unwrap())
    }};
}

/// One request per hour, with tollgate.
fn ours_by(key: key::ClientIp) -> Router {
    bare().layer(RateLimitLayer::new(Quota::fixed_window(1, HOUR), key))
}

/// Trusts the proxies in 10.0.0.0/8.
fn their_proxies() -> TrustedProxyClientIpKeyExtractor {
    TrustedProxyClientIpKeyExtractor::new(|peer| matches!(peer, std::net::IpAddr::V4(it) if it.octets()[0] == 10))
}

fn bare() -> Router {
    Router::new().route("/", get(|| async { "hello" }))
}

/// `t` of `RateLimit`.
fn t(response: &TestResponse) -> u64 {
    let field = response.header("ratelimit");
    field.rsplit_once("t=").expect(field).1.parse().expect(field)
}

#[tokio::test]
async fn both_have_the_same_limit_and_header_fields() {
    let (theirs, ours) = (theirs::tower_rate_limiter::app().unwrap(), ours::tower_rate_limiter::app());
    for left in (0..100).rev() {
        let theirs = send(&theirs, request("/", "203.0.113.9")).await;
        let ours = send(&ours, request("/", "203.0.113.9")).await;
        assert_eq!((theirs.status.as_u16(), ours.status.as_u16()), (200, 200));
        assert_eq!(theirs.header("ratelimit-policy"), r#""public-api";q=100;w=60"#);
        assert_eq!(ours.header("ratelimit-policy"), theirs.header("ratelimit-policy"));
        let field = format!(r#""public-api";r={left};t="#);
        assert!(theirs.header("ratelimit").starts_with(&field) && ours.header("ratelimit").starts_with(&field));
        assert!(t(&ours) <= 60);
        if left == 99 {
            assert_eq!(t(&theirs), 60, "the peer's window starts with the first request");
        }
    }
    let theirs = send(&theirs, request("/", "203.0.113.9")).await;
    let ours = send(&ours, request("/", "203.0.113.9")).await;
    assert_eq!((theirs.status.as_u16(), ours.status.as_u16()), (429, 429));
    assert_eq!((theirs.body.as_str(), theirs.header("content-type")), ("", ""));
    assert_eq!(ours.header("content-type"), "application/problem+json");
    assert!(theirs.retry_after() > 0 && ours.retry_after() > 0);
}

#[tokio::test]
async fn both_skip_the_health_check() {
    let (theirs, ours) = (theirs::tower_rate_limiter::app().unwrap(), ours::tower_rate_limiter::app());
    for _ in 0..101 {
        let theirs = send(&theirs, get_without_peer("/health")).await;
        let ours = send(&ours, get_without_peer("/health")).await;
        assert_eq!((theirs.body.as_str(), ours.body.as_str()), ("well", "well"));
        assert_eq!((theirs.header("ratelimit"), ours.header("ratelimit")), ("", ""));
    }
}

/// The digest of a key determines the start of its windows, so that keys do not all reset together.
#[tokio::test]
async fn each_key_has_its_own_window_start_by_default() {
    let window = |quota: Quota| async move {
        let clock = ManualClock::new();
        let limiter = RateLimiter::new(MemoryBackend::builder().clock(clock).build());
        let app = bare().layer(RateLimitLayer::new(Policy::new("w", quota), key::client_ip()).limiter(&limiter));
        let mut ends = Vec::new();
        for i in 1..=50 {
            ends.push(t(&send(&app, request("/", &format!("203.0.113.{i}"))).await));
        }
        ends.sort_unstable();
        ends.dedup();
        ends.len()
    };
    assert!(window(Quota::fixed_window(100, MINUTE)).await > 10);
    assert_eq!(window(Quota::fixed_window(100, MINUTE).start(Duration::ZERO)).await, 1);
}

/// The proxy sets `X-Forwarded-For`, but passes on the client's `Forwarded`.
#[tokio::test]
async fn a_client_behind_a_trusted_proxy_chooses_its_key_by_another_field() {
    let theirs = theirs_by!(their_proxies());
    let ours = ours_by(key::client_ip().trust(["10.0.0.0/8"]));
    let mut passed = [0, 0];
    for i in 0..20 {
        let forged = || {
            let request = with(request("/", "10.0.0.1"), "x-forwarded-for", "203.0.113.9");
            with(request, "forwarded", &format!("for=198.51.100.{i}"))
        };
        passed[0] += u32::from(send(&theirs, forged()).await.status == 200);
        passed[1] += u32::from(send(&ours, forged()).await.status == 200);
    }
    assert_eq!(passed, [20, 1]);
}

/// tower-rate-limiter reads only the last entry of `X-Forwarded-For`.
#[tokio::test]
async fn both_read_x_forwarded_for_from_the_right_but_the_peer_reads_one_entry() {
    let theirs = theirs_by!(their_proxies());
    let ours = ours_by(key::client_ip().trust(["10.0.0.0/8"]));
    let mut passed = [0, 0];
    for i in 0..20 {
        let forged = format!("198.51.100.{i}, 203.0.113.9");
        let forged = || with(request("/", "10.0.0.1"), "x-forwarded-for", &forged);
        passed[0] += u32::from(send(&theirs, forged()).await.status == 200);
        passed[1] += u32::from(send(&ours, forged()).await.status == 200);
    }
    assert_eq!(passed, [1, 1]);

    // Twenty clients behind two proxies: the second proxy appended the address of the first.
    let (mut passed, theirs) = ([0, 0], theirs_by!(their_proxies()));
    for i in 0..20 {
        let forwarded = format!("198.51.100.{i}, 10.0.0.2");
        let forwarded = || with(request("/", "10.0.0.1"), "x-forwarded-for", &forwarded);
        passed[0] += u32::from(send(&theirs, forwarded()).await.status == 200);
        passed[1] += u32::from(send(&ours, forwarded()).await.status == 200);
    }
    assert_eq!(passed, [1, 20]);
}

#[tokio::test]
async fn the_peer_returns_500_for_an_unreadable_field() {
    let theirs = theirs_by!(their_proxies());
    let ours = ours_by(key::client_ip().trust(["10.0.0.0/8"]));
    let odd = || with(request("/", "10.0.0.1"), "x-forwarded-for", "unknown");
    assert_eq!(send(&theirs, odd()).await.status, 500);
    assert_eq!(send(&ours, odd()).await.status, 200, "counted under the proxy's address");
}

#[tokio::test]
async fn the_peer_counts_an_ipv6_network_as_many_clients() {
    let theirs = theirs_by!(IpKeyExtractor::new());
    let ours = ours_by(key::client_ip());
    let mut passed = [0, 0];
    for i in 1..=20 {
        let peer = format!("2001:db8::{i:x}");
        passed[0] += u32::from(send(&theirs, request("/", &peer)).await.status == 200);
        passed[1] += u32::from(send(&ours, request("/", &peer)).await.status == 200);
    }
    assert_eq!(passed, [20, 1]);
}

#[tokio::test]
async fn without_an_address_both_return_500_and_tollgate_states_the_cause() {
    let theirs = send(&theirs::tower_rate_limiter::app().unwrap(), get_without_peer("/")).await;
    let ours = send(&ours::tower_rate_limiter::app(), get_without_peer("/")).await;
    assert_eq!((theirs.status.as_u16(), ours.status.as_u16()), (500, 500));
    assert_eq!(theirs.body, "");
    assert!(ours.body.contains("no peer address"), "{}", ours.body);
}

#[tokio::test]
async fn version_0_1_differs_in_the_same_ways() {
    use tower_rate_limiter_01 as v01;
    macro_rules! once_an_hour {
        ($extractor:expr) => {{
            let layer = v01::RateLimitLayer::builder($extractor).limit(1).window(HOUR);
            bare().layer(layer.with_store(v01::MemoryStore::new()).build().unwrap())
        }};
    }
    let trusting = || v01::TrustedProxyClientIpKeyExtractor::new(|peer| peer == std::net::IpAddr::from([10, 0, 0, 1]));

    let app = theirs::tower_rate_limiter_01::app().unwrap();
    for i in 0..=100 {
        let response = send(&app, request("/", "203.0.113.9")).await;
        assert_eq!(response.status, if i < 100 { 200 } else { 429 });
        assert_eq!(response.header("ratelimit-policy"), r#""public-api";q=100;w=60"#);
        assert_eq!(response.body, if i < 100 { "hello" } else { "" });
        assert!(i > 0 || t(&response) == 60);
    }
    assert_eq!(send(&app, get_without_peer("/")).await.status, 500);
    assert_eq!(send(&app, get_without_peer("/health")).await.header("ratelimit"), "");

    let (by_forwarded, by_chain, by_peer) =
        (once_an_hour!(trusting()), once_an_hour!(trusting()), once_an_hour!(v01::IpKeyExtractor::new()));
    let mut passed = [0, 0, 0];
    for i in 1..=20 {
        let forged = with(request("/", "10.0.0.1"), "x-forwarded-for", "203.0.113.9");
        let forged = with(forged, "forwarded", &format!("for=198.51.100.{i}"));
        passed[0] += u32::from(send(&by_forwarded, forged).await.status == 200);
        let chain = with(request("/", "10.0.0.1"), "x-forwarded-for", &format!("198.51.100.{i}, 10.0.0.2"));
        passed[1] += u32::from(send(&by_chain, chain).await.status == 200);
        passed[2] += u32::from(send(&by_peer, request("/", &format!("2001:db8::{i:x}"))).await.status == 200);
    }
    assert_eq!(passed, [20, 1, 20]);
    let odd = with(request("/", "10.0.0.1"), "x-forwarded-for", "unknown");
    assert_eq!(send(&once_an_hour!(trusting()), odd).await.status, 500);
}

#[tokio::test]
async fn the_peer_sends_a_retry_after_before_the_end_of_its_window() {
    let policy = MemoryGcra::new(GcraQuota::new(10, MINUTE, 5).unwrap());
    let layer = tower_rate_limiter::RateLimitLayer::builder(IpKeyExtractor::new()).with_policy(policy);
    let theirs = bare().layer(layer.build().unwrap());
    let ours = bare().layer(RateLimitLayer::new(Quota::token_bucket(10, MINUTE).capacity(5), key::client_ip()));
    for _ in 0..5 {
        send(&theirs, request("/", "203.0.113.9")).await;
        send(&ours, request("/", "203.0.113.9")).await;
    }
    let theirs = send(&theirs, request("/", "203.0.113.9")).await;
    let ours = send(&ours, request("/", "203.0.113.9")).await;
    assert_eq!((theirs.status.as_u16(), ours.status.as_u16()), (429, 429));
    assert!(theirs.retry_after() <= 6 && t(&theirs) > 20, "{} and {}", theirs.retry_after(), t(&theirs));
    assert_eq!(ours.retry_after(), t(&ours));
    assert!(ours.retry_after() <= 6);
}

#[tokio::test]
async fn a_fixed_window_admits_twice_its_limit_at_a_boundary_and_a_sliding_window_does_not() {
    let window = 3 * SECOND;
    let policy = FixedWindow::new(MemoryStore::new(), 10, window).unwrap();
    let layer = tower_rate_limiter::RateLimitLayer::builder(IpKeyExtractor::new()).with_policy(policy);
    let theirs = bare().layer(layer.build().unwrap());
    send(&theirs, request("/", "203.0.113.9")).await;
    thread::sleep(window * 9 / 10);
    let mut passed = 0;
    let until = std::time::Instant::now() + window / 5;
    while std::time::Instant::now() < until {
        passed += u32::from(send(&theirs, request("/", "203.0.113.9")).await.status == 200);
    }
    assert!(passed == 19, "{passed} passed in a fifth of the window");

    assert_eq!(most_in_a_minute(Quota::fixed_window(10, MINUTE).start(Duration::ZERO)), 20);
    assert_eq!(most_in_a_minute(Quota::sliding_window(10, MINUTE)), 11);
}

/// The maximum number of requests allowed in a minute, with bursts around a window boundary every three minutes.
fn most_in_a_minute(quota: Quota) -> usize {
    let clock = ManualClock::at(Micros::EPOCH + 1_000_000 * MINUTE);
    let limiter = RateLimiter::new(MemoryBackend::builder().clock(clock.clone()).build());
    let policy = Policy::new("ten", quota);
    let (mut most, mut passed) = (0, VecDeque::new());
    for second in 0..1800 {
        for _ in 0..if (54..=66).contains(&(second % 180)) { 20 } else { 0 } {
            if limiter.limit_now(&policy, 1_u64).is_ok() {
                passed.push_back(second);
            }
        }
        while passed.front().is_some_and(|first| first + 60 <= second) {
            passed.pop_front();
        }
        most = most.max(passed.len());
        clock.advance(SECOND);
    }
    most
}
