//! Policies that are chosen by a layer on a handler, or by a closure that reads the request.

use axum::Router;
use axum::http::request::Parts;
use axum::routing::{get, post};
use tollgate::{RouteLimits, key};

use super::app::{call, header, limiter, policy, quota_headers, user};

fn limits() -> RouteLimits {
    RouteLimits::new(key::global()).policy(policy("read", 100)).policy(policy("write", 50)).limiter(&limiter().0)
}

#[tokio::test]
async fn layers_on_handlers_share_a_bucket_only_if_they_share_a_policy() {
    let limits = limits();
    let app = Router::new()
        .route("/a", get(|| async {}).layer(limits.route("read")).post_service(unlimited()))
        .route("/b", get(|| async {}).layer(limits.route("read")))
        .route("/c", post(|| async {}).layer(limits.route("write")))
        .route("/free", get(|| async {}));
    for (line, expected) in [
        ("GET /a", Some(("read", 99))),
        // axum routes HEAD requests to the GET handler, including its layer.
        ("HEAD /a", Some(("read", 98))),
        ("GET /b", Some(("read", 97))),
        ("POST /c", Some(("write", 49))),
        ("POST /a", None),
        ("GET /free", None),
    ] {
        let answer = call(&app, line, &[]).await;
        assert_eq!(answer.status, 200, "{line}");
        match expected {
            Some((name, left)) => {
                assert_eq!((quota_headers(&answer).0.as_str(), quota_headers(&answer).2), (name, left), "{line}")
            }
            None => assert!(!answer.headers.contains_key("ratelimit"), "{line}"),
        }
    }
}

fn unlimited() -> axum::routing::MethodRouter {
    post(|| async {})
}

#[tokio::test]
async fn a_layer_on_a_method_router_also_charges_requests_with_unsupported_methods() {
    // axum also applies a method router's layer to its 405 responses, so a request with an unsupported method is
    // charged.
    let app = Router::new().route("/a", get(|| async {}).layer(limits().route("read")));
    assert_eq!(quota_headers(&call(&app, "GET /a", &[]).await).2, 99);
    let refused = call(&app, "DELETE /a", &[]).await;
    assert_eq!((refused.status, quota_headers(&refused).2), (405, 98));
    assert!(!call(&app, "GET /b", &[]).await.headers.contains_key("ratelimit"));
}

#[tokio::test]
async fn a_closure_can_choose_the_policy_based_on_any_part_of_the_request() {
    let by_kind = |req: &Parts| match header(req, "x-kind").as_deref() {
        Some("none") => None,
        // No policy has this name, so the default policy applies.
        Some("unheard-of") => Some("unheard-of"),
        Some("rest") => Some("rest"),
        _ => Some(if req.method.is_safe() { "read" } else { "write" }),
    };
    let app = Router::new()
        .route("/", get(|| async {}).post(|| async {}))
        .layer(limits().default_policy(policy("rest", 1000)).choose(by_kind));
    for (line, kind, name, left) in [
        ("GET /", "x-kind: a", "read", 99),
        ("POST /", "x-kind: b", "write", 49),
        ("GET /nowhere", "x-kind: c", "read", 98),
        ("GET /", "x-kind: none", "rest", 999),
        ("POST /", "x-kind: unheard-of", "rest", 998),
        ("POST /", "x-kind: rest", "rest", 997),
    ] {
        let answer = call(&app, line, &[kind]).await;
        assert_eq!((quota_headers(&answer).0.as_str(), quota_headers(&answer).2), (name, left), "{line} {kind}");
    }
}

#[tokio::test]
async fn without_a_default_policy_requests_are_unlimited_if_the_closure_returns_none() {
    let app = Router::new().route("/", get(|| async {})).layer(limits().choose(|_: &Parts| None));
    for _ in 0..3 {
        let answer = call(&app, "GET /", &[]).await;
        assert_eq!(answer.status, 200);
        assert!(!answer.headers.contains_key("ratelimit"));
    }
}

#[tokio::test]
async fn tables_closures_and_route_layers_share_the_rows_of_a_policy() {
    let limits = RouteLimits::new(user).policy(policy("read", 100)).limiter(&limiter().0);
    let on_handler = Router::new().route("/", get(|| async {}).layer(limits.route("read")));
    let table = Router::new().route("/", get(|| async {})).layer(limits.table([("GET /", "read")]));
    let choice = Router::new().route("/", get(|| async {})).layer(limits.choose(|_: &Parts| Some("read")));
    for (left, app) in [(99, &on_handler), (98, &table), (97, &choice), (96, &on_handler)] {
        assert_eq!(quota_headers(&call(app, "GET /", &["x-user: ada"]).await).2, left);
    }
    assert_eq!(quota_headers(&call(&table, "GET /", &["x-user: bob"]).await).2, 99);
}
