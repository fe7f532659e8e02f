//! Checks the claims of `docs::migrating::axum_gcra` about both crates.

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use axum_gcra::gcra;
use axum_gcra::real_ip::RealIp;
use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::Full;
use tollgate::{HOUR, MemoryBackend, Policy, Quota, RateLimitLayer, RateLimiter, SECOND, clock::ManualClock, key};
use tollgate_migrating::{get as request, get_without_peer, ours, send, theirs, with};
use tower::{Layer, ServiceBuilder, ServiceExt};

fn once_an_hour() -> gcra::Quota {
    gcra::Quota::simple(HOUR)
}

/// One request per hour, with axum_gcra.
fn theirs_by_address() -> axum07::Router {
    let layer = axum_gcra::RateLimitLayer::<RealIp>::builder().with_default_quota(once_an_hour());
    axum07::Router::new().route("/", axum07::routing::get(|| async { "hello" })).layer(layer.default_handle_error())
}

/// One request per hour, with tollgate.
fn ours_by(key: key::ClientIp) -> axum::Router {
    let layer = RateLimitLayer::new(Quota::token_bucket(1, HOUR), key);
    axum::Router::new().route("/", axum::routing::get(|| async { "hello" })).layer(layer)
}

fn method(method: Method, path: &str) -> Request<Full<Bytes>> {
    let mut request = request(path, "203.0.113.9");
    *request.method_mut() = method;
    request
}

#[tokio::test]
async fn both_allow_the_same_bursts_but_axum_gcra_sends_no_headers() {
    let (theirs, ours) = (theirs::axum_gcra::app(), ours::axum_gcra::app());
    for (verb, path, burst) in [(Method::POST, "/todos", 5), (Method::GET, "/search", 10), (Method::GET, "/todos", 20)]
    {
        for _ in 0..burst {
            assert_eq!(send(&theirs, method(verb.clone(), path)).await.status, 200);
            assert_eq!(send(&ours, method(verb.clone(), path)).await.status, 200);
        }
        let theirs = send(&theirs, method(verb.clone(), path)).await;
        let ours = send(&ours, method(verb.clone(), path)).await;
        assert_eq!((theirs.status.as_u16(), ours.status.as_u16()), (429, 429), "{verb} {path}");
        assert!(theirs.body.starts_with("rate limit exceeded, retry in "), "{}", theirs.body);
        for name in ["retry-after", "ratelimit", "ratelimit-policy"] {
            assert_eq!(theirs.header(name), "");
            assert_ne!(ours.header(name), "");
        }
    }
}

#[tokio::test]
async fn the_default_quota_is_per_method_in_axum_gcra_but_not_in_tollgate() {
    let (theirs, ours) = (theirs::axum_gcra::app(), ours::axum_gcra::app());
    for _ in 0..21 {
        send(&theirs, method(Method::GET, "/todos")).await;
        send(&ours, method(Method::GET, "/todos")).await;
    }
    assert_eq!(send(&theirs, method(Method::HEAD, "/todos")).await.status, 200);
    assert_eq!(send(&ours, method(Method::HEAD, "/todos")).await.status, 429);
}

#[tokio::test]
async fn axum_gcra_allows_an_idle_key_one_more_than_the_burst() {
    let quota = gcra::Quota::new(SECOND, NonZeroU64::new(10).unwrap());
    let theirs = gcra::RateLimiter::<u64>::default();
    let burst = |at: Instant| (0..20).filter(|_| theirs.req_sync(1, quota, at).is_ok()).count();
    let now = Instant::now();
    assert_eq!([burst(now), burst(now + HOUR)], [10, 11]);

    let clock = ManualClock::new();
    let ours = RateLimiter::new(MemoryBackend::builder().clock(clock.clone()).build());
    let policy = Policy::new("ten", Quota::token_bucket(1, SECOND).capacity(10));
    let burst = || (0..20).filter(|_| ours.limit_now(&policy, 1_u64).is_ok()).count();
    let fresh = burst();
    clock.advance(HOUR);
    assert_eq!([fresh, burst()], [10, 10]);
}

#[tokio::test]
async fn real_ip_lets_a_client_choose_its_key() {
    for name in ["x-forwarded-for", "x-real-ip", "true-client-ip", "client-ip", "cf-connecting-ip", "fly-client-ip"] {
        let theirs = theirs_by_address();
        let ours = ours_by(key::client_ip());
        let mut passed = [0, 0];
        for i in 0..20 {
            let forged = || with(request("/", "203.0.113.9"), name, &format!("198.51.100.{i}"));
            passed[0] += u32::from(send(&theirs, forged()).await.status == 200);
            passed[1] += u32::from(send(&ours, forged()).await.status == 200);
        }
        assert_eq!(passed, [20, 1], "{name}");
    }
}

