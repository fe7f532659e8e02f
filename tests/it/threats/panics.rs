//! Threat 30: a panic that occurs during one request and affects other requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::http::request::Parts;
use tollgate::algorithm::Micros;
use tollgate::key::Extraction;
use tollgate::{
    MINUTE, MemoryBackend, Policy, Quota, RateLimitLayer, RateLimiter, RouteLimits,
    clock::{Clock, ManualClock},
    key::{self, KeyExtractor},
};

use super::client::{hello, limiter, request, send};

const THREE: Policy = Policy::new("three", Quota::token_bucket(3, MINUTE));

/// Panics if the request has the header `x-boom`.
fn panic_if_requested(req: &Parts) {
    assert!(!req.headers.contains_key("x-boom"), "panic requested by the test");
}

async fn status(app: &Router, lines: &[(&str, &str)]) -> u16 {
    send(app, request("198.51.100.1", lines)).await.status
}

async fn assert_panics(app: &Router) {
    let app = app.clone();
    let task = tokio::spawn(async move { status(&app, &[("x-boom", "1")]).await });
    assert!(task.await.expect_err("expected a panic").is_panic());
}

#[tokio::test]
async fn t30_a_panic_in_a_closure_does_not_affect_other_requests() {
    let by_key = || RateLimitLayer::new(THREE, key::client_ip());
    let layers = [
        (
            "key",
            RateLimitLayer::new(THREE, |req: &Parts| {
                panic_if_requested(req);
                7
            }),
        ),
        (
            "asynchronous key",
            RateLimitLayer::new(THREE, |req: &Parts| {
                let req = req.clone();
                Extraction::later(async move {
                    tokio::task::yield_now().await;
                    panic_if_requested(&req);
                    7
                })
            }),
        ),
        ("axum extractor", {
            let extractor = key::from_extractor((), |headers: axum::http::HeaderMap| {
                assert!(!headers.contains_key("x-boom"), "panic requested by the test");
                7
            });
            RateLimitLayer::new(THREE, extractor)
        }),
        ("map", {
            let by = key::header("x-boom").map(|subject| {
                assert!(subject.key().is_none(), "panic requested by the test");
                subject
            });
            RateLimitLayer::new(THREE, by.or(key::client_ip()))
        }),
        ("second rule", {
            let all = Policy::new("all", Quota::token_bucket(1000, MINUTE));
            RateLimitLayer::new(all, key::global()).and(THREE, |req: &Parts| {
                panic_if_requested(req);
                7
            })
        }),
        (
            "cost",
            by_key().cost(|req| {
                panic_if_requested(req);
                1
            }),
        ),
        (
            "skip",
            by_key().skip(|req| {
                panic_if_requested(req);
                false
            }),
        ),
        (
            "choose",
            RouteLimits::new(key::client_ip()).policy(THREE).choose(|req| {
                panic_if_requested(req);
                Some("three")
            }),
        ),
    ];
    for (closure, layer) in layers {
        let app = hello().layer(layer.limiter(&limiter().0));
        for _ in 0..3 {
            assert_panics(&app).await;
        }
        for expected in [200, 200, 200, 429] {
            assert_eq!((closure, status(&app, &[]).await), (closure, expected));
        }
        assert_panics(&app).await;
        assert_eq!(status(&app, &[]).await, 429);
    }
}

#[tokio::test]
async fn t30_a_panic_in_on_refusal_does_not_affect_other_requests() {
    let layer = RateLimitLayer::new(THREE, key::client_ip()).on_refusal(|refusal| {
        panic_if_requested(refusal.request());
        refusal.default_response()
    });
    let app = hello().layer(layer.limiter(&limiter().0));
    for _ in 0..3 {
        assert_eq!(status(&app, &[]).await, 200);
    }
    assert_panics(&app).await;
    assert_eq!(status(&app, &[]).await, 429);
}

/// A clock that panics while `broken` is set. The backend reads the clock while rows are locked.
#[derive(Clone, Debug)]
struct FaultyClock {
    time: ManualClock,
    broken: Arc<AtomicBool>,
}

impl Clock for FaultyClock {
    fn now(&self) -> Micros {
        assert!(!self.broken.load(Ordering::SeqCst), "panic requested by the test");
        self.time.now()
    }
}

#[tokio::test]
async fn t30_a_panic_under_the_lock_leaves_the_row_usable() {
    let clock = FaultyClock { time: ManualClock::new(), broken: Arc::default() };
    let limiter = RateLimiter::new(MemoryBackend::builder().clock(clock.clone()).max_rows(16).build());
    let other = Policy::new("other", Quota::token_bucket(1000, MINUTE));
    let layer = RateLimitLayer::new(THREE, key::client_ip()).and(other, key::global()).limiter(&limiter);
    let app = hello().layer(layer);
    assert_eq!(status(&app, &[]).await, 200);
    for _ in 0..10 {
        clock.broken.store(true, Ordering::SeqCst);
        assert_panics(&app).await;
        clock.broken.store(false, Ordering::SeqCst);
    }
    for expected in [200, 200, 429] {
        let answer = tokio::time::timeout(std::time::Duration::from_secs(20), status(&app, &[])).await;
        assert_eq!(answer.expect("a lock is still held after the panic"), expected);
    }
}
