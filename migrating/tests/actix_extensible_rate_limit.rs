//! Checks the claims of `docs::migrating::actix_extensible_rate_limit` about both crates.
#![cfg(feature = "actix")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use actix_extensible_rate_limit::RateLimiter as Limits;
use actix_extensible_rate_limit::backend::memory::InMemoryBackend;
use actix_extensible_rate_limit::backend::{Backend, SimpleInput, SimpleInputFunctionBuilder};
use actix_web::body::to_bytes;
use actix_web::dev::ServiceResponse;
use actix_web::test::{TestRequest, call_service, init_service};
use actix_web::{App, HttpResponse, web};
use axum::{Router, routing::get};
use tollgate::{HOUR, MINUTE, Quota, RateLimitLayer, key};
use tollgate_migrating::{get as request, get_without_peer, ours, send, theirs, with};

fn from(peer: &str) -> TestRequest {
    TestRequest::get().uri("/").peer_addr(SocketAddr::new(peer.parse().unwrap(), 40_000))
}

fn header<'a, B>(response: &'a ServiceResponse<B>, name: &str) -> &'a str {
    response.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

fn our_app() -> Router {
    let broken = || async { http::StatusCode::INTERNAL_SERVER_ERROR };
    Router::new()
        .route("/", get(|| async { "hello" }))
        .route("/broken", get(broken))
        .layer(ours::actix_extensible_rate_limit::limits())
}

macro_rules! their_app {
    ($limits:expr) => {
        init_service(
            App::new()
                .wrap($limits)
                .route("/", web::get().to(async || "hello"))
                .route("/broken", web::get().to(async || HttpResponse::InternalServerError())),
        )
        .await
    };
}

fn backend() -> InMemoryBackend {
    InMemoryBackend::builder().with_gc_interval(None).build()
}

#[actix_web::test]
async fn both_have_the_same_limit_and_headers() {
    let theirs = their_app!(theirs::actix_extensible_rate_limit::limits(backend()));
    let ours = our_app();
    for left in ["4", "3", "2", "1", "0"] {
        let theirs = call_service(&theirs, from("203.0.113.9").to_request()).await;
        let ours = send(&ours, request("/", "203.0.113.9")).await;
        assert_eq!((theirs.status().as_u16(), ours.status.as_u16()), (200, 200));
        for (name, value) in [("x-ratelimit-limit", "5"), ("x-ratelimit-remaining", left)] {
            assert_eq!(header(&theirs, name), value);
            assert_eq!(ours.header(name), value);
        }
        assert!(!header(&theirs, "x-ratelimit-reset").is_empty() && !ours.header("x-ratelimit-reset").is_empty());
    }
    let theirs = call_service(&theirs, from("203.0.113.9").to_request()).await;
    let ours = send(&ours, request("/", "203.0.113.9")).await;
    assert_eq!((theirs.status().as_u16(), ours.status.as_u16()), (429, 429));
    assert_eq!(header(&theirs, "retry-after"), header(&theirs, "x-ratelimit-reset"));
    assert_eq!(ours.header("retry-after"), ours.header("x-ratelimit-reset"));
    assert_eq!(ours.header("content-type"), "application/problem+json");
    assert!(to_bytes(theirs.into_body()).await.ok().unwrap().is_empty());
}

#[actix_web::test]
async fn server_errors_are_not_charged_by_either_crate() {
    let theirs = their_app!(theirs::actix_extensible_rate_limit::limits(backend()));
    let ours = our_app();
    for _ in 0..20 {
        let broken = call_service(&theirs, from("203.0.113.9").uri("/broken").to_request()).await;
        assert_eq!((broken.status().as_u16(), header(&broken, "x-ratelimit-remaining")), (500, "5"));
        let broken = send(&ours, request("/broken", "203.0.113.9")).await;
        assert_eq!((broken.status.as_u16(), broken.header("x-ratelimit-remaining")), (500, "4"));
    }
}

#[actix_web::test]
async fn without_an_address_actix_panics_and_tollgate_returns_500() {
    let theirs = their_app!(theirs::actix_extensible_rate_limit::limits(backend()));
    let response =
        actix_web::rt::spawn(
            async move { call_service(&theirs, TestRequest::get().uri("/").to_request()).await.status() },
        );
    assert!(response.await.is_err_and(|it| it.is_panic()));
    let ours = send(&our_app(), get_without_peer("/")).await;
    assert_eq!(ours.status, 500);
    assert!(ours.body.contains("the request has no peer address"), "{}", ours.body);
}

