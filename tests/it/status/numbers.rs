//! Reported numbers are exact for clients that parse them as doubles.

use std::time::Duration;

use axum::Router;
use tollgate::algorithm::Micros;
use tollgate::{MINUTE, MemoryBackend, Policy, Quota, RateLimiter, SECOND, clock::ManualClock, status};

use super::app::{ReportedLimit, call, limiter, status, text, user};

#[tokio::test]
async fn a_snapshot_has_the_documented_json() {
    let (limiter, clock) = limiter();
    let chat = Policy::new("chat", Quota::token_bucket(10, MINUTE).capacity(20));
    let app = Router::new().route("/rate-limit", status::of(&limiter, &chat, user));
    limiter.acquire(&chat, "ada".to_owned()).cost(4).await.unwrap();
    clock.advance(Duration::from_micros(123_456));
    let answer = call(&app, "GET /rate-limit", &["x-user: ada"]).await;
    assert_eq!(
        text(&answer),
        r#"{"policy":"chat","algorithm":"token_bucket","rate":10,"period":60000000,"capacity":20,"start":0,"max_reserved":0,"spent":4,"previous":0,"ts":1767225600000000,"now":1767225600123456}"#
    );
    assert_eq!(limiter.snapshot(&chat, "ada".to_owned()).await.unwrap().remove(0).to_json(), text(&answer));
}

#[tokio::test]
async fn the_largest_numbers_are_reported_exactly() {
    let max = Quota::MAX_TOKENS;
    for (quota, reserved) in [
        (Quota::token_bucket(max, SECOND), Some(0.0)),
        (Quota::token_bucket(max - 2, SECOND).max_reserved(max), Some(max as f64)),
        (Quota::token_bucket(1, Quota::MAX_PERIOD).unlimited_reservations(), None),
        (Quota::fixed_window(max, Quota::MAX_PERIOD).start(Duration::from_micros(3_155_759_999_999_999)), Some(0.0)),
        (Quota::sliding_window(max, Quota::MAX_PERIOD - Duration::from_micros(1)), Some(0.0)),
    ] {
        let clock = ManualClock::at(Micros::new(Micros::MAX.get() - 12_345));
        let limiter = RateLimiter::new(MemoryBackend::builder().clock(clock).build());
        let policy = Policy::new("p", quota);
        let app = Router::new().route("/rate-limit", status::of(&limiter, &policy, user));
        limiter.acquire(&policy, "ada".to_owned()).cost(quota.get_capacity()).await.unwrap();
        let reported = status(&app, "ada").await;
        let numbers = [reported.rate, reported.period, reported.capacity, reported.spent, reported.now];
        let period = quota.period().as_micros() as f64;
        let now = Micros::MAX.get() - 12_345;
        let expected =
            [quota.rate() as f64, period, quota.get_capacity() as f64, quota.get_capacity() as f64, now as f64];
        assert_eq!((numbers, reported.max_reserved), (expected, reserved));
        let phase = quota.get_start().unwrap_or_default().as_micros() as f64;
        assert_eq!(reported.start, phase);
        let state = *limiter.snapshot(&policy, "ada".to_owned()).await.unwrap().remove(0).state();
        assert_eq!((reported.ts as u64, reported.spent), (state.at.get(), state.spent));
    }
}

#[tokio::test]
async fn a_token_bucket_reports_neither_a_start_nor_a_previous_window() {
    let (limiter, clock) = limiter();
    let bucket = Policy::new("bucket", Quota::token_bucket(10, MINUTE).start(Duration::from_secs(7)));
    let app = Router::new().route("/rate-limit", status::of(&limiter, &bucket, user));
    // In a token bucket's row, the carry is a refund. It must not be reported as the count of a previous window.
    let early = limiter.acquire(&bucket, "ada".to_owned()).cost(5).hold().await.unwrap();
    limiter.acquire(&bucket, "ada".to_owned()).cost(3).await.unwrap();
    clock.advance(SECOND);
    early.cancel().await.unwrap();
    assert!(limiter.snapshot(&bucket, "ada".to_owned()).await.unwrap().remove(0).state().carry > 0.0);
    let reported = status(&app, "ada").await;
    assert_eq!((reported.start, reported.previous), (0.0, 0.0));
}

#[tokio::test]
async fn every_policy_name_is_a_valid_json_string() {
    let (limiter, _clock) = limiter();
    let printable: String = (' '..='~').collect();
    for name in [r#"a "quoted" \ name"#, "it's 100%", "</script>", &printable] {
        let policy = Policy::try_new(name, Quota::token_bucket(1, MINUTE)).unwrap();
        let app: Router = Router::new().route("/rate-limit", status::of(&limiter, &policy, user));
        let answer = call(&app, "GET /rate-limit", &[]).await;
        let value: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(value["policy"], name);
    }
}

#[tokio::test]
async fn windows_report_their_start() {
    let (limiter, clock) = limiter();
    let fixed = Policy::new("fixed", Quota::fixed_window(10, MINUTE));
    let app = Router::new().route("/rate-limit", status::of(&limiter, &fixed, user));
    let mut starts = Vec::new();
    for user in ["ada", "grace", "edsger"] {
        let ReportedLimit { start, now, .. } = status(&app, user).await;
        assert!((0.0..60e6).contains(&start));
        starts.push(start);
        limiter.acquire(&fixed, user.to_owned()).cost(10).await.unwrap();
        let retry = limiter.try_check(&fixed, user.to_owned()).await.unwrap().retry_after().unwrap();
        assert_eq!((now + retry.as_micros() as f64 - start) % 60e6, 0.0);
    }
    assert!(starts[0] != starts[1] && starts[1] != starts[2]);
    let sliding = Policy::new("sliding", Quota::sliding_window(10, MINUTE));
    let app = Router::new().route("/rate-limit", status::of(&limiter, &sliding, user));
    limiter.acquire(&sliding, "ada".to_owned()).cost(6).await.unwrap();
    clock.advance(MINUTE);
    limiter.acquire(&sliding, "ada".to_owned()).cost(2).await.unwrap();
    let reported = status(&app, "ada").await;
    assert_eq!((reported.spent, reported.previous, reported.start), (2.0, 6.0, 0.0));
}
