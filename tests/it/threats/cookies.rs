//! Threat 33: a client that evades its limit by spelling its cookie in many ways. These tests read the cookie with
//! `CookieJar`, as applications do.

use axum::http::StatusCode;
use axum::routing::get;
use axum::{Router, body::Body, http::Request};
use axum_extra::extract::cookie::CookieJar;
use proptest::prelude::*;
use tollgate::{
    RateLimitLayer, RateLimiter,
    key::{self, KeyExtractor},
};
use tower::ServiceExt;

use super::client::{ONE, limiter, parts};

/// Creates a service that accepts the session `abcdefghijkl` and allows each session one request per minute.
fn app(limiter: &RateLimiter) -> Router {
    let me = |jar: CookieJar| async move {
        // Accept quoted values, as services that share cookies with other programs do.
        let session = jar.get("session").map(|cookie| cookie.value_trimmed().to_owned());
        if session.as_deref() == Some("abcdefghijkl") { StatusCode::OK } else { StatusCode::UNAUTHORIZED }
    };
    let per_session = RateLimitLayer::new(ONE, key::cookie("session")).limiter(limiter);
    Router::new().route("/", get(me)).layer(per_session)
}

async fn status(app: &Router, cookie: &str) -> u16 {
    let request = Request::get("/").header("cookie", cookie).body(Body::empty()).unwrap();
    app.clone().oneshot(request).await.unwrap().status().as_u16()
}

/// Percent-encodes byte `i` of `text` if bit `i` of `bits` is set.
fn escaped(text: &str, bits: usize) -> String {
    let spell = |(i, byte): (usize, u8)| match bits >> i & 1 {
        0 => char::from(byte).to_string(),
        _ => format!("%{byte:02x}"),
    };
    text.bytes().enumerate().map(spell).collect()
}

#[tokio::test]
async fn percent_encoded_spellings_of_a_cookie_share_a_bucket() {
    let (limiter, backend, _clock) = limiter();
    let app = app(&limiter);
    let mut admitted = 0;
    for bits in 0..4096 {
        match status(&app, &format!("session={}", escaped("abcdefghijkl", bits))).await {
            200 => admitted += 1,
            other => assert_eq!(other, 429, "every spelling must be accepted or limited"),
        }
    }
    assert_eq!((admitted, backend.len()), (1, 1));
}

#[tokio::test]
async fn quoted_values_and_encoded_names_of_a_cookie_share_a_bucket() {
    let (limiter, backend, _clock) = limiter();
    let app = app(&limiter);
    let cookies = [
        "session=abcdefghijkl",
        "session=\"abcdefghijkl\"",
        "session=%22abcdefghijkl%22",
        "session = \"%61bcdefghijkl\" ",
        "%73ession=abcdefghijkl",
        "theme=dark; s%65ssion=abcdefghijkl; session=%61bcdefghijkl",
    ];
    let mut statuses = Vec::new();
    for cookie in cookies {
        statuses.push(status(&app, cookie).await);
    }
    assert_eq!((statuses, backend.len()), (vec![200, 429, 429, 429, 429, 429], 1));
}

#[tokio::test]
async fn requests_with_conflicting_or_empty_cookies_are_anonymous() {
    let by_session = key::cookie("session");
    for (line, value) in [
        ("session=a; session=%61", Some("a")),
        ("session=a; session=b", None),
        ("session=a; %73ession=b", None),
        ("session=\"\"", None),
    ] {
        let caller = by_session.subject(&parts("192.0.2.1", &[("cookie", line)])).await.unwrap().unwrap();
        assert_eq!(caller.key(), value.map(|value| key::cookie("session").key(value)).as_ref(), "{line}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Cookies that have the same `value` or the same `value_trimmed` have the same key.
    #[test]
    fn cookies_that_are_equal_in_a_cookie_jar_have_the_same_key(
        one in r#"([ab" ]|%6[12]|%2[25]|%){0,6}"#,
        other in r#"([ab" ]|%6[12]|%2[25]|%){0,6}"#,
    ) {
        let by_session = key::cookie("session");
        let read = |value: &str| {
            let parts = parts("192.0.2.1", &[("cookie", format!("session={value}"))]);
            let jar = CookieJar::from_headers(&parts.headers);
            let session = jar.get("session").map(|cookie| (cookie.value().to_owned(), cookie.value_trimmed().to_owned()));
            let key::Extraction::Now(key::Found::Subject(caller)) = by_session.extract(&parts) else { panic!() };
            (session, caller.key().cloned())
        };
        // The jar omits cookies whose decoded value is not UTF-8.
        let (Some((value, trimmed)), key) = read(&one) else { return Ok(()) };
        let (Some((other_value, other_trimmed)), other_key) = read(&other) else { return Ok(()) };
        if value == other_value || trimmed == other_trimmed {
            prop_assert_eq!(key, other_key);
        }
    }
}
