//! Several limiters that add headers to one response. Outer limiters add fields, but overwrite none.

use axum::Router;
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::routing::any;
use tollgate::{HeaderFamily, MINUTE, Quota, RateLimitLayer, middleware::ResetUnit};

use super::app::{app, layer, lines, take};

fn limit(name: &str, rate: u64, family: HeaderFamily) -> RateLimitLayer {
    layer(name, Quota::token_bucket(rate, MINUTE)).0.headers(family)
}

/// A service whose responses already have headers, like an upstream server with its own limiter.
fn service_with(status: u16, headers: &'static [(&'static str, &'static str)]) -> Router {
    let handler = move || async move {
        let headers = headers.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()));
        (StatusCode::from_u16(status).unwrap(), headers.collect::<HeaderMap>())
    };
    Router::new().route("/", any(handler))
}

#[tokio::test]
async fn outer_layers_append_to_the_draft_11_lists() {
    let draft = HeaderFamily::Draft11;
    let app = app(limit("inner", 10, draft)).layer(limit("middle", 60, draft)).layer(limit("outer", 20, draft));
    assert_eq!(
        lines(&take(&app, 1).await),
        [
            r#"ratelimit: "inner";r=9;t=54"#,
            r#"ratelimit: "middle";r=59;t=59"#,
            r#"ratelimit: "outer";r=19;t=57"#,
            r#"ratelimit-policy: "inner";q=10;w=60"#,
            r#"ratelimit-policy: "middle";q=60;w=60"#,
            r#"ratelimit-policy: "outer";q=20;w=60"#,
        ]
    );
}

#[tokio::test]
async fn existing_draft_11_fields_stay_first_and_unchanged() {
    let inner = service_with(
        200,
        &[
            ("ratelimit", r#""existing"; r=3; t=9; acme-note="x""#),
            ("ratelimit-policy", r#""existing";q=10;w=30;qu="content-bytes";pk=:c2Rm:"#),
        ],
    );
    let app = inner.layer(limit("outer", 20, HeaderFamily::Draft11));
    assert_eq!(
        lines(&take(&app, 1).await),
        [
            r#"ratelimit: "existing"; r=3; t=9; acme-note="x""#,
            r#"ratelimit: "outer";r=19;t=57"#,
            r#"ratelimit-policy: "existing";q=10;w=30;qu="content-bytes";pk=:c2Rm:"#,
            r#"ratelimit-policy: "outer";q=20;w=60"#,
        ]
    );
}

#[tokio::test]
async fn no_ratelimit_field_is_added_to_a_response_with_retry_after() {
    // Section 6 of draft 11 forbids a window that ends after Retry-After, and the outer limit's window might end later.
    for status in [429, 503] {
        let app = service_with(status, &[("retry-after", "5"), ("ratelimit", r#""existing";r=0;t=5"#)]).layer(limit(
            "outer",
            20,
            HeaderFamily::Draft11,
        ));
        assert_eq!(
            lines(&take(&app, 1).await),
            [r#"ratelimit: "existing";r=0;t=5"#, r#"ratelimit-policy: "outer";q=20;w=60"#, "retry-after: 5"]
        );
    }
}

#[tokio::test]
async fn single_valued_fields_of_the_inner_layer_are_kept() {
    let x = HeaderFamily::XRateLimit(ResetUnit::Seconds);
    for (family, prefix) in [(HeaderFamily::Draft6, ""), (x, "x-")] {
        let app = app(limit("inner", 10, family)).layer(limit("outer", 5, family));
        for left in [9, 8] {
            let answer = take(&app, 1).await;
            for (field, value) in [("limit", 10), ("remaining", left)] {
                let values: Vec<_> = answer
                    .headers
                    .get_all(format!("{prefix}ratelimit-{field}"))
                    .iter()
                    .map(|value| value.to_str().unwrap())
                    .collect();
                assert_eq!(values, [&*value.to_string()], "{family:?}");
            }
        }
    }
    let existing = &[("ratelimit-limit", "100, 100;w=10"), ("ratelimit-remaining", "50"), ("ratelimit-reset", "50")];
    let app = service_with(200, existing).layer(limit("outer", 5, HeaderFamily::Draft6));
    assert_eq!(
        lines(&take(&app, 1).await),
        ["ratelimit-limit: 100, 100;w=10", "ratelimit-remaining: 50", "ratelimit-reset: 50"]
    );
}

#[tokio::test]
async fn draft_6_and_draft_11_fields_are_never_mixed() {
    // `RateLimit-Policy` has integers in draft 6 and strings in draft 11. A list that mixes them is valid in neither
    // draft.
    let (six, eleven) = (HeaderFamily::Draft6, HeaderFamily::Draft11);
    let mixed = app(limit("inner", 10, six)).layer(limit("outer", 5, eleven));
    assert_eq!(
        lines(&take(&mixed, 1).await),
        ["ratelimit-limit: 10", "ratelimit-policy: 10;w=60", "ratelimit-remaining: 9", "ratelimit-reset: 6"]
    );
    let mixed = app(limit("inner", 10, eleven)).layer(limit("outer", 5, six));
    assert_eq!(
        lines(&take(&mixed, 1).await),
        [r#"ratelimit: "inner";r=9;t=54"#, r#"ratelimit-policy: "inner";q=10;w=60"#]
    );
    // The outer layer still limits requests, and its own refusals carry its headers.
    for _ in 0..4 {
        take(&mixed, 1).await;
    }
    let refused = take(&mixed, 1).await;
    assert_eq!((refused.status, &refused.headers["ratelimit-limit"]), (429, &5.into()));
}

#[tokio::test]
async fn a_layer_without_headers_keeps_existing_fields() {
    let app = app(limit("inner", 10, HeaderFamily::Draft11)).layer(limit("outer", 1, HeaderFamily::None));
    assert_eq!(
        lines(&take(&app, 1).await),
        [r#"ratelimit: "inner";r=9;t=54"#, r#"ratelimit-policy: "inner";q=10;w=60"#]
    );
    assert_eq!(lines(&take(&app, 1).await), ["retry-after: 60"]);
}
