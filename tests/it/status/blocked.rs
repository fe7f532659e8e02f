//! The status of blocked callers and of callers on the deny list.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::connect_info::MockConnectInfo;
use axum::extract::{ConnectInfo, Request};
use axum::routing::post;
use tollgate::algorithm::{Ask, Micros, Verdict};
use tollgate::{
    HOUR, MINUTE, MemoryBackend, Policy, Quota, RateLimitLayer, RateLimiter, RouteLimits, SECOND,
    clock::ManualClock,
    key,
    protection::{AutoBlock, DenyList, DenyRule, Signal},
    status,
};

use super::app::{ReportedLimit, call, limiter, limits, send, status, text, user};

static API: Policy = Policy::new("api", Quota::token_bucket(10, MINUTE));
static SLIDING: Policy = Policy::new("sliding", Quota::sliding_window(10, MINUTE));
static FIXED: Policy = Policy::new("fixed", Quota::fixed_window(10, MINUTE));

#[tokio::test]
async fn a_block_is_reported_until_its_last_microsecond() {
    for policy in [&API, &SLIDING, &FIXED] {
        let (limiter, clock) = limiter();
        let app = Router::new().route("/rate-limit", status::of(&limiter, policy, user));
        limiter.block(Signal::key("ada".to_owned()), Duration::from_micros(90_000_001)).await.unwrap();
        let reported = status(&app, "ada").await;
        assert_eq!(reported.not_before, Some(reported.now + 90_000_001.0));
        assert_eq!(reported.spent, reported.capacity, "a blocked caller must have no tokens left");
        assert_eq!(status(&app, "grace").await.not_before, None);
        clock.advance(Duration::from_micros(90_000_000));
        assert_eq!(status(&app, "ada").await.not_before, Some(reported.now + 90_000_001.0));
        clock.advance(Duration::from_micros(1));
        let free = status(&app, "ada").await;
        assert_eq!((free.not_before, free.spent), (None, 0.0));
    }
}

#[tokio::test]
async fn a_caller_on_the_deny_list_sees_neither_an_end_time_nor_a_reason() {
    let list = DenyList::from_iter([
        DenyRule::key("mallory"),
        DenyRule::network("192.0.2.0/24").unwrap(),
        DenyRule::country("KP").unwrap(),
    ]);
    let clock = ManualClock::new();
    let backend = MemoryBackend::builder().clock(clock).build();
    let limiter = RateLimiter::builder(backend).deny_list(&list).build();
    let layer = RateLimitLayer::new(&API, user)
        .limiter(&limiter)
        .client_ip(key::client_ip())
        .label_from_header("country", "cf-ipcountry");
    let elsewhere = MockConnectInfo(SocketAddr::from(([198, 51, 100, 1], 1000)));
    let app: Router = Router::new().route("/rate-limit", status::of_layer(&layer)).layer(elsewhere);
    let forever = Some(9_007_199_254_740_991.0);
    for headers in [vec!["x-user: mallory"], vec!["x-user: ada", "cf-ipcountry: KP"]] {
        let answer = call(&app, "GET /rate-limit", &headers).await;
        assert_eq!((answer.status, ReportedLimit::read(&text(&answer)).not_before), (200, forever));
        assert!(!text(&answer).contains("deny") && !text(&answer).contains("KP"));
    }
    let mut from_denied_network = Request::get("/rate-limit").header("x-user", "ada").body(Body::empty()).unwrap();
    from_denied_network.extensions_mut().insert(ConnectInfo(SocketAddr::from(([192, 0, 2, 7], 1000))));
    assert_eq!(ReportedLimit::read(&text(&send(&app, from_denied_network).await)).not_before, forever);
    assert_eq!(status(&app, "ada").await.not_before, None);
    assert!(list.remove(&DenyRule::key("mallory")));
    assert_eq!(status(&app, "mallory").await.not_before, None);
}

#[tokio::test]
async fn reading_the_status_does_not_extend_a_block() {
    let clock = ManualClock::new();
    let backend = MemoryBackend::builder().clock(clock.clone()).build();
    let rules = AutoBlock::new([&API]).threshold(3).within(MINUTE).block_for(HOUR);
    let limiter = RateLimiter::builder(backend).auto_block(rules).build();
    let layer = RateLimitLayer::new(&API, user).limiter(&limiter);
    let app = Router::new()
        .route("/chat", post(|| async {}).layer(layer.clone()))
        .route("/rate-limit", status::of_layer(&layer));
    for _ in 0..12 {
        call(&app, "POST /chat", &["x-user: ada"]).await;
    }
    for _ in 0..100 {
        assert_eq!(status(&app, "ada").await.not_before, None);
    }
    call(&app, "POST /chat", &["x-user: ada"]).await;
    let reported = status(&app, "ada").await;
    assert_eq!(reported.not_before, Some(reported.now + 3600e6));
    for _ in 0..100 {
        assert_eq!(status(&app, "ada").await.not_before, reported.not_before);
    }
    clock.advance(HOUR);
    assert_eq!(status(&app, "ada").await.not_before, None);
    assert_eq!(call(&app, "POST /chat", &["x-user: ada"]).await.status, 200);
}

