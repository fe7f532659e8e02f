//! Denied keys in configuration files, including keys that can never match.

use axum::Router;
use axum::routing::get;
use tollgate::key;
use tollgate::key::KeyExtractor;

use super::app::{call, limiter, toml};

const FILE: &str = r#"
    policies.default.quota = "100/min"
    deny.keys = ["bearer:sk_leaked", "header(x-api-key):k7", "cookie(session):s7"]
"#;

#[tokio::test]
async fn requests_with_denied_credentials_are_refused() {
    let config = toml(FILE);
    let (limiter, _clock) = limiter(&config);
    let by = key::bearer().or(key::header("x-api-key")).or(key::cookie("session"));
    let app = Router::new().route("/", get(|| async {})).layer(config.layer(&limiter, by));
    for (line, status) in [
        ("authorization: Bearer sk_leaked", 429),
        ("authorization: Bearer sk_good", 200),
        ("x-api-key: k7", 429),
        ("x-api-key: s7", 200),
        ("cookie: session=s7", 429),
        ("cookie: session=k7", 200),
    ] {
        assert_eq!(call(&app, "GET /", &[line]).await.status, status, "{line}");
    }
}

#[test]
fn a_denied_key_that_can_never_match_is_counted_when_the_layer_is_added() {
    for key in ["'\"sk_leaked\"'", "4711", "'header(x-key):sk_leaked'"] {
        let config = toml(&format!("policies.default.quota = '1/min'\ndeny.keys = [{key}]"));
        let (limiter, _clock) = limiter(&config);
        let layer = config.layer(&limiter, key::bearer());
        let _app: Router = Router::new().route("/", get(|| async {})).layer(layer);
        assert_eq!(limiter.stats().mistakes.unmatched_deny_rules, 1, "{key}");
    }
}
