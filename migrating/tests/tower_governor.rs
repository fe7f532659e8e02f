//! Checks the claims of `docs::migrating::tower_governor` about both crates.

use std::thread;
use std::time::{Duration, Instant};

use axum::{Router, routing::get};
use http::Method;
use tollgate::key::ClientIp;
use tollgate::{HOUR, MemoryBackend, Policy, Quota, RateLimitLayer, RateLimiter, clock::ManualClock, key};
use tollgate_migrating::{TestResponse, get as request, get_without_peer, ours, send, theirs, with};
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;
use tower_governor::key_extractor::SmartIpKeyExtractor;

/// One request per hour, with tower_governor.
macro_rules! theirs_by {
    ($extractor:expr) => {{
        let mut config = GovernorConfigBuilder::default();
        let config = config.per_second(3600).burst_size(1).key_extractor($extractor).finish().unwrap();
        bare().layer(GovernorLayer::new(config))
    }};
}

/// One request per hour, with tollgate.
fn ours_by(key: ClientIp) -> Router {
    bare().layer(RateLimitLayer::new(Quota::token_bucket(1, HOUR), key))
}

fn bare() -> Router {
    Router::new().route("/", get(|| async { "hello" }))
}

fn statuses(responses: &[TestResponse]) -> Vec<u16> {
    responses.iter().map(|it| it.status.as_u16()).collect()
}

/// The names of the headers about limits.
fn names(response: &TestResponse) -> Vec<&str> {
    let mut names: Vec<_> = response.headers.keys().map(|it| it.as_str()).collect();
    names.retain(|it| it.contains("rate") || it.contains("retry") || it.contains("cache"));
    names.sort();
    names
}

async fn six(app: &Router) -> Vec<TestResponse> {
    let mut responses = Vec::new();
    for _ in 0..6 {
        responses.push(send(app, request("/", "203.0.113.9")).await);
    }
    responses
}

