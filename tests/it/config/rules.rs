//! Files with keys, costs, waits, shadow mode, several policies per route, and policies for all routes.

use axum::Router;
use axum::routing::get;
use tollgate::{Config, RateLimiter, key};

use super::app::{app, call, limiter, toml};

/// Returns the status and, from the headers, the remaining tokens of each policy, such as `api=9 all=99`.
async fn left(app: &Router, line: &str, lines: &[&str]) -> (u16, String) {
    let answer = call(app, line, lines).await;
    let limits: Vec<_> = answer.limits().iter().map(|(name, left, _)| format!("{name}={left}")).collect();
    (answer.status, limits.join(" "))
}

const FILE: &str = r#"
    default = ["api", "tenant"]
    all_routes = ["all", "heavy"]

    [policies.api]
    quota = "60/min"

    [policies.tenant]
    quota = "100/min"
    tiers = { premium = "200/min" }
    key = "tenant"

    [policies.all]
    quota = "1000/min"
    key = "global"

    [policies.heavy]
    quota = "500/min"
    key = "user"
    cost = 7

    [routes]
    "POST /todos" = "api"
    "GET /todos" = { policies = ["tenant", "api"], cost = 10 }
    "/users/{id}" = { policies = "api" }
    "/search" = []
"#;

const ADA: &[&str] = &["x-user: ada", "x-tenant: 1"];

#[tokio::test]
async fn a_route_can_use_several_policies_with_their_own_keys_and_costs() {
    let config = toml(FILE);
    let (limiter, _clock) = limiter(&config);
    let app = app(&config, &limiter);
    for (line, lines, status, expected) in [
        ("GET /nowhere", ADA, 404, "api=59 tenant=99 all=999 heavy=493"),
        ("GET /todos", ADA, 200, "tenant=89 api=49 all=998 heavy=486"),
        ("POST /todos", &["x-user: ada"], 200, "api=48 all=997 heavy=479"),
        ("GET /users/7", &["x-user: eve", "x-tenant: 1"], 200, "api=59 all=996 heavy=493"),
        ("PUT /users/7", &["x-user: eve"], 405, "api=58 all=995 heavy=486"),
        ("GET /search", &["x-user: eve"], 200, "all=994 heavy=479"),
        ("GET /todos", &["x-user: eve", "x-tenant: 1"], 200, "tenant=79 api=48 all=993 heavy=472"),
    ] {
        assert_eq!(left(&app, line, lines).await, (status, expected.to_owned()), "{line} {lines:?}");
    }
    // The `tenant` extractor rejects requests without a tenant.
    assert_eq!(left(&app, "GET /todos", &["x-user: ada"]).await.0, 400);
    let routes: Vec<_> = config.routes().map(|(line, policy)| format!("{line} {}", policy.name())).collect();
    assert_eq!(routes, ["/users/{id} api", "GET /todos tenant", "GET /todos api", "POST /todos api"]);
    assert_eq!(config.default_policies().next().unwrap().name().as_str(), "api");
}

#[tokio::test]
async fn a_policy_with_a_wait_delays_requests() {
    let config = toml("policies.default = { quota = \"10/s burst 1 reserve 1\", wait = \"1 s\" }");
    let (limiter, clock) = limiter(&config);
    let app = app(&config, &limiter);
    assert_eq!(call(&app, "GET /todos", &[]).await.status, 200);
    let delayed = tokio::spawn(async move { call(&app, "GET /todos", &[]).await.status });
    while limiter.stats().waiting == 0 {
        tokio::task::yield_now().await;
    }
    assert!(!delayed.is_finished());
    clock.advance(tollgate::SECOND / 10);
    assert_eq!(delayed.await.unwrap(), 200);
}

#[tokio::test]
async fn a_policy_in_shadow_mode_refuses_no_requests_and_adds_no_headers() {
    let config = toml("policies.default = { quota = \"1/min\", shadow = true }");
    let (limiter, _clock) = limiter(&config);
    let app = app(&config, &limiter);
    for _ in 0..3 {
        let answer = call(&app, "GET /todos", &[]).await;
        assert_eq!((answer.status, answer.headers.contains_key("ratelimit")), (200, false));
    }
}

#[tokio::test]
async fn a_single_policy_in_a_file_can_be_in_shadow_mode() {
    let config = toml(
        "all_routes = \"new\"\ndefault = \"api\"\n[policies]\napi = { quota = \"2/min\" }\nnew = { quota = \"1/min\", shadow = true }",
    );
    let (limiter, _clock) = limiter(&config);
    let app = app(&config, &limiter);
    let mut statuses = Vec::new();
    for _ in 0..3 {
        statuses.push(call(&app, "GET /todos", &[]).await.status);
    }
    assert_eq!(statuses, [200, 200, 429]);
    let both = "policies.default = { quota = \"1/min\", shadow = true, enforce = 0.5 }";
    let error = Config::parse("limits.toml", both, |text| toml::from_str(text)).unwrap_err().to_string();
    assert!(
        error.contains("enforce: the policy is in shadow mode, so nothing is enforced; remove `shadow` or `enforce`")
    );
}

