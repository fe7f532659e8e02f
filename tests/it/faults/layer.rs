//! Faults of the layer, of its route tables and of the status endpoints.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Path, Request};
use axum::response::Response;
use axum::routing::get;
use http_body_util::BodyExt;
use tollgate::backend::{Adjustment, Backend, BackendFuture, Error, ErrorKind, RowId, Steps, Take};
use tollgate::clock::ManualClock;
use tollgate::key::KeyExtractor;
use tollgate::policy::Enforce;
use tollgate::protection::{DenyList, DenyRule, Signal};
use tollgate::{
    DAY, FailureMode, Key, MemoryBackend, Policy, Quota, RateLimitLayer, RateLimiter, RouteLimits, key, status,
};
use tower::util::MapRequestLayer;
use tower::{Layer, ServiceExt};

const CLIENT: &str = "192.0.2.7:1";

fn limiter() -> RateLimiter {
    RateLimiter::new(MemoryBackend::builder().clock(ManualClock::new()).build())
}

const fn per_minute(name: &'static str, rate: u64) -> Policy {
    Policy::new(name, Quota::per_minute(rate))
}

struct Answer {
    status: u16,
    /// The `RateLimit` items, or an empty string if the layer charged no policy.
    limits: String,
    body: String,
}

async fn call(app: &Router, path: &str) -> Answer {
    let mut request = Request::get(path).body(Body::empty()).unwrap();
    request.extensions_mut().insert(ConnectInfo(CLIENT.parse::<SocketAddr>().unwrap()));
    let Ok(response) = app.clone().oneshot(request).await;
    read(response).await
}

async fn read(response: Response) -> Answer {
    let (parts, body) = response.into_parts();
    let limits: Vec<_> = parts.headers.get_all("ratelimit").iter().map(|value| value.to_str().unwrap()).collect();
    let limits = limits.join(", ");
    let body = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
    Answer { status: parts.status.as_u16(), limits, body }
}

/// Returns a service that serves the last part of its wildcard route, as a file server or a reverse proxy finds it. The
/// line for `/api/login` is strict, and the line for the rest of the wildcard route is loose.
fn login_below_a_wildcard() -> Router {
    let limits = RouteLimits::new(key::global()).policy(per_minute("strict", 1)).policy(per_minute("loose", 100));
    let table = limits.limiter(&limiter()).table([("/api/login", "strict"), ("/api/{*rest}", "loose")]);
    Router::new().route("/api/{*rest}", get(|Path(rest): Path<String>| async move { resolved(&rest) })).layer(table)
}

/// Removes empty segments and dot segments.
fn resolved(path: &str) -> String {
    let mut segments = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    segments.join("/")
}

async fn expect_loose_login(path: &str) {
    let app = login_below_a_wildcard();
    let plain = call(&app, "/api/login").await;
    assert_eq!((plain.status, &*plain.limits, &*plain.body), (200, "\"strict\";r=0;t=60", "login"));
    let other = call(&app, path).await;
    assert_eq!((other.status, &*other.limits, &*other.body), (200, "\"loose\";r=99;t=60", "login"), "{path}");
}

/// Right: 429 under `strict`, because axum decodes the parameter, so the handler sees `login`. Cause: `Table::target`
/// in `src/middleware/table.rs` looks up the path as the client spelled it.
#[tokio::test]
async fn fault_07_a_percent_encoded_path_bypasses_the_stricter_line_below_a_wildcard_route() {
    expect_loose_login("/api/%6cogin").await;
}

/// Right: 429 under `strict` (or a charge under both lines), because a handler that resolves paths sees `login`. Cause:
/// as above, `Table::target` in `src/middleware/table.rs`.
#[tokio::test]
async fn fault_07_empty_and_dot_segments_bypass_the_stricter_line_below_a_wildcard_route() {
    for path in ["/api//login", "/api/./login", "/api/x/../login", "/api/%2e/login", "/api/login/."] {
        expect_loose_login(path).await;
    }
}

/// Right: users 7 and 8 have separate rows, so both get 200. Cause: `PathParam::extract` in
/// `src/middleware/key/path.rs` compares the inner router's route with the path from before the rewrite, and thus uses
/// the segment `users` as everybody's key.
#[tokio::test]
async fn fault_07_a_path_key_behind_a_rewriting_middleware_reads_the_wrong_segment() {
    let per_user = RateLimitLayer::new(per_minute("api", 1), key::path("id")).limiter(&limiter());
    let users = Router::new().route("/users/{id}", get(|Path(id): Path<String>| async { id }).layer(per_user));
    let without_version = MapRequestLayer::new(|mut request: Request| {
        let path = request.uri().path().strip_prefix("/v1").unwrap().parse().unwrap();
        *request.uri_mut() = path;
        request
    });
    let app = Router::new().fallback_service(without_version.layer(users));
    let answer = call(&app, "/v1/users/7").await;
    assert_eq!((answer.status, &*answer.body), (200, "7"));
    assert_eq!(call(&app, "/v1/users/8").await.status, 429);
}