#[tokio::test]
async fn both_allow_the_same_burst_with_different_headers() {
    let theirs = six(&theirs::tower_governor::app()).await;
    let ours = six(&ours::tower_governor::app()).await;
    assert_eq!(statuses(&theirs), [200, 200, 200, 200, 200, 429]);
    assert_eq!(statuses(&ours), statuses(&theirs));

    assert_eq!(names(&theirs[0]), ["x-ratelimit-limit", "x-ratelimit-remaining"]);
    assert_eq!(names(&theirs[5]), ["retry-after", "x-ratelimit-after", "x-ratelimit-limit", "x-ratelimit-remaining"]);
    let three = ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"];
    assert_eq!(names(&ours[0]), three);
    assert_eq!(names(&ours[5]), [&["cache-control", "retry-after"][..], &three].concat());
    for name in &three[..2] {
        assert!(ours.iter().map(|it| it.header(name)).eq(theirs.iter().map(|it| it.header(name))), "{name}");
    }
    for response in [&theirs[5], &ours[5]] {
        assert_eq!(response.header("content-type"), "application/json");
        let retry_after_secs = response.retry_after();
        assert_eq!(response.body, format!(r#"{{"error":"too_many_requests","retry_in":{retry_after_secs}}}"#));
    }
}

#[tokio::test]
async fn on_a_200_the_reset_is_the_time_until_the_bucket_is_full() {
    let ours = six(&ours::tower_governor::app()).await;
    let resets: Vec<_> = ours.iter().map(|it| it.header("x-ratelimit-reset")).collect();
    assert_eq!(resets, ["2", "4", "6", "8", "10", "2"], "a token is refilled every two seconds");
    assert_eq!(ours[5].header("retry-after"), "2", "on a 429 it is the retry time");
}

#[tokio::test]
async fn the_default_headers_and_bodies_differ() {
    let mut config = GovernorConfigBuilder::default();
    let theirs = bare().layer(GovernorLayer::new(config.per_second(2).burst_size(5).finish().unwrap()));
    let ours = bare().layer(RateLimitLayer::new(
        Policy::new("api", Quota::token_bucket(1, Duration::from_secs(2)).capacity(5)),
        key::client_ip(),
    ));
    let (theirs, ours) = (six(&theirs).await, six(&ours).await);
    assert_eq!(statuses(&ours), statuses(&theirs));
    assert_eq!(names(&ours[0]), ["ratelimit", "ratelimit-policy"]);
    assert_eq!(names(&ours[5]), ["cache-control", "ratelimit", "ratelimit-policy", "retry-after"]);
    assert_eq!(ours[0].header("ratelimit-policy"), r#""api";q=5;w=10"#);

    assert!(theirs[5].body.starts_with("Too Many Requests! Wait for "), "{}", theirs[5].body);
    assert_eq!(theirs[5].header("content-type"), "");
    assert_eq!(ours[5].header("content-type"), "application/problem+json");
    assert!(ours[5].body.contains(r#""violated-policies":["api"]"#), "{}", ours[5].body);
}

/// With tower_governor, the headers of a refused login are those of the outer layer, which still has a token.
#[tokio::test]
async fn an_outer_layer_overwrites_headers_in_tower_governor_but_not_in_tollgate() {
    let post = || {
        let mut login = request("/login", "203.0.113.9");
        *login.method_mut() = Method::POST;
        login
    };
    for (app, limit, remaining) in [(theirs::tower_governor::app(), "5", "1"), (ours::tower_governor::app(), "3", "0")]
    {
        for _ in 0..3 {
            assert_eq!(send(&app, post()).await.status, 200);
        }
        let refused = send(&app, post()).await;
        assert_eq!(refused.status, 429);
        let headers = (refused.header("x-ratelimit-limit"), refused.header("x-ratelimit-remaining"));
        assert_eq!(headers, (limit, remaining));
        assert!(refused.retry_after() > 50, "expected the wait of the login policy");
        assert_eq!(
            send(&app, request("/", "203.0.113.9")).await.status,
            200,
            "one token left: the outer layer charged the refused login"
        );
        assert_eq!(send(&app, request("/", "203.0.113.9")).await.status, 429);
    }
}

#[test]
fn one_token_every_n_seconds_can_be_a_const() {
    const EVERY: Quota = Quota::token_bucket(1, Duration::from_secs(2));
    assert_eq!((EVERY.rate(), EVERY.period()), (1, Duration::from_secs(2)));
}

#[tokio::test]
async fn retry_after_is_too_short_in_tower_governor_but_not_in_tollgate() {
    let began = Instant::now();
    let app = theirs_by!(tower_governor::key_extractor::PeerIpKeyExtractor);
    send(&app, request("/", "203.0.113.9")).await;
    let retry_after_secs = send(&app, request("/", "203.0.113.9")).await.retry_after();
    assert!(
        began.elapsed() + Duration::from_secs(retry_after_secs) < HOUR,
        "a client that waits {retry_after_secs} s is too early"
    );

    // For waits under a second, tower_governor sends 0.
    let mut config = GovernorConfigBuilder::default();
    let config = config.per_millisecond(999).burst_size(1).finish().unwrap();
    let app = bare().layer(GovernorLayer::new(config));
    let mut denied = send(&app, request("/", "203.0.113.9")).await;
    while denied.status == 200 {
        denied = send(&app, request("/", "203.0.113.9")).await;
    }
    assert_eq!(denied.header("retry-after"), "0");

    let clock = ManualClock::new();
    let limiter = RateLimiter::new(MemoryBackend::builder().clock(clock.clone()).build());
    let quota = Quota::token_bucket(1, Duration::from_millis(999));
    let app = bare().layer(RateLimitLayer::new(quota, key::client_ip()).limiter(&limiter));
    send(&app, request("/", "203.0.113.9")).await;
    let retry_after_secs = send(&app, request("/", "203.0.113.9")).await.retry_after();
    assert_eq!(retry_after_secs, 1);
    clock.advance(Duration::from_secs(retry_after_secs));
    assert_eq!(send(&app, request("/", "203.0.113.9")).await.status, 200);
}

/// The peer is a proxy that appends the client's address.
#[tokio::test]
async fn smart_ip_lets_a_client_choose_its_key() {
    let theirs = theirs_by!(SmartIpKeyExtractor);
    let ours = ours_by(key::client_ip().trust(["10.0.0.0/8"]));
    let (mut passed_theirs, mut passed_ours) = (0, 0);
    for i in 0..20 {
        let forged = format!("198.51.100.{i}, 203.0.113.9");
        let forged = || with(request("/", "10.0.0.1"), "x-forwarded-for", &forged);
        passed_theirs += u32::from(send(&theirs, forged()).await.status == 200);
        passed_ours += u32::from(send(&ours, forged()).await.status == 200);
    }
    assert_eq!((passed_theirs, passed_ours), (20, 1));
}

#[tokio::test]
async fn smart_ip_trusts_clients_without_a_proxy() {
    let theirs = theirs_by!(SmartIpKeyExtractor);
    let ours = ours_by(key::client_ip().trust(["10.0.0.0/8"]));
    let mut passed = [0, 0];
    for i in 0..20 {
        let forged = || with(request("/", "203.0.113.9"), "x-forwarded-for", &format!("198.51.100.{i}"));
        passed[0] += u32::from(send(&theirs, forged()).await.status == 200);
        passed[1] += u32::from(send(&ours, forged()).await.status == 200);
    }
    assert_eq!(passed, [20, 1]);
}

#[tokio::test]
async fn the_peer_counts_an_ipv6_network_as_many_clients() {
    let theirs = theirs_by!(tower_governor::key_extractor::PeerIpKeyExtractor);
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
async fn a_dual_stack_socket_gives_ipv4_clients_two_keys_in_tower_governor() {
    let theirs = theirs_by!(tower_governor::key_extractor::PeerIpKeyExtractor);
    let ours = ours_by(key::client_ip());
    let mut passed = [0, 0];
    for peer in ["203.0.113.9", "::ffff:203.0.113.9"] {
        passed[0] += u32::from(send(&theirs, request("/", peer)).await.status == 200);
        passed[1] += u32::from(send(&ours, request("/", peer)).await.status == 200);
    }
    assert_eq!(passed, [2, 1]);
}

#[tokio::test]
async fn without_an_address_both_return_500_and_tollgate_states_the_cause() {
    let theirs = send(&theirs::tower_governor::app(), get_without_peer("/")).await;
    let ours = send(&ours::tower_governor::app(), get_without_peer("/")).await;
    assert_eq!((theirs.status.as_u16(), ours.status.as_u16()), (500, 500));
    assert_eq!(theirs.body, "Unable To Extract Key!");
    assert!(ours.body.contains("no peer address"), "{}", ours.body);
}

#[tokio::test]
async fn the_methods_option_corresponds_to_skip() {
    let mut config = GovernorConfigBuilder::default();
    let mut config = config.per_second(3600).burst_size(1).use_headers();
    let config = config.methods(vec![Method::POST]).finish().unwrap();
    let theirs = bare().layer(GovernorLayer::new(config));
    let ours = RateLimitLayer::new(Quota::token_bucket(1, HOUR), key::client_ip());
    let ours = bare().layer(ours.skip(|request: &http::request::Parts| request.method != Method::POST));
    for _ in 0..3 {
        let theirs = send(&theirs, request("/", "203.0.113.9")).await;
        let ours = send(&ours, request("/", "203.0.113.9")).await;
        assert_eq!((theirs.status.as_u16(), ours.status.as_u16()), (200, 200));
        assert_eq!(theirs.header("x-ratelimit-whitelisted"), "true");
        assert_eq!(ours.header("ratelimit"), "");
    }
}

#[tokio::test]
async fn tower_governor_keeps_keys_until_swept_and_tollgate_bounds_its_rows() {
    const KEYS: u32 = 20_000;
    let address = |i: u32| std::net::IpAddr::from(std::net::Ipv4Addr::from(0x0a00_0000 + i)).to_string();

    let mut config = GovernorConfigBuilder::default();
    let config = config.per_millisecond(1).burst_size(1).finish().unwrap();
    let limiter = config.limiter().clone();
    let theirs = bare().layer(GovernorLayer::new(config));
    for i in 0..KEYS {
        send(&theirs, request("/", &address(i))).await;
    }
    thread::sleep(Duration::from_millis(50)); // until all buckets are full
    assert_eq!(limiter.len(), KEYS as usize);
    limiter.retain_recent();
    assert_eq!(limiter.len(), 0);

    // One token per hour, so that no row expires during the test.
    let limiter = RateLimiter::new(MemoryBackend::builder().max_rows(1000).build());
    let policy = Policy::new("flood", Quota::token_bucket(1, HOUR));
    let ours = bare().layer(RateLimitLayer::new(policy, key::client_ip()).limiter(&limiter));
    for i in 0..KEYS {
        send(&ours, request("/", &address(i))).await;
        assert!(limiter.stats().rows.unwrap() <= 1000);
    }
}
