//! Error responses to clients.

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tollgate::key::{self, KeyExtractor};
use tollgate::{
    MINUTE, MemoryBackend, Policy, Quota, RateLimitLayer, RateLimitStatus, RateLimiter, Receipt,
    backend::{Error, ErrorKind},
    clock::ManualClock,
    key::KeyError,
    status,
};
use tower::ServiceExt;

use super::list::List;

const API: Policy = Policy::new("api", Quota::token_bucket(1, MINUTE));

fn limiter() -> RateLimiter {
    RateLimiter::new(MemoryBackend::builder().clock(ManualClock::new()).build())
}

fn behind(layer: RateLimitLayer) -> Router {
    Router::new().route("/", get(|| async { "hello" })).layer(layer.limiter(&limiter()))
}

async fn send(app: &Router, content_type: &str) -> Response {
    app.clone()
        .oneshot(Request::get("/").header("content-type", content_type).body(Body::empty()).unwrap())
        .await
        .unwrap()
}

pub(crate) async fn refusals(list: &mut List) {
    list.section("Refusals: responses");
    let app = behind(RateLimitLayer::new(API, key::global()).grpc());
    assert_eq!(send(&app, "text/plain").await.status(), 200);
    list.response("an exceeded quota", send(&app, "text/plain").await).await;
    list.response("the same over gRPC", send(&app, "application/grpc").await).await;
    let costly = behind(RateLimitLayer::new(API, key::global()).cost(|_| 5).grpc());
    list.response("a cost that never fits", send(&costly, "text/plain").await).await;
    list.response("the same over gRPC", send(&costly, "application/grpc").await).await;
    let down = || Error::new(ErrorKind::Timeout, "the backend did not respond within 100 ms");
    list.response("a backend timeout", down().into_response()).await;
    let limiter = limiter();
    limiter.limit(&API, 7).await.unwrap();
    let denied = limiter.try_limit(&API, 7).await.unwrap().into_result().unwrap_err();
    list.response("a denial returned by a handler", denied.into_response()).await;
}

pub(crate) async fn extractors(list: &mut List) {
    list.section("Keys and extractors: KeyError, as responses");
    let quota = Quota::token_bucket(1, MINUTE);
    let app = behind(RateLimitLayer::new(quota, key::client_ip()));
    list.response("a server without peer addresses", send(&app, "text/plain").await).await;
    let app = behind(RateLimitLayer::new(quota, key::client_ip().from_header("cf-connecting-ip")));
    list.response("a header without a trusted proxy", send(&app, "text/plain").await).await;
    let app = behind(RateLimitLayer::new(quota, key::header("x-api-key").or_reject()).grpc());
    list.response("a request without a key", send(&app, "text/plain").await).await;
    list.response("the same over gRPC", send(&app, "application/grpc").await).await;
    let own = |_: &axum::http::request::Parts| Err::<u64, _>(KeyError::new("no tenant: add the tenant layer"));
    let app = behind(RateLimitLayer::new(quota, own));
    list.response("an error from a custom extractor", send(&app, "text/plain").await).await;

    let app = Router::new().route("/", get(|_: RateLimitStatus| async {}));
    list.response("a handler with `RateLimitStatus`, without a layer", send(&app, "text/plain").await).await;
    let app = Router::new().route("/", get(|_: Receipt| async {}));
    list.response("a handler with `Receipt`, without a layer", send(&app, "text/plain").await).await;
}

pub(crate) async fn status_endpoints(list: &mut List) {
    list.section("Status endpoints: responses");
    let limiter = limiter();
    let app = Router::new().route("/", status::of_any_caller(&limiter, API, |name: &str| name.to_owned()));
    list.response("a caller without a key", send(&app, "text/plain").await).await;
    let app = Router::new().route("/", status::of(&limiter, API, key::client_ip()));
    list.response("a server without peer addresses", send(&app, "text/plain").await).await;
}