#[tokio::test]
async fn a_block_is_reported_only_for_the_policy_whose_denials_caused_it() {
    let clock = ManualClock::new();
    let backend = MemoryBackend::builder().clock(clock).build();
    let rules = AutoBlock::new([&API]).threshold(1).within(MINUTE).block_for(HOUR);
    let limiter = RateLimiter::builder(backend).auto_block(rules).build();
    let limits_by_route = RouteLimits::new(user).limiter(&limiter).policy(&API).policy(&SLIDING);
    let table = limits_by_route.table([("/chat", "api"), ("/search", "sliding")]).and(&FIXED, user);
    let app = Router::new()
        .route("/chat", post(|| async {}))
        .route("/search", post(|| async {}))
        .layer(table.clone())
        .route("/rate-limit", status::of_layer(&table));
    for _ in 0..2 {
        call(&app, "POST /search", &["x-user: ada"]).await;
    }
    limiter.acquire(&API, "ada".to_owned()).cost(10).await.unwrap();
    for (line, expected) in [("POST /chat", 429), ("POST /chat", 429), ("POST /search", 200)] {
        assert_eq!(call(&app, line, &["x-user: ada"]).await.status, expected);
    }
    let reported = limits(&text(&call(&app, "GET /rate-limit", &["x-user: ada"]).await));
    let seen: Vec<_> = reported.iter().map(|limit| (limit.policy.as_str(), limit.not_before.is_some())).collect();
    assert_eq!(seen, [("api", true), ("sliding", false), ("fixed", false)]);
    assert_eq!((reported[1].spent, reported[2].spent), (3.0, 3.0));
}

#[tokio::test]
async fn a_snapshot_predicts_the_end_of_a_block() {
    let (limiter, _clock) = limiter();
    limiter.block(Signal::key("ada"), 30 * SECOND).await.unwrap();
    let blocked = limiter.snapshot(&API, "ada").await.unwrap().remove(0);
    let begin = blocked.now();
    assert_eq!(blocked.not_before(), Some(begin + 30 * SECOND));
    // The row was not read, so all tokens count as spent. Five will have been refilled by the time the block ends.
    for (after, available) in [(0, 0), (29, 0), (30, 5), (60, 10)] {
        assert_eq!(blocked.available(begin + after * SECOND), available, "{after} s");
    }
    let retry = |cost, after: u32| blocked.project(begin + after * SECOND, Ask::cost(cost)).verdict;
    assert_eq!(retry(1, 0), Verdict::Deny { retry: Some(30 * SECOND) });
    assert_eq!(retry(5, 10), Verdict::Deny { retry: Some(20 * SECOND) });
    assert_eq!(retry(6, 10), Verdict::Deny { retry: Some(26 * SECOND) });
    assert_eq!(retry(11, 10), Verdict::Deny { retry: None });
    assert_eq!(retry(5, 30), Verdict::Allow);

    let list = DenyList::from_iter([DenyRule::key("mallory")]);
    let limiter = RateLimiter::builder(MemoryBackend::new()).deny_list(&list).build();
    let denied = limiter.snapshot(&API, "mallory").await.unwrap().remove(0);
    assert_eq!(denied.not_before(), Some(Micros::MAX));
    assert_eq!(denied.available(denied.now() + HOUR), 0);
    assert_eq!(denied.project(denied.now() + HOUR, Ask::cost(1)).verdict, Verdict::Deny { retry: None });
}

/// Regression: the row reported to a blocked caller was outside the current window, so no tokens counted as spent.
#[tokio::test]
async fn blocked_callers_have_no_tokens_left_under_any_algorithm() {
    for policy in [&API, &SLIDING, &FIXED] {
        let clock = ManualClock::at(Micros::new(1_767_225_612_345_678));
        let limiter = RateLimiter::new(MemoryBackend::builder().clock(clock).build());
        limiter.block(Signal::key("ada"), HOUR).await.unwrap();
        assert_eq!(limiter.try_limit(policy, "ada").await.unwrap().remaining(), 0, "{}", policy.name());
    }
}
