//! The exact headers of draft-ietf-httpapi-ratelimit-headers-11.

use std::time::Duration;

use tollgate::{DAY, HOUR, MINUTE, Policy, Quota, RateLimitLayer, SECOND, key};

use super::app::{app, cost, layer, limiter, lines, take};

#[tokio::test]
async fn the_first_example_of_the_draft_is_reproduced() {
    // `RateLimit: "default";r=50;t=30` under `"default";q=100;w=60`: 50 tokens are refilled in 30 s.
    let (layer, _clock) = layer("default", Quota::token_bucket(100, MINUTE));
    let answer = take(&app(layer), 50).await;
    assert_eq!(answer.status, 200);
    assert_eq!(lines(&answer), [r#"ratelimit: "default";r=50;t=30"#, r#"ratelimit-policy: "default";q=100;w=60"#]);
}

#[tokio::test]
async fn the_two_policy_example_of_the_draft_is_reproduced() {
    // The draft has `RateLimit-Policy: "burst";q=100;w=60, "daily";q=1000;w=86400`. Here, each policy has its own line.
    let (limiter, clock) = limiter();
    let layer = RateLimitLayer::new(Policy::new("burst", Quota::token_bucket(100, MINUTE)), key::global())
        .and(Policy::new("daily", Quota::fixed_window(1000, DAY).start(Duration::ZERO)), key::global())
        .cost(cost)
        .limiter(&limiter);
    let app = app(layer);
    clock.advance(14 * HOUR);
    assert_eq!(
        lines(&take(&app, 40).await),
        [
            r#"ratelimit: "burst";r=60;t=36"#,
            r#"ratelimit: "daily";r=960;t=36000"#,
            r#"ratelimit-policy: "burst";q=100;w=60"#,
            r#"ratelimit-policy: "daily";q=1000;w=86400"#,
        ]
    );
    // A denial has both policies in `RateLimit-Policy`, but only the exceeded limits in `RateLimit`.
    let refused = take(&app, 70).await;
    assert_eq!(
        lines(&refused),
        [
            r#"ratelimit: "burst";r=60;t=6"#,
            r#"ratelimit-policy: "burst";q=100;w=60"#,
            r#"ratelimit-policy: "daily";q=1000;w=86400"#,
            "retry-after: 6",
        ]
    );
    assert_eq!((refused.status, refused.violated_policies()), (429, vec!["burst".into()]));
    // Spend most of the daily limit. The next request must then wait until the end of the day.
    for _ in 0..9 {
        clock.advance(MINUTE);
        assert_eq!(take(&app, 100).await.status, 200);
    }
    clock.advance(MINUTE);
    assert_eq!(
        lines(&take(&app, 100).await),
        [
            r#"ratelimit: "daily";r=60;t=35400"#,
            r#"ratelimit-policy: "burst";q=100;w=60"#,
            r#"ratelimit-policy: "daily";q=1000;w=86400"#,
            "retry-after: 35400",
        ]
    );
}

#[tokio::test]
async fn the_window_never_allows_a_faster_pace_than_the_quota() {
    // Section 8.5 of the draft advises against sending r=10000;t=10 for q=10000;w=1000.
    let (layer, _clock) = layer("wide", Quota::token_bucket(10_000, 1000 * SECOND));
    let app = app(layer);
    assert_eq!(lines(&take(&app, 0).await)[0], r#"ratelimit: "wide";r=10000;t=1000"#);
    assert_eq!(lines(&take(&app, 1).await)[0], r#"ratelimit: "wide";r=9999;t=1000"#);
    assert_eq!(lines(&take(&app, 9_900).await)[0], r#"ratelimit: "wide";r=99;t=10"#);
    assert_eq!(lines(&take(&app, 99).await)[0], r#"ratelimit: "wide";r=0;t=1"#);
}

#[tokio::test]
async fn the_window_depends_on_the_algorithm() {
    for (quota, policy, after_one, after_all, denied) in [
        // For a bucket, `t` is the time in which `r` tokens are refilled, or one token if `r` is 0.
        (Quota::token_bucket(10, MINUTE).capacity(20), "q=20;w=120", "r=19;t=114", "r=0;t=6", "r=0;t=6"),
        // For a fixed window, `t` is always the time until the window ends.
        (Quota::fixed_window(10, MINUTE).start(Duration::ZERO), "q=10;w=60", "r=9;t=45", "r=0;t=45", "r=0;t=45"),
    ] {
        let (layer, clock) = layer("p", quota);
        let app = app(layer);
        clock.advance(15 * SECOND);
        let first = lines(&take(&app, 1).await);
        assert_eq!(first, [format!("ratelimit: \"p\";{after_one}"), format!("ratelimit-policy: \"p\";{policy}")]);
        let all = quota.get_capacity() - 1;
        assert_eq!(lines(&take(&app, all).await)[0], format!("ratelimit: \"p\";{after_all}"));
        let refused = take(&app, 1).await;
        assert_eq!(lines(&refused)[0], format!("ratelimit: \"p\";{denied}"));
        assert_eq!(refused.limits()[0].2, refused.retry_after());
    }
}

#[tokio::test]
async fn a_denial_under_a_sliding_window_has_the_exact_retry_time() {
    let (layer, clock) = layer("s", Quota::sliding_window(10, MINUTE));
    let app = app(layer);
    let all = take(&app, 10).await;
    assert_eq!((all.status, all.policies(), all.limits()[0].1), (200, vec![("s".into(), 10, 60)], 0));
    let refused = take(&app, 1).await;
    let retry = refused.retry_after().unwrap();
    assert_eq!((refused.limits(), refused.status), (vec![("s".into(), 0, Some(retry))], 429));
    clock.advance((retry as u32 - 1) * SECOND);
    assert_eq!(take(&app, 1).await.status, 429, "one second before `t`");
    clock.advance(SECOND);
    assert_eq!(take(&app, 1).await.status, 200);
}

#[tokio::test]
async fn times_are_rounded_up_and_remaining_tokens_down() {
    // The window of 1.5 s is rounded up to 2 s. One token is refilled in 0.21 s.
    let (layer, clock) = layer("odd", Quota::token_bucket(7, SECOND + SECOND / 2));
    let app = app(layer);
    let answer = take(&app, 7).await;
    assert_eq!(lines(&answer), [r#"ratelimit: "odd";r=0;t=1"#, r#"ratelimit-policy: "odd";q=7;w=2"#]);
    assert_eq!(lines(&take(&app, 6).await)[2], "retry-after: 2", "1.29 s is rounded up");
    clock.advance(SECOND);
    assert_eq!(lines(&take(&app, 0).await)[0], r#"ratelimit: "odd";r=4;t=1"#, "4.67 tokens are rounded down");
}

#[tokio::test]
async fn a_cost_above_the_capacity_has_no_retry_time() {
    let (layer, _clock) = layer("small", Quota::token_bucket(10, MINUTE));
    let app = app(layer);
    take(&app, 4).await;
    let refused = take(&app, 11).await;
    assert_eq!(refused.status, 429);
    assert_eq!(lines(&refused), [r#"ratelimit: "small";r=6"#, r#"ratelimit-policy: "small";q=10;w=60"#]);
    assert_eq!(refused.headers["cache-control"], "no-store");
}

#[tokio::test]
async fn headers_for_a_tier_have_its_quota_and_the_name_of_the_policy() {
    let api =
        Policy::new("api", Quota::token_bucket(30, MINUTE)).tier("pro", Quota::token_bucket(600, HOUR).capacity(50));
    let by_tier = |req: &axum::http::request::Parts| match cost(req) {
        1 => tollgate::Subject::new(1),
        _ => tollgate::Subject::new(2).tier("pro"),
    };
    let app = app(RateLimitLayer::new(api, by_tier).cost(cost).limiter(&limiter().0));
    assert_eq!(lines(&take(&app, 1).await), [r#"ratelimit: "api";r=29;t=58"#, r#"ratelimit-policy: "api";q=30;w=60"#]);
    assert_eq!(
        lines(&take(&app, 2).await),
        [r#"ratelimit: "api";r=48;t=288"#, r#"ratelimit-policy: "api";q=50;w=300"#]
    );
}

#[tokio::test]
async fn the_largest_quota_fits_in_a_structured_field_integer() {
    // An integer in a structured field has at most fifteen digits.
    let quota = Quota::token_bucket(Quota::MAX_TOKENS, Quota::MAX_PERIOD);
    let (layer, _clock) = layer(&"n".repeat(128), quota);
    let answer = take(&app(layer), 1).await;
    let (policies, limits) = (answer.policies(), answer.limits());
    assert_eq!((policies[0].1, limits[0].1), (999_999_999_999_999, 999_999_999_999_998));
    assert!(policies[0].2 <= 999_999_999_999_999 && limits[0].2.unwrap() <= 999_999_999_999_999);
}