#[actix_web::test]
async fn real_ip_key_lets_a_client_choose_its_key() {
    for name in ["x-forwarded-for", "forwarded"] {
        let input = SimpleInputFunctionBuilder::new(HOUR, 1).real_ip_key().build();
        let theirs = their_app!(Limits::builder(backend(), input).build());
        let quota = Quota::fixed_window(1, HOUR);
        let trusting = RateLimitLayer::new(quota, key::client_ip().trust(["10.0.0.0/8"]));
        let ours = Router::new().route("/", get(|| async { "hello" })).layer(trusting);
        let mut passed = [0, 0];
        for i in 0..20 {
            let forged = if name == "forwarded" {
                format!("for=198.51.100.{i}")
            } else {
                format!("198.51.100.{i}, 203.0.113.9") // the proxy appended the second address
            };
            let theirs = call_service(&theirs, from("10.0.0.1").insert_header((name, forged.clone())).to_request());
            passed[0] += u32::from(theirs.await.status() == 200);
            let ours = send(&ours, with(request("/", "10.0.0.1"), name, &forged)).await;
            passed[1] += u32::from(ours.status == 200);
        }
        assert_eq!(passed, [20, 1], "{name}");
    }
}

#[actix_web::test]
async fn both_count_an_ipv6_network_as_one_client() {
    let theirs = their_app!(theirs::actix_extensible_rate_limit::limits(backend()));
    let ours = our_app();
    let mut passed = [0, 0];
    for i in 1..=20 {
        let peer = format!("2001:db8::{i:x}");
        passed[0] += u32::from(call_service(&theirs, from(&peer).to_request()).await.status() == 200);
        passed[1] += u32::from(send(&ours, request("/", &peer)).await.status == 200);
    }
    assert_eq!(passed, [5, 5]);
}

#[actix_web::test]
async fn a_fixed_window_admits_nearly_twice_its_limit_around_its_end() {
    tokio::time::pause();
    let backend = backend();
    let mut granted = Vec::new();
    for wait in [Duration::ZERO, MINUTE - Duration::from_millis(1), Duration::from_millis(1)] {
        tokio::time::advance(wait).await;
        let mut these = 0;
        for _ in 0..if wait.is_zero() { 1 } else { 20 } {
            let input = SimpleInput { interval: MINUTE, max_requests: 5, key: "ada".into() };
            these += u32::from(backend.request(input).await.unwrap().0.is_allowed());
        }
        granted.push(these);
    }
    assert_eq!(granted, [1, 4, 5]);
}

/// Counts the allocated bytes that are not freed.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: each call is forwarded to `System` unchanged, and counting touches no memory of the caller.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// The sweeping task ends when any clone of the backend is dropped, and the middleware clones the backend for each
/// request.
#[actix_web::test]
async fn actix_stops_sweeping_after_the_first_request() {
    const KEYS: usize = 50_000;
    tokio::time::pause();
    let mut freed = Vec::new();
    for serve_one in [false, true] {
        let backend = InMemoryBackend::builder().with_gc_interval(Some(MINUTE)).build();
        if serve_one {
            let app = their_app!(theirs::actix_extensible_rate_limit::limits(backend.clone()));
            call_service(&app, from("203.0.113.9").to_request()).await;
        }
        tokio::time::advance(Duration::from_millis(1)).await;
        for key in 0..KEYS {
            // Long keys, so that their memory exceeds the allocations of other tests.
            let input = SimpleInput { interval: MINUTE, max_requests: 1, key: format!("{key:0>1000}") };
            backend.request(input).await.unwrap();
        }
        let before = LIVE.load(Ordering::Relaxed);
        for _ in 0..5 {
            tokio::time::advance(MINUTE).await;
            tokio::task::yield_now().await;
        }
        freed.push(before.saturating_sub(LIVE.load(Ordering::Relaxed)) / KEYS);
    }
    assert!(freed[0] >= 1000, "{freed:?} bytes per key: expected a sweep if no request was served");
    assert!(freed[1] < 100, "{freed:?} bytes per key: expected no sweep after a request");
}
