//! The exact headers of the older families, which describe one policy in separate fields.

use std::time::Duration;

use tollgate::{DAY, HOUR, HeaderFamily, MINUTE, Policy, Quota, RateLimitLayer, key, middleware::ResetUnit};

use super::app::{app, cost, layer, limiter, lines, take};

/// The initial time of the clock: 2026-01-01T00:00:00Z.
const NOW: u64 = 1_767_225_600;

#[tokio::test]
async fn each_family_sends_the_same_headers_as_express_rate_limit() {
    // The values are from the tests of express-rate-limit, for the first request under a limit of five per minute.
    for (family, expected) in [
        (
            HeaderFamily::Draft6,
            vec![
                "ratelimit-limit: 5".into(),
                "ratelimit-policy: 5;w=60".into(),
                "ratelimit-remaining: 4".into(),
                "ratelimit-reset: 60".into(),
            ],
        ),
        (
            HeaderFamily::XRateLimit(ResetUnit::Epoch),
            vec![
                "x-ratelimit-limit: 5".into(),
                "x-ratelimit-remaining: 4".into(),
                format!("x-ratelimit-reset: {}", NOW + 60),
            ],
        ),
        (
            HeaderFamily::XRateLimit(ResetUnit::Seconds),
            vec!["x-ratelimit-limit: 5".into(), "x-ratelimit-remaining: 4".into(), "x-ratelimit-reset: 60".into()],
        ),
        (HeaderFamily::None, vec![]),
    ] {
        let (layer, _clock) = layer("5-in-1min", Quota::fixed_window(5, MINUTE).start(Duration::ZERO));
        let answer = take(&app(layer.headers(family)), 1).await;
        assert_eq!(lines(&answer), expected, "{family:?}");
    }
}

#[tokio::test]
async fn denials_have_retry_after_in_each_family() {
    for (family, expected) in [
        (
            HeaderFamily::Draft6,
            vec![
                "ratelimit-limit: 5".into(),
                "ratelimit-policy: 5;w=60".into(),
                "ratelimit-remaining: 0".into(),
                "ratelimit-reset: 12".into(),
                "retry-after: 12".into(),
            ],
        ),
        (
            HeaderFamily::XRateLimit(ResetUnit::Epoch),
            vec![
                "retry-after: 12".into(),
                "x-ratelimit-limit: 5".into(),
                "x-ratelimit-remaining: 0".into(),
                format!("x-ratelimit-reset: {}", NOW + 12),
            ],
        ),
        (
            HeaderFamily::XRateLimit(ResetUnit::Seconds),
            vec![
                "retry-after: 12".into(),
                "x-ratelimit-limit: 5".into(),
                "x-ratelimit-remaining: 0".into(),
                "x-ratelimit-reset: 12".into(),
            ],
        ),
        (HeaderFamily::None, vec!["retry-after: 12".into()]),
    ] {
        let (layer, _clock) = layer("five", Quota::token_bucket(5, MINUTE));
        let app = app(layer.headers(family));
        take(&app, 5).await;
        let refused = take(&app, 1).await;
        assert_eq!((refused.status, lines(&refused)), (429, expected), "{family:?}");
        assert_eq!(refused.violated_policies(), ["five"]);
    }
}

