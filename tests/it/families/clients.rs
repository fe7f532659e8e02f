//! Common clients for each header family, reduced to the few lines that read the headers.

use std::time::Duration;

use axum::http::HeaderMap;
use tollgate::{HeaderFamily, MINUTE, Quota, middleware::ResetUnit};

use super::app::{app, layer, take};

/// The initial time of the clock: 2026-01-01T00:00:00Z.
const NOW: u64 = 1_767_225_600;

fn number(headers: &HeaderMap, name: &str) -> Option<u64> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    // The value must consist of digits only, as clients in Go or Rust require. `parseInt` and `Number` accept more.
    assert!(values.next().is_none() && value.bytes().all(|byte| byte.is_ascii_digit()), "{name}: {value}");
    value.parse().ok()
}

/// Returns how long octokit's plugin-throttling waits. After a 429, it waits for the time in `retry-after`.
/// Otherwise, if no requests remain, it waits until one second after `x-ratelimit-reset`.
fn octokit(headers: &HeaderMap, status: u16, now: u64) -> Option<u64> {
    let primary = number(headers, "x-ratelimit-remaining") == Some(0);
    match number(headers, "retry-after") {
        Some(seconds) if status == 429 => Some(seconds),
        _ if primary => Some(number(headers, "x-ratelimit-reset")?.saturating_sub(now) + 1),
        _ => None,
    }
}

/// Reads the limit, the remaining tokens and the reset, like ratelimit-header-parser. The reset is in seconds from now,
/// unless the number is large enough to be a Unix time.
fn three_fields(headers: &HeaderMap, prefix: &str, now: u64) -> Option<(u64, u64, u64)> {
    let limit = number(headers, &format!("{prefix}ratelimit-limit"))?;
    let remaining = number(headers, &format!("{prefix}ratelimit-remaining"))?;
    let reset = number(headers, &format!("{prefix}ratelimit-reset"))?;
    Some((limit, remaining, if reset > 1_000_000_000 { reset - now } else { reset }))
}

/// Reads `Retry-After` if the status allows a retry, like axios-retry, got, urllib3 and reqwest-retry.
fn retrying(headers: &HeaderMap, status: u16) -> Option<u64> {
    matches!(status, 429 | 503).then(|| number(headers, "retry-after")).flatten()
}

#[tokio::test]
async fn the_retry_time_is_exact_in_every_family() {
    for family in [
        HeaderFamily::Draft11,
        HeaderFamily::Draft6,
        HeaderFamily::XRateLimit(ResetUnit::Seconds),
        HeaderFamily::XRateLimit(ResetUnit::Epoch),
        HeaderFamily::None,
    ] {
        for quota in [Quota::token_bucket(7, MINUTE), Quota::fixed_window(7, MINUTE), Quota::sliding_window(7, MINUTE)]
        {
            let (layer, clock) = layer("seven", quota);
            let app = app(layer.headers(family));
            // Advance the clock by a fractional number of seconds, so that rounding matters.
            clock.advance(Duration::from_micros(10_123_457));
            assert_eq!(take(&app, 7).await.status, 200);
            let refused = take(&app, 1).await;
            let wait = retrying(&refused.headers, refused.status).expect("expected a Retry-After");
            clock.advance(Duration::from_secs(wait - 1));
            assert_eq!(take(&app, 1).await.status, 429, "{family:?} {quota}");
            clock.advance(Duration::from_secs(1));
            assert_eq!(take(&app, 1).await.status, 200, "{family:?} {quota}");
        }
    }
}

#[tokio::test]
async fn a_github_client_waits_until_the_unix_time_in_the_reset_header() {
    let (layer, clock) = layer("core", Quota::fixed_window(3, MINUTE).start(Duration::ZERO));
    let app = app(layer.headers(HeaderFamily::XRateLimit(ResetUnit::Epoch)));
    clock.advance(Duration::from_millis(20_500));
    for left in [2, 1, 0] {
        let answer = take(&app, 1).await;
        assert_eq!(three_fields(&answer.headers, "x-", NOW), Some((3, left, 60)));
        // When no requests are left, the client waits without sending a request that would be refused.
        assert_eq!(octokit(&answer.headers, answer.status, NOW + 20), (left == 0).then_some(41));
    }
    let refused = take(&app, 1).await;
    assert_eq!(octokit(&refused.headers, refused.status, NOW + 20), Some(40));
    clock.advance(Duration::from_secs(40));
    assert_eq!(take(&app, 1).await.status, 200);
}

#[tokio::test]
async fn clients_read_the_same_values_in_each_family_with_three_fields() {
    for (family, prefix) in [
        (HeaderFamily::Draft6, ""),
        (HeaderFamily::XRateLimit(ResetUnit::Seconds), "x-"),
        (HeaderFamily::XRateLimit(ResetUnit::Epoch), "x-"),
    ] {
        let (layer, _clock) = layer("ten", Quota::token_bucket(10, MINUTE));
        let app = app(layer.headers(family));
        for (cost, expected) in [(1, (10, 9, 6)), (4, (10, 5, 30)), (5, (10, 0, 60)), (2, (10, 0, 12))] {
            assert_eq!(three_fields(&take(&app, cost).await.headers, prefix, NOW), Some(expected), "{family:?} {cost}");
        }
    }
}

#[tokio::test]
async fn a_client_for_another_family_finds_no_fields() {
    let (layer, _clock) = layer("ten", Quota::token_bucket(10, MINUTE));
    let answer = take(&app(layer.clone()), 1).await;
    assert_eq!(three_fields(&answer.headers, "", NOW), None);
    assert_eq!(octokit(&answer.headers, answer.status, NOW), None);
    let answer = take(&app(layer.headers(HeaderFamily::Draft6)), 1).await;
    assert_eq!(three_fields(&answer.headers, "x-", NOW), None);
    assert!(answer.limits().is_empty());
}
