//! A reload reports all changes that need a restart, and applies none of them.

use tollgate::config::ConfigErrorKind;

use super::app::{limiter, toml};

const FILE: &str = r#"
    default = "web"
    [policies.web]
    quota = "60/min"
    [policies.api]
    quota = "30/min"
    tiers = { free = "60/min", premium = "200/min" }
    [routes]
    "/todos" = "api"
    "POST /todos" = "web"
    [auto_block]
    policies = ["api"]
"#;

const OTHER: &str = r#"
    default = "api"
    [policies.search]
    quota = "60/min"
    [policies.api]
    quota = "30/min sliding"
    tiers = { free = "60/min sliding", gold = "200/min sliding" }
    [routes]
    "/todos" = "search"
    "PUT /todos" = "api"
"#;

#[tokio::test]
async fn a_reload_lists_every_change_that_needs_a_restart() {
    let config = toml(FILE);
    let (limiter, _clock) = limiter(&config);
    let error = config.reload(&limiter, &toml(OTHER)).await.unwrap_err();
    assert_eq!(error.kind(), ConfigErrorKind::Restart);
    let message = "\
limits.toml: policies.api.quota: \"30/min sliding\" has a different algorithm from \"30/min\"; restart the program to change it
limits.toml: policies.api.tiers.premium: missing, but in use; put it back, or restart the program to remove it
limits.toml: policies.api.tiers.gold: new; restart the program to add it
limits.toml: policies.web: missing, but in use; put it back, or restart the program to remove it
limits.toml: policies.search: new; restart the program to add it
limits.toml: default: \"web\" → \"api\"; restart the program to change it
limits.toml: routes.\"/todos\": \"api\" → \"search\"; restart the program to change it
limits.toml: routes.\"POST /todos\": missing, but in use; put it back, or restart the program to remove it
limits.toml: routes.\"PUT /todos\": new; restart the program to add it
limits.toml: auto_block: missing, but in use; put it back, or restart the program to remove it";
    assert_eq!(error.to_string(), message);
    assert_eq!(limiter.stats().changed_quotas, 0);
}

#[tokio::test]
async fn a_missing_default_differs_from_a_default_named_none() {
    let with = |default: &str| toml(&format!("{default}\npolicies.none.quota = \"1/s\"\npolicies.api.quota = \"1/s\""));
    let (without, none) = (with(""), with("default = \"none\""));
    let (limiter, _clock) = limiter(&without);
    let error = without.reload(&limiter, &none).await.unwrap_err().to_string();
    assert_eq!(error, "limits.toml: default: none → \"none\"; restart the program to change it");
    let error = none.reload(&limiter, &without).await.unwrap_err().to_string();
    assert_eq!(error, "limits.toml: default: \"none\" → none; restart the program to change it");
}

#[tokio::test]
async fn a_refused_reload_lists_old_and_new_values_of_auto_block_fields() {
    let file =
        |rules: &str| toml(&format!("policies.api.quota = \"30/min\"\n[auto_block]\npolicies = [\"api\"]\n{rules}"));
    let config = file("threshold = 30\nlabels = [\"asn\"]");
    let (limiter, _clock) = limiter(&config);
    let new = file("threshold = 20\nips = false\nescalate = { factor = 2, most = \"30 d\" }");
    assert_eq!(
        config.reload(&limiter, &new).await.unwrap_err().to_string(),
        "\
limits.toml: auto_block.threshold: 30 → 20; restart the program to change it
limits.toml: auto_block.escalate: off → { factor = 2, most = 2592000s }; restart the program to change it
limits.toml: auto_block.ips: true → false; restart the program to change it
limits.toml: auto_block.labels: [\"asn\"] → []; restart the program to change it"
    );
}