/// Right: `loose` is charged, because the line covers everything below `/api/`. Cause: `route_and_path` in
/// `src/middleware/table.rs` returns neither a route nor a path if axum matched no route.
#[tokio::test]
async fn fault_07_the_fallback_of_a_nested_router_is_outside_the_wildcard_line_that_covers_it() {
    let limits = RouteLimits::new(key::global()).policy(per_minute("loose", 100)).limiter(&limiter());
    let layer = limits.table([("/api/{*rest}", "loose")]);
    let api = Router::new().route("/a", get(|| async { "a" })).fallback(|| async { "the fallback" });
    let app = Router::new().nest("/api", api).layer(layer.clone());
    assert_eq!(call(&app, "/api/a").await.limits, "\"loose\";r=99;t=60");
    let answer = call(&app, "/api/other").await;
    assert_eq!((answer.status, &*answer.limits, &*answer.body), (200, "", "the fallback"));
    assert_eq!(layer.unmatched_requests(), 1);
}

/// Returns a service whose callers must send a token. One request per minute is allowed from all callers together that
/// send none, unless `or_reject` refuses them first.
fn with_tokens(enforce: Enforce, denied: &DenyList) -> Router {
    let backend = MemoryBackend::builder().clock(ManualClock::new()).build();
    let limiter = RateLimiter::builder(backend).deny_list(denied).build();
    let layer = RateLimitLayer::new(per_minute("api", 1).enforce(enforce), key::bearer().or_reject());
    let layer = layer.client_ip(key::client_ip()).limiter(&limiter);
    Router::new().route("/", get(|| async { "handled" }).layer(layer))
}

/// Right: 400, or a charge to the anonymous key. A share never weakens the demand for a key. Cause:
/// `RequestCharges::add` in `src/middleware/decide.rs` drops the extractor's error unless the policy is always
/// enforced, and `decide_charges` admits a request without charges.
#[tokio::test]
async fn fault_11_a_request_that_or_reject_refuses_is_unlimited_under_an_enforced_share() {
    let none = DenyList::new();
    assert_eq!(call(&with_tokens(Enforce::Always, &none), "/").await.status, 400);
    let app = with_tokens(Enforce::Share(0.99), &none);
    for _ in 0..3 {
        let answer = call(&app, "/").await;
        assert_eq!((answer.status, &*answer.limits, &*answer.body), (200, "", "handled"));
    }
}

/// Right: 400 or 429, because the deny list applies whatever the share is. Cause: `decide_charges` in
/// `src/middleware/decide.rs` returns before it reads the signals if no charge is left.
#[tokio::test]
async fn fault_11_a_denied_network_is_admitted_if_or_reject_refuses_it_under_an_enforced_share() {
    let denied = DenyList::from_iter([DenyRule::network("192.0.2.0/24").unwrap()]);
    assert_eq!(call(&with_tokens(Enforce::Always, &denied), "/").await.status, 400);
    let answer = call(&with_tokens(Enforce::Share(0.99), &denied), "/").await;
    assert_eq!((answer.status, &*answer.body), (200, "handled"));
}

/// Right: all four limits, as without the block. Cause: `LayerOptions::snapshots` in
/// `src/middleware/status_report.rs` keeps only the first snapshot of each charge if the caller is blocked.
#[tokio::test]
async fn fault_14_a_status_endpoint_omits_the_second_quota_of_each_policy_while_the_caller_is_blocked() {
    let two = |name| per_minute(name, 60).and(Quota::per_day(1000));
    let limiter = limiter();
    let limits = RouteLimits::new(key::global()).policy(two("read")).policy(two("write")).limiter(&limiter);
    let layer = limits.table([("GET /", "read"), ("POST /", "write")]);
    let app = Router::new().route("/rate-limits", status::of_layer(&layer));
    let all = ["read;1min", "read;1d", "write;1min", "write;1d"];
    assert_eq!(reported(&app).await, all);
    limiter.block(Signal::key(Key::global()), DAY).await.unwrap();
    assert_eq!(reported(&app).await, [all[0], all[2]]);
}

/// Returns the names of the limits that a status endpoint reports.
async fn reported(app: &Router) -> Vec<String> {
    let report: serde_json::Value = serde_json::from_str(&call(app, "/rate-limits").await.body).unwrap();
    let name = |limit: &serde_json::Value| limit["policy"].as_str().unwrap().to_owned();
    report["limits"].as_array().unwrap().iter().map(name).collect()
}

#[derive(Debug)]
struct Broken;

fn fail<T: Send + 'static>() -> BackendFuture<T> {
    BackendFuture::ready(Err(Error::new(ErrorKind::Unavailable, "the server is down")))
}

impl Backend for Broken {
    fn acquire(&self, _takes: &[Take<'_>]) -> BackendFuture<Steps> {
        fail()
    }

    fn peek(&self, _takes: &[Take<'_>]) -> BackendFuture<Steps> {
        fail()
    }

    fn settle(&self, _settlements: &[Adjustment<'_>]) -> BackendFuture<bool> {
        fail()
    }

    fn reset(&self, _rows: &[RowId<'_>]) -> BackendFuture<usize> {
        fail()
    }
}

/// Right: no `RateLimit` field, because nothing is counted. Cause: `fail_open` in `src/limiter/failure.rs` returns the
/// step of an unspent row, and `LimitHeaders::new` in `src/middleware/headers.rs` does not look at who decided.
#[tokio::test]
async fn fault_18_responses_show_a_full_quota_while_a_policy_fails_open() {
    let limiter = RateLimiter::builder(Broken).on_failure(FailureMode::Allow).build();
    let layer = RateLimitLayer::new(per_minute("api", 60), key::global()).limiter(&limiter);
    let app = Router::new().route("/", get(|| async {}).layer(layer));
    for _ in 0..3 {
        let answer = call(&app, "/").await;
        assert_eq!((answer.status, &*answer.limits), (200, "\"api\";r=60;t=60"));
    }
}
