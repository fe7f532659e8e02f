//! The errors of a status endpoint match the layer's errors.

use axum::Router;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::routing::get;
use bytes::Bytes;
use http::Response;
use tollgate::key::{Extraction, KeyExtractor};
use tollgate::policy::Enforce;
use tollgate::{
    FailureMode, MINUTE, Policy, Quota, RateLimitLayer, RateLimiter,
    key::{self, KeyError},
    status,
};

use super::app::{call, status, text, user};
use crate::support::backends::FailingBackend;

static API: Policy = Policy::new("api", Quota::token_bucket(10, MINUTE));

/// Creates a router with a limited route and the status endpoints for its layer.
fn app_with_status(layer: &RateLimitLayer, limiter: &RateLimiter) -> Router {
    Router::new()
        .route("/", get(|| async {}).layer(layer.clone()))
        .route("/rate-limit", status::of_layer(layer))
        .route("/time", status::time(limiter))
}

#[tokio::test]
async fn a_backend_failure_returns_503_without_details() {
    let limiter = RateLimiter::new(FailingBackend::IMMEDIATE);
    let app = app_with_status(&RateLimitLayer::new(&API, user).limiter(&limiter), &limiter);
    let limited = call(&app, "GET /", &[]).await;
    assert_eq!(limited.status, 503);
    for line in ["GET /rate-limit", "GET /time"] {
        let reported = call(&app, line, &[]).await;
        assert_eq!((reported.status, &reported.body), (503, &limited.body), "{line}");
        assert_eq!(reported.retry_after(), limited.retry_after());
        assert_eq!(reported.headers["cache-control"], "no-store");
        assert!(!text(&reported).contains("10.0.0.7"));
    }
}

#[tokio::test]
async fn the_reported_limit_depends_on_the_failure_mode() {
    let limiter = RateLimiter::builder(FailingBackend::IMMEDIATE).on_failure(FailureMode::Allow).build();
    let app = app_with_status(&RateLimitLayer::new(&API, user).limiter(&limiter), &limiter);
    assert_eq!(call(&app, "GET /", &["x-user: ada"]).await.status, 200);
    let reported = status(&app, "ada").await;
    assert_eq!((reported.spent, reported.capacity), (0.0, 10.0));
    assert_eq!(call(&app, "GET /time", &[]).await.status, 200);

    let limiter = RateLimiter::builder(FailingBackend::IMMEDIATE).on_failure(FailureMode::fallback(0.5)).build();
    let app = app_with_status(&RateLimitLayer::new(&API, user).limiter(&limiter), &limiter);
    assert_eq!(call(&app, "GET /", &["x-user: ada"]).await.status, 200);
    let reported = status(&app, "ada").await;
    assert_eq!((reported.rate, reported.capacity, reported.spent), (5.0, 5.0, 1.0));
}

#[tokio::test]
async fn a_request_without_a_key_is_refused_with_the_extractors_status() {
    let limiter = RateLimiter::default();
    let unauthorized = || Err::<u64, _>(KeyError::new("log in first").with_status(StatusCode::UNAUTHORIZED));
    // An enforced layer, and the same layer in shadow mode.
    fn layer(key: impl KeyExtractor + Clone) -> [RateLimitLayer; 2] {
        [Enforce::Always, Enforce::Never].map(|enforce| RateLimitLayer::new(API.clone().enforce(enforce), key.clone()))
    }
    let layers = [
        (layer(key::bearer().or_reject()), 400),
        (layer(move |_: &Parts| unauthorized()), 401),
        (layer(move |_: &Parts| Extraction::later(async move { unauthorized() })), 401),
        (layer(|_: &Parts| Err::<u64, _>(KeyError::new("no tenant layer"))), 500),
    ];
    for ([layer, trial], expected) in layers {
        let app = app_with_status(&layer.limiter(&limiter), &limiter);
        let (limited, reported) = (call(&app, "GET /", &[]).await, call(&app, "GET /rate-limit", &[]).await);
        assert_eq!((limited.status, reported.status), (expected, expected));
        assert_eq!(limited.body, reported.body);
        // In shadow mode, the request is allowed, and no limits are reported.
        let app = app_with_status(&trial.limiter(&limiter), &limiter);
        let (limited, reported) = (call(&app, "GET /", &[]).await, call(&app, "GET /rate-limit", &[]).await);
        assert_eq!((limited.status, reported.status), (200, 200));
        assert!(text(&reported).starts_with(r#"{"limits":[],"now":"#));
    }
}

#[tokio::test]
async fn status_errors_use_the_layers_refusal_handler() {
    let limiter = RateLimiter::new(FailingBackend::IMMEDIATE);
    let layer = RateLimitLayer::new(&API, user).limiter(&limiter).on_refusal(|refusal| {
        let mut response = Response::new(Bytes::from_static(b"one moment, please"));
        *response.status_mut() = refusal.status();
        response
    });
    let reported = call(&app_with_status(&layer, &limiter), "GET /rate-limit", &[]).await;
    assert_eq!((reported.status, text(&reported).as_str()), (503, "one moment, please"));
}