#[tokio::test]
async fn a_reload_changes_the_enforcement_of_a_policy() {
    let file = |setting: &str| toml(&format!("policies.default = {{ quota = \"1/min\"{setting} }}"));
    let config = file(", shadow = true");
    let (limiter, _clock) = limiter(&config);
    let app = app(&config, &limiter);
    for (setting, reported, status) in [
        (", shadow = true", "nothing has changed", Some(200)),
        ("", "policies.default.enforce: 0 → 1", Some(429)),
        (", enforce = 1.0", "nothing has changed", Some(429)),
        (", enforce = 0.25", "policies.default.enforce: 1 → 0.25", None), // the status depends on the key
        (", shadow = true", "policies.default.enforce: 0.25 → 0", Some(200)),
    ] {
        let reloaded = config.reload(&limiter, &file(setting)).await.unwrap();
        assert_eq!(reloaded.to_string(), reported);
        let in_force = limiter.enforcement(config.policy("default").unwrap());
        assert!(reloaded.enforcements().iter().all(|change| change.new() == in_force));
        for _ in 0..3 {
            let found = call(&app, "GET /todos", &[]).await.status;
            assert!(status.is_none_or(|status| status == found), "{setting}: {found}");
        }
    }
}

#[tokio::test]
async fn a_policy_in_a_file_can_use_leases() {
    let config = toml("policies = { api = { quota = \"2/min\", leases = true }, other = { quota = \"1/min\" } }");
    assert!(config.policy("api").unwrap().uses_leases() && !config.policy("other").unwrap().uses_leases());
    let (limiter, _clock) = limiter(&config);
    let other = "policies = { api = { quota = \"2/min\" }, other = { quota = \"1/min\" } }";
    let error = config.reload(&limiter, &toml(other)).await.unwrap_err().to_string();
    assert!(error.contains("policies.api.leases: true → false; restart the program"), "{error}");
}

#[tokio::test]
async fn a_policy_named_default_that_applies_to_all_routes_is_charged_once() {
    let config = toml("all_routes = \"default\"\n[policies.default]\nquota = \"60/min\"");
    assert!(config.default_policies().next().is_none());
    let (limiter, _clock) = limiter(&config);
    assert_eq!(left(&app(&config, &limiter), "GET /todos", &[]).await, (200, "default=59".to_owned()));
}

#[tokio::test]
async fn a_reload_lists_changed_keys_costs_waits_and_routes() {
    let config = toml(FILE);
    let (limiter, _clock) = limiter(&config);
    let new = FILE
        .replace("default = [\"api\", \"tenant\"]", "default = \"api\"")
        .replace("\"all\", \"heavy\"", "\"all\"")
        .replace("key = \"global\"", "")
        .replace("cost = 7", "cost = 8")
        .replace("quota = \"60/min\"", "quota = \"60/min burst 60 reserve 9\"\nwait = \"5 s\"")
        .replace("cost = 10", "cost = 9")
        .replace("[]", "[\"api\", \"heavy\"]");
    let error = config.reload(&limiter, &toml(&new)).await.unwrap_err().to_string();
    assert_eq!(
        error,
        "\
limits.toml: policies.all.key: \"global\" → none; restart the program to change it
limits.toml: policies.api.wait: none → 5s; restart the program to change it
limits.toml: policies.heavy.cost: 7 → 8; restart the program to change it
limits.toml: default: [\"api\", \"tenant\"] → \"api\"; restart the program to change it
limits.toml: all_routes: [\"all\", \"heavy\"] → [\"all\"]; restart the program to change it
limits.toml: routes.\"/search\": [] → [\"api\", \"heavy\"]; restart the program to change it
limits.toml: routes.\"GET /todos\": { policies = [\"tenant\", \"api\"], cost = 10 } → { policies = [\"tenant\", \"api\"], \
         cost = 9 }; restart the program to change it"
    );
    let quota = FILE.replace("quota = \"60/min\"", "quota = \"50/min\"");
    let reloaded = config.reload(&limiter, &toml(&quota)).await.unwrap();
    assert_eq!(reloaded.to_string(), "policies.api.quota: 60/min → 50/min");
}

#[test]
fn a_key_in_a_file_must_be_registered_with_the_reader() {
    let text = "[policies.api]\nquota = \"1/s\"\nkey = \"user\"";
    let error = Config::parse("limits.toml", text, |text| toml::from_str(text)).unwrap_err().to_string();
    assert_eq!(
        error,
        "limits.toml: policies.api.key: unknown key \"user\"; known keys: \"global\". Programs register keys with \
         `ConfigReader::key`"
    );
    let panic = std::panic::catch_unwind(|| super::app::reader().key("user", key::global())).unwrap_err();
    let text = *panic.downcast::<String>().unwrap();
    assert!(text.contains("two key extractors are named \"user\""), "{text}");
}

#[tokio::test]
async fn unused_routes_are_listed_as_written_in_the_file() {
    let config = toml(FILE);
    let layer = config.layer(&RateLimiter::default(), key::global());
    let app: Router = Router::new().route("/search", get(|| async {})).layer(layer.clone());
    call(&app, "GET /search", ADA).await;
    assert_eq!(layer.unused_routes(), ["/users/{id}", "GET /todos", "POST /todos"]);
}

#[test]
#[should_panic(expected = "has none of `default`, `all_routes` and `routes`, so this layer would limit nothing")]
fn config_layer_panics_if_no_policy_applies() {
    let config = toml("[policies.api]\nquota = \"1/h\"");
    let (limiter, _clock) = limiter(&config);
    let _ = config.layer(&limiter, key::client_ip());
}
