//! Checks, to the microsecond, which requests one or more limits allow.

use std::time::Duration;

use axum::http::request::Parts;
use tollgate::{HOUR, MINUTE, Policy, Quota, RateLimitLayer, SECOND, key};

use super::callers::user;
use crate::support::client::{hello, limiter, serve};

const TEN: Policy = Policy::new("ten", Quota::token_bucket(10, MINUTE));

#[tokio::test]
async fn the_eleventh_request_is_allowed_after_exactly_six_seconds() {
    let (limiter, clock) = limiter();
    let client = serve(hello().layer(RateLimitLayer::new(TEN, key::client_ip()).limiter(&limiter))).await;
    for _ in 0..10 {
        let answer = client.get().await;
        assert_eq!((answer.status, answer.retry_after()), (200, None));
        assert_eq!(answer.body, b"hello");
    }
    let refused = client.get().await;
    assert_eq!((refused.status, refused.retry_after()), (429, Some(6)));

    let micro = Duration::from_micros(1);
    for (pause, retry_after) in [(micro, 6), (SECOND, 5), (5 * SECOND - 2 * micro, 1)] {
        clock.advance(pause);
        let refused = client.get().await;
        assert_eq!((refused.status, refused.retry_after()), (429, Some(retry_after)));
    }
    clock.advance(micro);
    assert_eq!(client.get().await.status, 200);
    assert_eq!(client.get().await.status, 429);
}

#[tokio::test]
async fn requests_with_any_method_are_counted() {
    let (limiter, _clock) = limiter();
    let client = serve(hello().layer(RateLimitLayer::new(TEN, key::client_ip()).limiter(&limiter))).await;
    for (method, remaining) in
        ["GET", "HEAD", "OPTIONS", "POST", "PUT", "DELETE", "TRACE", "BREW"].iter().zip((0..10).rev())
    {
        let answer = client.send(method, &[]).await;
        assert_eq!((*method, answer.status, answer.limits()[0].1), (*method, 200, remaining));
    }
    client.send("POST", &["x-http-method-override: OPTIONS"]).await;
    client.send("OPTIONS", &["origin: https://example.com", "access-control-request-method: GET"]).await;
    for method in ["GET", "HEAD", "OPTIONS", "BREW"] {
        assert_eq!(client.send(method, &[]).await.status, 429, "{method}");
    }
}

#[tokio::test]
async fn a_request_denied_by_one_policy_is_not_charged_under_the_others() {
    const USER: Policy = Policy::new("user", Quota::token_bucket(10, HOUR));
    const ALL: Policy = Policy::new("all", Quota::token_bucket(1, SECOND).capacity(2));

    let user_first = RateLimitLayer::new(USER, user).and(ALL, key::global());
    let user_last = RateLimitLayer::new(ALL, key::global()).and(USER, user);
    for (layer, index) in [(user_first, 0), (user_last, 1)] {
        let (limiter, clock) = limiter();
        let client = serve(hello().layer(layer.limiter(&limiter))).await;
        assert_eq!(client.get_as("ada").await.status, 200);
        assert_eq!(client.get_as("ada").await.limits()[index], ("user".into(), 8, Some(8 * 360)));
        for _ in 0..5 {
            let refused = client.get_as("ada").await;
            assert_eq!((refused.status, refused.violated_policies()), (429, vec!["all".into()]));
        }
        assert_eq!(limiter.remaining(&USER, "ada").await.unwrap(), 8);
        clock.advance(SECOND);
        let answer = client.get_as("ada").await;
        assert_eq!((answer.status, &answer.limits()[index].0[..], answer.limits()[index].1), (200, "user", 7));
        assert_eq!(limiter.remaining(&USER, "ada").await.unwrap(), 7);
    }
}

#[tokio::test]
async fn denied_requests_from_one_user_do_not_count_against_the_global_limit() {
    const USER: Policy = Policy::new("user", Quota::token_bucket(1, MINUTE));
    const ALL: Policy = Policy::new("all", Quota::fixed_window(10, HOUR));

    let user_first = RateLimitLayer::new(USER, user).and(ALL, key::global());
    let user_last = RateLimitLayer::new(ALL, key::global()).and(USER, user);
    for (layer, index) in [(user_first, 1), (user_last, 0)] {
        let (limiter, _clock) = limiter();
        let client = serve(hello().layer(layer.limiter(&limiter))).await;
        client.get_as("ada").await;
        for _ in 0..20 {
            let refused = client.get_as("ada").await;
            assert_eq!((refused.status, refused.violated_policies()), (429, vec!["user".into()]));
        }
        let answer = client.get_as("bob").await;
        assert_eq!((answer.status, &answer.limits()[index].0[..], answer.limits()[index].1), (200, "all", 8));
    }
}

#[tokio::test]
async fn retry_after_is_the_longest_wait_among_the_exceeded_limits() {
    let (limiter, clock) = limiter();
    let short = Policy::new("short", Quota::token_bucket(1, 10 * SECOND));
    let long = Policy::new("long", Quota::token_bucket(1, 30 * SECOND));
    let wide = Policy::new("wide", Quota::token_bucket(100, HOUR));
    let layer = RateLimitLayer::new(short, key::global()).and(long, key::global()).and(wide, key::global());
    let client = serve(hello().layer(layer.limiter(&limiter))).await;
    assert_eq!(client.get().await.status, 200);

    let refused = client.get().await;
    assert_eq!((refused.status, refused.retry_after()), (429, Some(30)));
    assert_eq!(refused.violated_policies(), ["short", "long"]);
    // `RateLimit` omits the other policies, because their windows could end after Retry-After (draft-11, section 6).
    assert_eq!(refused.limits(), [("short".into(), 0, Some(10)), ("long".into(), 0, Some(30))]);
    let names: Vec<_> = refused.policies().into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names, ["short", "long", "wide"]);

    clock.advance(10 * SECOND);
    let refused = client.get().await;
    assert_eq!((refused.status, refused.retry_after()), (429, Some(20)));
    assert_eq!(refused.violated_policies(), ["long"]);
    clock.advance(20 * SECOND);
    assert_eq!(client.get().await.status, 200);
}

#[tokio::test]
async fn a_cost_above_the_capacity_is_denied_without_retry_after() {
    let (limiter, _clock) = limiter();
    let cost = |req: &Parts| req.headers.get("x-cost").map_or(1, |cost| cost.to_str().unwrap().parse().unwrap());
    let client = serve(hello().layer(RateLimitLayer::new(TEN, key::client_ip()).cost(cost).limiter(&limiter))).await;

    let answer = client.send("GET", &["x-cost: 7"]).await;
    assert_eq!((answer.status, answer.limits()), (200, vec![("ten".into(), 3, Some(18))]));
    let refused = client.send("GET", &["x-cost: 5"]).await;
    assert_eq!((refused.status, refused.retry_after()), (429, Some(12)));

    let never = client.send("GET", &["x-cost: 11"]).await;
    assert_eq!((never.status, never.retry_after()), (429, None));
    assert_eq!(never.limits(), [("ten".into(), 3, None)]);
    assert_eq!(never.violated_policies(), ["ten"]);
    // Regression: the body had no detail.
    let detail = "rate limit exceeded: \"ten\" cannot grant 11 tokens at once (10 at most); retrying will not help";
    assert_eq!((&never.problem()["detail"], refused.problem().get("detail")), (&detail.into(), None));
    assert_eq!(client.get().await.limits()[0].1, 2);
}