#[tokio::test]
async fn headers_describe_the_tightest_rule_and_on_a_denial_the_longest_wait() {
    let (limiter, _clock) = limiter();
    let layer = RateLimitLayer::new(Policy::new("minute", Quota::token_bucket(10, MINUTE)), key::global())
        .and(Policy::new("hour", Quota::token_bucket(100, HOUR)), key::global())
        .and(Policy::new("day", Quota::fixed_window(12, DAY).start(Duration::ZERO)), key::global())
        .cost(cost)
        .headers(HeaderFamily::Draft6)
        .limiter(&limiter);
    let app = app(layer);
    // `minute` is the tightest policy: it has 8 of 10 tokens left, and `day` has 10 of 12.
    assert_eq!(
        lines(&take(&app, 2).await),
        ["ratelimit-limit: 10", "ratelimit-policy: 10;w=60", "ratelimit-remaining: 8", "ratelimit-reset: 12"]
    );
    take(&app, 7).await;
    // Now 1 of 10 and 3 of 12 tokens are left. For a bucket, the reset is when the bucket will be full.
    let last = take(&app, 1).await;
    assert_eq!(lines(&last)[2..], ["ratelimit-remaining: 0", "ratelimit-reset: 60"]);
    // Three tokens are available after 18 s under `minute`, but only at the end of the day under `day`.
    let refused = take(&app, 3).await;
    assert_eq!(
        lines(&refused),
        [
            "ratelimit-limit: 12",
            "ratelimit-policy: 12;w=86400",
            "ratelimit-remaining: 2",
            "ratelimit-reset: 86400",
            "retry-after: 86400",
        ]
    );
    assert_eq!(refused.violated_policies(), ["minute", "day"]);
    let refused = take(&app, 1).await;
    assert_eq!(lines(&refused)[3..], ["ratelimit-reset: 6", "retry-after: 6"]);
}

#[tokio::test]
async fn resets_are_rounded_as_in_express_rate_limit() {
    // The remaining milliseconds are rounded up to whole seconds: 59999 -> 60, 1001 -> 2, 1 -> 1.
    for (passed, seconds) in [(1_000, 60), (58_999_000, 2), (59_000_000, 1), (59_999_000, 1), (59_999_999, 1)] {
        for (family, field, expected) in [
            (HeaderFamily::Draft6, "ratelimit-reset", seconds),
            (HeaderFamily::XRateLimit(ResetUnit::Seconds), "x-ratelimit-reset", seconds),
            // The Unix time of the reset is the same throughout the window.
            (HeaderFamily::XRateLimit(ResetUnit::Epoch), "x-ratelimit-reset", NOW + 60),
        ] {
            let (layer, clock) = layer("five", Quota::fixed_window(5, MINUTE).start(Duration::ZERO));
            clock.advance(Duration::from_micros(passed));
            let answer = take(&app(layer.headers(family)), 1).await;
            assert_eq!(answer.headers[field], *expected.to_string(), "{family:?} {passed}");
        }
    }
    for (millis, window) in [(1500, 2), (500, 1), (1000, 1)] {
        let (layer, _clock) = layer("p", Quota::fixed_window(5, Duration::from_millis(millis)));
        let answer = take(&app(layer.headers(HeaderFamily::Draft6)), 1).await;
        assert_eq!(answer.headers["ratelimit-policy"], format!("5;w={window}"));
    }
}

#[tokio::test]
async fn each_response_has_the_fields_of_one_family() {
    let families = [
        (HeaderFamily::Draft11, &["ratelimit", "ratelimit-policy"][..]),
        (HeaderFamily::Draft6, &["ratelimit-limit", "ratelimit-policy", "ratelimit-remaining", "ratelimit-reset"]),
        (
            HeaderFamily::XRateLimit(ResetUnit::Seconds),
            &["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"],
        ),
        (
            HeaderFamily::XRateLimit(ResetUnit::Epoch),
            &["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"],
        ),
        (HeaderFamily::None, &[]),
    ];
    for (family, fields) in families {
        let (layer, _clock) = layer("one", Quota::token_bucket(1, MINUTE));
        let app = app(layer.headers(family));
        for status in [200, 429] {
            let answer = take(&app, 1).await;
            let mut names: Vec<_> =
                answer.headers.keys().map(|name| name.as_str()).filter(|name| name.contains("ratelimit")).collect();
            names.sort_unstable();
            assert_eq!((answer.status, &names[..]), (status, fields), "{family:?}");
            assert_eq!(answer.retry_after(), (status == 429).then_some(60));
        }
    }
}
