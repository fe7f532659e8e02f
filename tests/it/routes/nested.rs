//! Routes in nested routers are matched by their full patterns.

use axum::Router;
use axum::routing::get;
use tollgate::{RateLimitLayer, RouteLimits, key};

use super::app::{call, limiter, policy, quota_headers};

fn limits() -> RouteLimits {
    RouteLimits::new(key::global())
        .policy(policy("read", 100))
        .policy(policy("files", 20))
        .default_policy(policy("rest", 1000))
        .limiter(&limiter().0)
}

fn todos() -> Router {
    Router::new()
        .route("/", get(|| async { "all" }))
        .route("/{id}", get(|| async { "one" }))
        .route("/{id}/files/{*path}", get(|| async { "file" }))
}

/// The table for the router `todos`, which is nested at `/api/todos`. The route `/` of `todos` becomes `/api/todos`,
/// without a trailing slash.
const TABLE: [(&str, &str); 3] =
    [("GET /api/todos", "read"), ("GET /api/todos/{id}", "read"), ("/api/todos/{id}/files/{*path}", "files")];

const REQUESTS: [(&str, u16, &str, u64); 7] = [
    ("GET /api/todos", 200, "read", 99),
    ("GET /api/todos/7", 200, "read", 98),
    ("HEAD /api/todos/7", 200, "read", 97),
    ("GET /api/todos/7/files/a/b", 200, "files", 19),
    ("GET /api/todos/7/nowhere", 404, "rest", 999),
    ("GET /api/nowhere", 404, "rest", 998),
    ("GET /todos/7", 404, "rest", 997),
];

#[tokio::test]
async fn a_table_on_the_outermost_router_matches_full_route_patterns() {
    let app = Router::new().nest("/api", Router::new().nest("/todos", todos())).layer(limits().table(TABLE));
    for (line, status, name, left) in REQUESTS {
        let answer = call(&app, line, &[]).await;
        assert_eq!(
            (answer.status, quota_headers(&answer).0.as_str(), quota_headers(&answer).2),
            (status, name, left),
            "{line}"
        );
    }
}

#[tokio::test]
async fn a_table_within_a_nested_router_matches_full_route_patterns() {
    let app = Router::new().nest("/api", Router::new().nest("/todos", todos()).layer(limits().table(TABLE)));
    for (line, status, name, left) in REQUESTS {
        let answer = call(&app, line, &[]).await;
        assert_eq!(answer.status, status, "{line}");
        // Requests that match no route reach the outer router's fallback, which this layer does not wrap.
        if status == 404 {
            assert!(!answer.headers.contains_key("ratelimit"), "{line}");
        } else {
            assert_eq!((quota_headers(&answer).0.as_str(), quota_headers(&answer).2), (name, left), "{line}");
        }
    }
}

#[tokio::test]
async fn requests_to_a_nested_service_match_no_table_line() {
    // axum cannot see the routes inside a nested service. The default policy applies to all requests to the service.
    let app = Router::new()
        .route("/own", get(|| async {}))
        .nest_service("/api/todos", todos())
        .layer(limits().table(TABLE.into_iter().chain([("GET /own", "read")])));
    for (line, name) in [("GET /own", "read"), ("GET /api/todos/7", "rest"), ("GET /api/todos/8", "rest")] {
        let answer = call(&app, line, &[]).await;
        assert_eq!((answer.status, quota_headers(&answer).0.as_str()), (200, name), "{line}");
    }
}

#[tokio::test]
async fn a_layer_covers_merged_routers_and_their_fallbacks() {
    let app = todos().merge(Router::new().route("/other", get(|| async {}))).fallback(|| async { "fallback" });
    let app = app.layer(limits().table([("/{id}", "read")]));
    for (line, name) in [("GET /7", "read"), ("GET /other", "rest"), ("GET /x/y", "rest"), ("GET /", "rest")] {
        let answer = call(&app, line, &[]).await;
        assert_eq!((answer.status, quota_headers(&answer).0.as_str()), (200, name), "{line}");
    }
    let app = app.route("/later", get(|| async {}));
    assert!(!call(&app, "GET /later", &[]).await.headers.contains_key("ratelimit"));
}

#[tokio::test]
async fn a_parameter_of_a_nested_route_can_be_the_key() {
    let layer = RateLimitLayer::new(policy("todo", 5), key::path("id"));
    let app = Router::new().nest("/api/{tenant}", todos().layer(layer.limiter(&limiter().0)));
    for (line, left) in [
        ("GET /api/acme/7", 4),
        ("GET /api/acme/7", 3),
        ("GET /api/acme/%37", 2),
        ("GET /api/acme/8", 4),
        ("GET /api/other/7/files/a/b", 1),
    ] {
        let answer = call(&app, line, &[]).await;
        assert_eq!((answer.status, quota_headers(&answer).2), (200, left), "{line}");
    }
    let by_tenant = RateLimitLayer::new(policy("tenant", 5), key::path("tenant"));
    let app = Router::new().nest("/api/{tenant}", todos().layer(by_tenant.limiter(&limiter().0)));
    for (line, left) in [("GET /api/acme/7", 4), ("GET /api/acme/8", 3), ("GET /api/other/7", 4)] {
        assert_eq!(quota_headers(&call(&app, line, &[]).await).2, left, "{line}");
    }
}
