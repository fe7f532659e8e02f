//! Route limits that are read from a file and applied to an axum router.

use tollgate::{Config, DAY, key};

use super::app::{app, call, limiter, quota_headers, toml};

const FILE: &str = r#"
    [policies.default]
    quota = "60/min"

    [policies.create]
    quota = "5/min"
    tiers = { premium = "40/min" }

    [policies.read]
    quota = "100/min"

    [routes]
    "POST /todos" = "create"
    "GET /todos" = "read"
    "/users/{id}" = "read"
"#;

#[tokio::test]
async fn listed_routes_use_their_policies_and_other_routes_use_the_default() {
    let config = toml(FILE);
    let (limiter, _clock) = limiter(&config);
    let app = app(&config, &limiter);
    for (line, lines, status, policy, limit) in [
        ("POST /todos", &[][..], 200, "create", 5),
        ("POST /todos", &["x-tier: premium"], 200, "create", 40),
        ("POST /todos", &["x-tier: unheard-of"], 200, "create", 5),
        ("GET /todos", &[], 200, "read", 100),
        ("HEAD /todos", &[], 200, "read", 100),
        ("GET /users/7", &[], 200, "read", 100),
        ("GET /search", &[], 200, "default", 60),
        ("PUT /todos", &[], 405, "default", 60),
        ("GET /nowhere", &[], 404, "default", 60),
    ] {
        let (found, name, q, _) = quota_headers(&app, line, lines).await;
        assert_eq!((found, &name[..], q), (status, policy, limit), "{line} {lines:?}");
    }
}

#[tokio::test]
async fn routes_with_the_same_policy_share_their_buckets() {
    let config = toml(FILE);
    let (limiter, clock) = limiter(&config);
    let app = app(&config, &limiter);
    for remaining in (0..5).rev() {
        assert_eq!(quota_headers(&app, "POST /todos", &["x-user: ada"]).await, (200, "create".into(), 5, remaining));
    }
    assert_eq!(quota_headers(&app, "POST /todos", &["x-user: ada"]).await.0, 429);
    assert_eq!(quota_headers(&app, "POST /todos", &["x-user: eve"]).await, (200, "create".into(), 5, 4));
    assert_eq!(quota_headers(&app, "GET /todos", &["x-user: ada"]).await.3, 99);
    assert_eq!(quota_headers(&app, "GET /users/1", &["x-user: ada"]).await.3, 98);
    clock.advance(DAY);
    assert_eq!(quota_headers(&app, "POST /todos", &["x-user: ada"]).await.0, 200);
}

#[tokio::test]
async fn unlisted_routes_are_unlimited_without_a_default_policy() {
    let config = toml("policies.api.quota = \"1/min\"\nroutes.\"/search\" = \"api\"");
    let (limiter, _clock) = limiter(&config);
    let app = app(&config, &limiter);
    assert_eq!((call(&app, "GET /search", &[]).await.status, call(&app, "GET /search", &[]).await.status), (200, 429));
    for _ in 0..3 {
        let answer = call(&app, "GET /todos", &[]).await;
        assert_eq!((answer.status, answer.policies().len()), (200, 0));
    }
}

#[tokio::test]
async fn a_file_can_deny_and_automatically_block_callers() {
    let config = toml(
        r#"
        [policies.default]
        quota = "2/min"
        [deny]
        countries = ["KP"]
        keys = ['"mallory"']
        user_agents = ["*bot*"]
        [auto_block]
        policies = ["default"]
        threshold = 3
        within = "10 min"
        block_for = "1 h"
        "#,
    );
    let (limiter, clock) = limiter(&config);
    let app = app(&config, &limiter);
    for lines in [["x-country: kp"], ["x-user: mallory"], ["user-agent: SomeBot/1"]] {
        assert_eq!(call(&app, "GET /todos", &lines).await.status, 429, "{lines:?}");
    }
    for status in [200, 200, 429, 429, 429] {
        assert_eq!(call(&app, "GET /todos", &["x-user: ada"]).await.status, status);
    }
    clock.advance(tollgate::HOUR / 2);
    assert_eq!(call(&app, "GET /todos", &["x-user: ada"]).await.status, 429);
    clock.advance(tollgate::HOUR / 2);
    assert_eq!(call(&app, "GET /todos", &["x-user: ada"]).await.status, 200);
}

#[test]
fn a_file_accepts_the_same_routes_as_route_limits_in_code() {
    // A line that makes `RouteLimits::table` panic is an error in a file.
    for line in [
        "/",
        "/a",
        "GET /",
        "get /a",
        "GET a",
        "GET  /a",
        "M-SEARCH /a",
        " /a",
        "/a b",
        "* /a",
        "",
        "GET",
        "GÉT /a",
        "/{id}",
    ] {
        let text = serde_json::json!({ "policies": { "p": { "quota": "1/s" } }, "routes": { line: "p" } }).to_string();
        let config = Config::parse("limits.json", &text, |text| serde_json::from_str(text));
        let layer = std::panic::catch_unwind(|| {
            tollgate::RouteLimits::new(key::global())
                .policy(tollgate::Policy::new("p", tollgate::Quota::per_second(1)))
                .table([(line, "p")])
        });
        assert_eq!(config.is_ok(), layer.is_ok(), "{line:?}: {config:?}");
        if let Ok(config) = config {
            drop(config.layer(&tollgate::RateLimiter::default(), key::global()));
        }
    }
}

#[test]
fn adding_a_layer_panics_if_a_configured_quota_is_below_the_fixed_cost() {
    let config =
        toml("[policies.api]\nquota = \"60/min\"\ntiers = { free = \"5/min\" }\n[routes]\n\"/export\" = \"api\"");
    let build = |cost| {
        let layer = config.layer(&tollgate::RateLimiter::default(), key::global()).fixed_cost(cost);
        let app: axum::Router = axum::Router::new().route("/export", axum::routing::get(|| async {})).layer(layer);
        app
    };
    let _ = build(5);
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| build(10))).expect_err("expected a panic");
    let text = *panic.downcast::<String>().unwrap();
    assert!(text.starts_with("tollgate: policy \"api\", tier \"free\": every request costs 10"), "{text}");
}
