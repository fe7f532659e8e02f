//! The rate-limit headers of responses.

use axum::http::header::{CACHE_CONTROL, CONTENT_LENGTH};
use axum::http::request::Parts;
use tollgate::{HOUR, MINUTE, Policy, Quota, RateLimitLayer, key};

use crate::support::client::{hello, limiter, serve};

const TEN: Policy = Policy::new("ten", Quota::token_bucket(10, MINUTE));

#[tokio::test]
async fn each_response_reports_the_remaining_tokens_and_a_window() {
    let (limiter, _clock) = limiter();
    let client = serve(hello().layer(RateLimitLayer::new(TEN, key::client_ip()).limiter(&limiter))).await;
    for left in (0..10).rev() {
        let answer = client.get().await;
        assert_eq!((answer.status, answer.policies()), (200, vec![("ten".into(), 10, 60)]));
        // r / t never exceeds q / w: with 9 tokens left, t is 54 s. With no tokens left, t is the 6 s until the next
        // token is refilled.
        assert_eq!(answer.limits(), [("ten".into(), left, Some(6 * left.max(1)))]);
        assert!(!answer.headers.contains_key(CACHE_CONTROL));
    }
    let refused = client.get().await;
    assert_eq!((refused.status, refused.policies()), (429, vec![("ten".into(), 10, 60)]));
    assert_eq!(refused.limits(), [("ten".into(), 0, refused.retry_after())]);
}

#[tokio::test]
async fn a_denial_is_a_problem_document_that_must_not_be_cached() {
    let (limiter, _clock) = limiter();
    let name = r#"say "ten" \ backslash"#;
    let policy = Policy::try_new(name, Quota::token_bucket(1, MINUTE)).unwrap();
    let client = serve(hello().layer(RateLimitLayer::new(policy, key::client_ip()).limiter(&limiter))).await;
    client.get().await;

    let refused = client.get().await;
    assert_eq!(refused.headers[CACHE_CONTROL], "no-store");
    assert_eq!(refused.headers[CONTENT_LENGTH], refused.body.len().to_string());
    assert_eq!(
        refused.problem(),
        serde_json::json!({
            "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "title": "Too Many Requests",
            "status": 429,
            "violated-policies": [name],
        })
    );
    assert_eq!((&refused.policies()[0].0[..], &refused.limits()[0].0[..]), (name, name));
    assert!(!refused.headers.contains_key("transfer-encoding"));

    let head = client.send("HEAD", &[]).await;
    assert_eq!((head.status, head.retry_after(), head.limits()), (429, Some(60), refused.limits()));
    assert_eq!((head.headers.get(CONTENT_LENGTH), head.body.len()), (refused.headers.get(CONTENT_LENGTH), 0));
}

#[tokio::test]
async fn an_outer_limiter_appends_to_the_headers_of_an_inner_limiter() {
    const INNER: Policy = Policy::new("inner", Quota::token_bucket(1, MINUTE));
    const OUTER: Policy = Policy::new("outer", Quota::token_bucket(60, HOUR));

    let (limiter, _clock) = limiter();
    let inner = RateLimitLayer::new(INNER, key::global()).limiter(&limiter);
    let outer = RateLimitLayer::new(OUTER, |_: &Parts| "all").limiter(&limiter);
    let client = serve(hello().layer(inner).layer(outer)).await;

    let answer = client.get().await;
    assert_eq!(answer.policies(), [("inner".into(), 1, 60), ("outer".into(), 60, 3600)]);
    assert_eq!(answer.limits(), [("inner".into(), 0, Some(60)), ("outer".into(), 59, Some(59 * 60))]);

    // The inner layer refuses the request, and its Retry-After is kept. The outer layer has already charged the
    // request.
    let refused = client.get().await;
    assert_eq!((refused.status, refused.retry_after()), (429, Some(60)));
    assert_eq!(refused.policies(), answer.policies());
    assert_eq!(refused.violated_policies(), ["inner"]);
    assert_eq!(limiter.remaining(&OUTER, "all").await.unwrap(), 58);
}

#[tokio::test]
async fn a_denial_has_retry_after_even_without_rate_limit_headers() {
    let (limiter, _clock) = limiter();
    let policy = Policy::new("quiet", Quota::token_bucket(1, MINUTE));
    let client =
        serve(hello().layer(
            RateLimitLayer::new(policy, key::client_ip()).headers(tollgate::HeaderFamily::None).limiter(&limiter),
        ))
        .await;
    for (status, retry) in [(200, None), (429, Some(60))] {
        let answer = client.get().await;
        assert_eq!((answer.status, answer.retry_after()), (status, retry));
        assert!(!answer.headers.contains_key("ratelimit") && !answer.headers.contains_key("ratelimit-policy"));
    }
}
