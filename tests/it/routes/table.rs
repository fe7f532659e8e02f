//! A single layer wraps all routes and chooses the policy from a table of methods and routes.

use axum::Router;
use axum::routing::{any, get, post};
use tollgate::{RouteLimits, key};

use super::app::{call, limiter, policy, quota_headers};

/// Returns limits with one global key, so that requests under the same policy share a bucket.
fn limits() -> RouteLimits {
    RouteLimits::new(key::global())
        .policy(policy("read", 100))
        .policy(policy("write", 50))
        .policy(policy("files", 20))
        .default_policy(policy("rest", 1000))
        .limiter(&limiter().0)
}

#[tokio::test]
async fn a_table_selects_the_policy_by_method_and_route() {
    let app = Router::new()
        .route("/todos", any(|| async {}))
        .route("/todos/{id}", get(|| async {}).put(|| async {}))
        .route("/files/{*path}", any(|| async {}))
        .route("/status", get(|| async {}))
        .layer(limits().table([
            ("GET /todos", "read"),
            ("POST /todos", "write"),
            ("/todos/{id}", "write"),
            ("GET /todos/{id}", "read"),
            ("/files/{*path}", "files"),
        ]));
    for (line, name, left) in [
        ("GET /todos", "read", 99),
        ("GET /todos?page=2", "read", 98),
        ("POST /todos", "write", 49),
        ("GET /todos/7", "read", 97),
        ("GET /todos/8", "read", 96),
        // A line without a method applies to all methods that have no line of their own.
        ("PUT /todos/7", "write", 48),
        ("POST /files/a", "files", 19),
        ("GET /files/a/b/c", "files", 18),
        ("OPTIONS /files/%61", "files", 17),
        ("PATCH /todos", "rest", 999),
        ("GET /status", "rest", 998),
    ] {
        let answer = call(&app, line, &[]).await;
        assert_eq!(
            (answer.status, quota_headers(&answer).0.as_str(), quota_headers(&answer).2),
            (200, name, left),
            "{line}"
        );
    }
}

#[tokio::test]
async fn head_requests_use_the_line_for_get_unless_there_is_a_line_for_head() {
    let app = Router::new()
        .route("/a", get(|| async {}))
        .route("/b", get(|| async {}))
        .route("/c", get(|| async {}))
        .route("/d", post(|| async {}).head(|| async {}))
        .layer(limits().table([
            ("GET /a", "read"),
            ("GET /b", "read"),
            ("HEAD /b", "write"),
            ("GET /c", "read"),
            ("/c", "files"),
            ("POST /d", "write"),
        ]));
    for (line, name, left) in [
        ("GET /a", "read", 99),
        ("HEAD /a", "read", 98),
        ("HEAD /b", "write", 49),
        ("GET /b", "read", 97),
        // The line for GET takes precedence over the line for all methods.
        ("HEAD /c", "read", 96),
        ("HEAD /d", "rest", 999),
    ] {
        let answer = call(&app, line, &[]).await;
        assert_eq!(
            (answer.status, quota_headers(&answer).0.as_str(), quota_headers(&answer).2),
            (200, name, left),
            "{line}"
        );
    }
}

#[tokio::test]
async fn unmatched_requests_share_one_bucket_of_the_default_policy() {
    let app = Router::new()
        .route("/todos", get(|| async {}))
        .route("/todos/{id}", get(|| async {}))
        .layer(limits().table([("GET /todos", "read"), ("GET /todos/{id}", "write")]));
    // Other spellings of a path must not get buckets of their own.
    let nowhere = ["/", "/nowhere", "//todos", "/Todos", "/todos/", "/todos/7/x", "/%74odos/7/", "/todos;a=1"];
    for (left, path) in nowhere.iter().enumerate() {
        for (i, method) in ["GET", "POST"].iter().enumerate() {
            let answer = call(&app, &format!("{method} {path}"), &[]).await;
            let left = 999 - 2 * left as u64 - i as u64;
            assert_eq!((answer.status, quota_headers(&answer)), (404, ("rest".into(), 1000, left)), "{method} {path}");
        }
    }
    let refused = call(&app, "DELETE /todos", &[]).await;
    assert_eq!((refused.status, quota_headers(&refused).0), (405, "rest".into()));
    let variant = call(&app, "GET /todos/%37", &[]).await;
    assert_eq!((variant.status, quota_headers(&variant)), (200, ("write".into(), 50, 49)));
    let fragment = call(&app, "GET /todos/7;a=1?b=2", &[]).await;
    assert_eq!((fragment.status, quota_headers(&fragment)), (200, ("write".into(), 50, 48)));
}

#[tokio::test]
async fn a_flood_of_requests_for_unknown_paths_is_refused_without_affecting_known_routes() {
    let limits = RouteLimits::new(key::global()).policy(policy("read", 3)).default_policy(policy("rest", 5));
    let app = Router::new()
        .route("/", get(|| async {}))
        .fallback(|| async { "fallback" })
        .layer(limits.limiter(&limiter().0).table([("GET /", "read")]));
    let mut passed = 0;
    for i in 0..50 {
        passed += u64::from(call(&app, &format!("GET /{i}"), &[]).await.status != 429);
    }
    assert_eq!(passed, 5);
    assert_eq!(quota_headers(&call(&app, "GET /", &[]).await), ("read".into(), 3, 2));
}

#[tokio::test]
async fn unmatched_requests_are_unlimited_without_a_default_policy() {
    let limits = RouteLimits::new(key::global()).policy(policy("read", 1)).limiter(&limiter().0);
    let app = Router::new().route("/a", any(|| async {})).layer(limits.table([("GET /a", "read")]));
    for line in ["POST /a", "GET /nowhere"].repeat(3) {
        let answer = call(&app, line, &[]).await;
        assert_ne!(answer.status, 429);
        assert!(!answer.headers.contains_key("ratelimit") && !answer.headers.contains_key("ratelimit-policy"));
    }
    assert_eq!(call(&app, "GET /a", &[]).await.status, 200);
    assert_eq!(call(&app, "GET /a", &[]).await.status, 429);
}

#[tokio::test]
async fn route_layer_does_not_limit_unmatched_requests() {
    let limits = RouteLimits::new(key::global()).default_policy(policy("rest", 2)).limiter(&limiter().0);
    let app = Router::new().route("/a", get(|| async {})).route_layer(limits.table([]));
    for _ in 0..5 {
        assert_eq!(call(&app, "GET /nowhere", &[]).await.status, 404);
    }
    let mut statuses = Vec::new();
    for _ in 0..3 {
        statuses.push(call(&app, "GET /a", &[]).await.status);
    }
    assert_eq!(statuses, [200, 200, 429]);
}
