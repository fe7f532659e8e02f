//! The layer adds missing headers to responses from `on_refusal`.

use axum::body::Bytes;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, LOCATION, RETRY_AFTER};
use axum::http::{Response, StatusCode};
use tollgate::{HeaderFamily, MINUTE, Quota, RateLimitLayer, Refusal, middleware::ResetUnit};

use super::app::{app, layer, lines, take};

/// Returns the response that `on_refusal` creates for the second request within a minute.
async fn refused(
    change: impl Fn(RateLimitLayer) -> RateLimitLayer,
    refuse: impl Fn(&Refusal<'_>) -> Response<Bytes> + Send + Sync + 'static,
) -> crate::support::answer::Answer {
    let (layer, _clock) = layer("one", Quota::token_bucket(1, MINUTE));
    let app = app(change(layer).on_refusal(refuse));
    assert_eq!(take(&app, 1).await.status, 200);
    take(&app, 1).await
}

fn teapot(_: &Refusal<'_>) -> Response<Bytes> {
    Response::builder().status(418).body(Bytes::from_static(b"short and stout")).unwrap()
}

#[tokio::test]
async fn custom_responses_of_any_status_get_the_headers() {
    for (family, expected) in [
        (
            HeaderFamily::Draft11,
            &[r#"ratelimit: "one";r=0;t=60"#, r#"ratelimit-policy: "one";q=1;w=60"#, "retry-after: 60"][..],
        ),
        (
            HeaderFamily::XRateLimit(ResetUnit::Seconds),
            &["retry-after: 60", "x-ratelimit-limit: 1", "x-ratelimit-remaining: 0", "x-ratelimit-reset: 60"],
        ),
        (HeaderFamily::None, &["retry-after: 60"]),
    ] {
        let answer = refused(|layer| layer.headers(family), teapot).await;
        assert_eq!((answer.status, &answer.body[..]), (418, &b"short and stout"[..]));
        assert_eq!(lines(&answer), expected, "{family:?}");
        assert_eq!(answer.headers[CACHE_CONTROL], "no-store");
        assert!(
            !answer.headers.contains_key(CONTENT_TYPE),
            "the layer must not add a content type to a custom response"
        );
    }
}

#[tokio::test]
async fn headers_set_by_on_refusal_are_kept() {
    let answer = refused(
        |layer| layer,
        |refusal| {
            let mut response = teapot(refusal);
            response.headers_mut().insert(RETRY_AFTER, 3600.into());
            response.headers_mut().insert(CACHE_CONTROL, "max-age=5".parse().unwrap());
            response.headers_mut().insert("x-ratelimit-limit", 7.into());
            response
        },
    )
    .await;
    assert_eq!(
        (&answer.headers[RETRY_AFTER], &answer.headers[CACHE_CONTROL]),
        (&3600.into(), &"max-age=5".parse().unwrap())
    );
    assert_eq!(
        (answer.headers.get_all(RETRY_AFTER).iter().count(), answer.headers.get_all(CACHE_CONTROL).iter().count()),
        (1, 1)
    );
    assert_eq!(answer.headers["x-ratelimit-limit"], "7");
    assert_eq!(answer.policies(), [("one".into(), 1, 60)]);
}

#[tokio::test]
async fn the_ratelimit_field_is_omitted_if_its_window_might_end_after_a_custom_retry_after() {
    for (own, field) in [("59", 0), ("60", 1), ("61", 1), ("Wed, 21 Oct 2026 07:28:00 GMT", 0)] {
        let answer = refused(
            |layer| layer,
            move |refusal| {
                let mut response = teapot(refusal);
                response.headers_mut().insert(RETRY_AFTER, own.parse().unwrap());
                response
            },
        )
        .await;
        assert_eq!(answer.headers.get_all("ratelimit").iter().count(), field, "{own}");
        let retry_after: Vec<_> = answer.headers.get_all(RETRY_AFTER).iter().collect();
        assert_eq!(retry_after, [own], "{own}");
    }
}

#[tokio::test]
async fn respond_uses_the_status_and_retry_seconds_of_the_refusal() {
    let answer = refused(
        |layer| layer.retry_jitter(tollgate::SECOND / 2),
        |refusal| refusal.respond("text/plain", format!("{:?}", refusal.retry_after_secs())),
    )
    .await;
    assert_eq!((answer.status, &answer.headers[CONTENT_TYPE]), (429, &"text/plain".parse().unwrap()));
    let retry_after = format!("Some({})", answer.retry_after().unwrap());
    assert_eq!(std::str::from_utf8(&answer.body), Ok(&retry_after[..]));
    let answer = refused(|layer| layer, |refusal| refusal.respond("text/\nplain", "slow down")).await;
    assert!(answer.status == 429 && !answer.headers.contains_key(CONTENT_TYPE));
}

#[tokio::test]
async fn a_refusal_provides_the_request_the_decisions_and_the_message() {
    let answer = refused(
        |layer| layer,
        |refusal| {
            let decision = refusal.decisions().unwrap().violated().next().unwrap();
            let seen = format!(
                "{} {} {} {:?} {:?} {}",
                refusal.request().uri,
                refusal.status().as_u16(),
                decision.policy(),
                refusal.retry_after(),
                refusal.error().is_some(),
                refusal.message(),
            );
            assert!(format!("{refusal:?}").starts_with("Refusal { cause: Denied("), "{refusal:?}");
            let default = refusal.default_response();
            assert_eq!(default.status(), StatusCode::TOO_MANY_REQUESTS);
            assert_eq!(default.headers()[CONTENT_TYPE], "application/problem+json");
            Response::builder().status(302).header(LOCATION, "/slow-down").body(Bytes::from(seen)).unwrap()
        },
    )
    .await;
    let text = r#"/ 429 one Some(60s) false rate limit exceeded: "one"; retry after 60s"#;
    assert_eq!((answer.status, std::str::from_utf8(&answer.body)), (302, Ok(text)));
    assert_eq!((&answer.headers[LOCATION], answer.retry_after()), (&"/slow-down".parse().unwrap(), Some(60)));
}

#[tokio::test]
async fn the_default_response_can_be_modified() {
    let answer = refused(
        |layer| layer,
        |refusal| {
            let mut response = refusal.default_response();
            response.headers_mut().insert("x-support", "help@example.com".parse().unwrap());
            response
        },
    )
    .await;
    assert_eq!((answer.status, answer.violated_policies(), answer.retry_after()), (429, vec!["one".into()], Some(60)));
    assert_eq!(lines(&answer).len(), 3);
}

#[tokio::test]
async fn retry_jitter_never_shortens_the_wait() {
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..200 {
        let answer = refused(|layer| layer.retry_jitter(10 * tollgate::SECOND), teapot).await;
        let retry = answer.retry_after().unwrap();
        assert!((60..=70).contains(&retry), "{retry}");
        assert!(answer.limits()[0].2.unwrap() <= retry, "expected `t` to be at most `Retry-After`");
        seen.insert(retry);
    }
    // Missing five of eleven values in 200 random draws is practically impossible.
    assert!(seen.len() > 6, "{seen:?}");
}