#[tokio::test]
async fn axum_gcra_reads_the_forgeable_end_of_x_forwarded_for() {
    let theirs = theirs_by_address();
    let ours = ours_by(key::client_ip().trust(["10.0.0.0/8"]));
    let mut passed = [0, 0];
    for i in 0..20 {
        let forged = format!("198.51.100.{i}, 203.0.113.9"); // the proxy appended the second address
        let forged = || with(request("/", "10.0.0.1"), "x-forwarded-for", &forged);
        passed[0] += u32::from(send(&theirs, forged()).await.status == 200);
        passed[1] += u32::from(send(&ours, forged()).await.status == 200);
    }
    assert_eq!(passed, [20, 1]);
}

#[tokio::test]
async fn axum_gcra_cannot_read_ipv6_addresses_in_headers() {
    let theirs = theirs_by_address();
    let ours = ours_by(key::client_ip().trust(["10.0.0.0/8"]));
    let mut passed = [0, 0];
    for i in 0..20 {
        let client = format!("2001:db8:{i:x}::1");
        let forwarded = || with(request("/", "10.0.0.1"), "x-forwarded-for", &client);
        passed[0] += u32::from(send(&theirs, forwarded()).await.status == 200);
        passed[1] += u32::from(send(&ours, forwarded()).await.status == 200);
    }
    assert_eq!(passed, [1, 20], "axum_gcra falls back to the proxy's address: one bucket for all clients");
}

#[tokio::test]
async fn without_an_address_axum_gcra_returns_400_and_tollgate_500() {
    let theirs = send(&theirs::axum_gcra::app(), get_without_peer("/search")).await;
    let ours = send(&ours::axum_gcra::app(), get_without_peer("/search")).await;
    assert_eq!((theirs.status.as_u16(), ours.status.as_u16()), (400, 500));
    assert!(ours.body.contains("the request has no peer address"), "{}", ours.body);
}

/// Tower's contract: `call` requires that `poll_ready` returned `Ready`.
#[tokio::test]
async fn axum_gcra_panics_in_front_of_a_concurrency_limit() {
    let handler = || {
        tower::service_fn(|_: Request<Full<Bytes>>| async {
            Ok::<_, std::convert::Infallible>(Response::new(axum::body::Body::empty()))
        })
    };
    let theirs = axum_gcra::RateLimitLayer::<()>::builder().with_default_quota(once_an_hour()).build();
    let theirs = theirs.layer(ServiceBuilder::new().concurrency_limit(8).service(handler()));
    let response = tokio::spawn(theirs.oneshot(request("/", "203.0.113.9"))).await;
    assert!(response.is_err_and(|it| it.is_panic()));

    let ours = RateLimitLayer::new(Quota::token_bucket(1, HOUR), key::client_ip());
    let ours = ours.layer(ServiceBuilder::new().concurrency_limit(8).service(handler()));
    let response = ours.oneshot(request("/", "203.0.113.9")).await.unwrap();
    assert_eq!(response.status(), 200);
}

#[tokio::test]
async fn penalize_by_time_corresponds_to_settle_by_tokens() {
    let quota = gcra::Quota::new(SECOND, NonZeroU64::new(10).unwrap());
    let theirs = gcra::RateLimiter::<u64>::default();
    let now = Instant::now();
    theirs.req_sync(1, quota, now).unwrap();
    assert!(theirs.penalize_sync(&1, Duration::from_secs(4)));
    let left = (0..20).filter(|_| theirs.req_sync(1, quota, now).is_ok()).count();

    let clock = ManualClock::new();
    let ours = RateLimiter::new(MemoryBackend::builder().clock(clock.clone()).build());
    let policy = Policy::new("ten", Quota::token_bucket(1, SECOND).capacity(10));
    let usage = ours.acquire(&policy, 1_u64).hold().await.unwrap().into_receipt();
    usage.settle(1 + 4).await.unwrap();
    assert_eq!(ours.remaining(&policy, 1_u64).await.unwrap(), left as u64);
    usage.reset().await.unwrap();
    assert_eq!(ours.remaining(&policy, 1_u64).await.unwrap(), 10);
}
