//! Table lines that match requests by their path.

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::routing::get;
use tollgate::{RouteLimits, key};
use tower::{Layer, ServiceExt};

use super::app::{call, limiter, policy, quota_headers};

fn limits() -> RouteLimits {
    RouteLimits::new(key::global())
        .policy(policy("one", 10))
        .policy(policy("all", 20))
        .default_policy(policy("rest", 1000))
        .limiter(&limiter().0)
}

#[tokio::test]
async fn a_line_for_an_exact_path_applies_under_a_wildcard_route() {
    let table = [("GET /files/a", "one"), ("/files/{*path}", "all"), ("/gone/{*rest}", "one")];
    let files = Router::new().route("/files/{*path}", get(|| async {}).post(|| async {}));
    let nested = Router::new().nest("/api", files.clone());
    let app = files.layer(limits().table(table));
    for (line, name) in [
        ("GET /files/a", "one"),
        ("GET /files/b", "all"),
        ("GET /files/a/b", "all"),
        ("POST /files/a", "all"),
        // A table line matches this path, but the router has no route for it.
        ("GET /gone/a", "rest"),
    ] {
        assert_eq!(quota_headers(&call(&app, line, &[]).await).0, name, "{line}");
    }
    let table = [("/api/files/a", "one"), ("/files/a", "all")];
    let layers = [nested.clone().layer(limits().table(table)), {
        let inner = Router::new().route("/files/{*path}", get(|| async {})).layer(limits().table(table));
        Router::new().nest("/api", inner)
    }];
    for app in layers {
        assert_eq!(quota_headers(&call(&app, "GET /api/files/a", &[]).await).0, "one");
        assert_eq!(quota_headers(&call(&app, "GET /api/files/b", &[]).await).0, "rest");
    }
}

#[tokio::test]
async fn a_table_layer_that_wraps_a_whole_router_matches_by_path() {
    let router = Router::new().route("/a", get(|| async {})).route("/users/{id}", get(|| async {}));
    let layer = limits().table([("/a", "one"), ("/users/{id}", "one"), ("/users/{*rest}", "all")]);
    let app = layer.layer(router);
    for (path, policy) in [
        ("/a", "\"one\";q=10;w=60"),
        ("/users/7", "\"all\";q=20;w=60"),
        ("/users/", "\"rest\";q=1000;w=60"),
        ("/b/../a", "\"rest\";q=1000;w=60"),
    ] {
        let response = app.clone().oneshot(Request::get(path).body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(response.headers()["ratelimit-policy"], policy, "{path}");
    }
    assert_eq!((layer.unused_routes(), layer.unmatched_requests()), (vec!["/users/{id}"], 2));
}

#[tokio::test]
async fn a_wildcard_line_covers_the_routes_under_its_prefix() {
    let table = [("/api/{*rest}", "all"), ("POST /api/export", "one"), ("GET /api/v2/{*rest}", "one")];
    let routes = || {
        let answer = || get(|| async {}).post(|| async {});
        Router::new().route("/export", answer()).route("/users/{id}", answer()).route("/v2/a", answer())
    };
    let around = Router::new().nest("/api", routes()).route("/other", get(|| async {})).layer(limits().table(table));
    let inside = Router::new().nest("/api", routes().layer(limits().table(table)));
    for app in [&around, &inside] {
        for (line, name) in [
            ("POST /api/export", "one"),
            ("GET /api/export", "all"),
            ("GET /api/users/7", "all"),
            ("GET /api/v2/a", "one"),
            ("POST /api/v2/a", "all"),
        ] {
            assert_eq!(quota_headers(&call(app, line, &[]).await).0, name, "{line}");
        }
    }
    assert_eq!(quota_headers(&call(&around, "GET /other", &[]).await).0, "rest");
    // The router has no such route.
    assert_eq!(quota_headers(&call(&around, "GET /api/none", &[]).await).0, "rest");
}
