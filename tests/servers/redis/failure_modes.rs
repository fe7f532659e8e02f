//! Failure modes of different policies. If the backend fails, a policy can deny calls with an error, fail open, or fall
//! back to a share of its quota, which the process enforces itself.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::routing::get;
use http_body_util::BodyExt;
use tollgate::backend::{ErrorKind, MemoryBackend, RedisBackend};
use tollgate::{
    Charge, FailureMode, HOUR, Policy, Quota, RateLimitLayer, RateLimiter, Reason, key, limiter::RateLimiterBuilder,
    policy::DecidedBy,
};
use tower::ServiceExt;

use super::outage::{LIMIT, SLOW, fresh};
use crate::support::server::Server;

static SEARCH: Policy = Policy::new("search", Quota::token_bucket(10, HOUR));
static LOGIN: Policy = Policy::new("login", Quota::fixed_window(10, HOUR));
static PAGES: Policy = Policy::new("pages", Quota::token_bucket(1000, HOUR));

/// During an outage, `search` falls back to three of its ten tokens, `pages` fails open, and `login` denies every call.
fn modes(builder: RateLimiterBuilder) -> RateLimiterBuilder {
    builder.on_failure_of(&SEARCH, FailureMode::fallback(0.35)).on_failure_of(&PAGES, FailureMode::Allow)
}

async fn start() -> (Server, RateLimiter) {
    let server = Server::start();
    let backend = server.backend().await;
    (server, modes(RateLimiter::builder(backend)).build())
}

async fn wait_until_redis_decides(limiter: &RateLimiter) {
    while limiter.try_check(&SEARCH, "probe").await.unwrap().decided_by() != DecidedBy::Backend {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn app(layer: RateLimitLayer, limiter: &RateLimiter) -> Router {
    Router::new().route("/", get(|| async { "hello" })).layer(layer.limiter(limiter))
}

async fn ask(app: &Router) -> (StatusCode, axum::http::HeaderMap, String) {
    let Ok(response) = app.clone().oneshot(Request::new(Body::empty())).await;
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (parts.status, parts.headers, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn the_deny_mode_returns_503_with_a_retry_time() {
    let (mut server, limiter) = start().await;
    let app = app(RateLimitLayer::new(LOGIN.clone(), key::global()), &limiter);
    assert_eq!(ask(&app).await.0, 200);
    server.kill();
    for _ in 0..3 {
        let (status, headers, body) = ask(&app).await;
        assert_eq!(
            (status, &headers[RETRY_AFTER], &headers[CONTENT_TYPE]),
            (StatusCode::SERVICE_UNAVAILABLE, &"1".parse().unwrap(), &"application/problem+json".parse().unwrap())
        );
        let problem: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(problem["status"], 503);
        assert!(problem["type"].as_str().unwrap().ends_with("#temporary-reduced-capacity"), "{problem}");
        assert!(!body.contains("127.0.0.1") && !body.contains("redis"), "the body names the backend: {body}");
    }
    let error = limiter.try_limit(&LOGIN, 1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn fail_open_admits_every_request() {
    let (mut server, limiter) = start().await;
    let app = app(RateLimitLayer::new(PAGES.clone(), key::global()), &limiter);
    server.kill();
    for _ in 0..20 {
        let (status, _, body) = ask(&app).await;
        assert_eq!((status, body.as_str()), (StatusCode::OK, "hello"));
    }
    let decision = limiter.try_acquire(&PAGES, 1).cost(1_000_000).await.unwrap();
    assert_eq!((decision.decided_by(), decision.reason()), (DecidedBy::FailOpen, Reason::FailOpen));
}

#[tokio::test]
async fn the_fallback_admits_exactly_its_share() {
    let (mut server, limiter) = start().await;
    let app = app(RateLimitLayer::new(SEARCH.clone(), key::global()), &limiter);
    server.kill();
    let mut passed = 0;
    for _ in 0..20 {
        let (status, headers, _) = ask(&app).await;
        passed += u32::from(status == 200);
        assert!(status == 200 || status == 429 && headers.contains_key(RETRY_AFTER), "{status}");
        assert_eq!(headers["ratelimit-policy"], r#""search";q=3;w=3600"#);
    }
    assert_eq!(passed, 3);
    for _ in 0..5 {
        let decision = limiter.try_check(&SEARCH, 2).await.unwrap();
        assert_eq!((decision.remaining(), decision.decided_by()), (3, DecidedBy::Fallback));
    }
}

#[tokio::test]
async fn the_strictest_mode_of_several_rules_applies() {
    let (mut server, limiter) = start().await;
    let two = app(RateLimitLayer::new(SEARCH.clone(), key::global()).and(PAGES.clone(), key::global()), &limiter);
    let three = RateLimitLayer::new(PAGES.clone(), key::global()).and(SEARCH.clone(), key::global());
    let three = app(three.and(LOGIN.clone(), key::global()), &limiter);
    server.kill();
    // Without Redis, the policy `login` denies the call, so the other policies are not charged.
    for _ in 0..10 {
        assert_eq!(ask(&three).await.0, 503);
    }
    // The policy `search` falls back and `pages` fails open, so the fallback decides.
    let mut statuses = Vec::new();
    for _ in 0..5 {
        statuses.push(ask(&two).await.0.as_u16());
    }
    assert_eq!(statuses, [200, 200, 200, 429, 429]);
    let both = limiter.try_limit_all([Charge::new(&PAGES, 7), Charge::new(&SEARCH, 7).cost(4)]).await.unwrap();
    let modes_used: Vec<_> = both.iter().map(|decision| (decision.decided_by(), decision.reason())).collect();
    assert_eq!(
        modes_used,
        [(DecidedBy::FailOpen, Reason::RefusedElsewhere), (DecidedBy::Fallback, Reason::CostTooLarge)]
    );
}

#[tokio::test]
async fn the_fallback_charges_all_policies_or_none() {
    let (mut server, limiter) = start().await;
    let other = Policy::new("other", Quota::token_bucket(10, HOUR));
    let backend = server.backend().await;
    let all = RateLimiter::builder(backend).on_failure(FailureMode::fallback(0.2)).build();
    server.kill();
    drop(limiter);
    for _ in 0..5 {
        drop(all.try_limit_all([Charge::new(&SEARCH, 1), Charge::new(&other, 1).cost(2)]).await.unwrap());
    }
    assert_eq!((all.remaining(&SEARCH, 1).await.unwrap(), all.remaining(&other, 1).await.unwrap()), (1, 0));
}

#[tokio::test]
async fn charges_made_by_the_fallback_are_settled_in_the_fallback() {
    let (mut server, limiter) = start().await;
    server.kill();
    let left = async || limiter.remaining(&SEARCH, 1).await.unwrap();
    let held = limiter.acquire(&SEARCH, 1).cost(2).hold().await.unwrap();
    assert_eq!((held.decisions().get(0).unwrap().decided_by(), left().await), (DecidedBy::Fallback, 1));
    drop(held);
    assert_eq!(left().await, 3);
    let kept = limiter.acquire(&SEARCH, 1).cost(1).hold().await.unwrap().into_receipt();
    kept.settle(3).await.unwrap();
    assert_eq!(left().await, 0);
    // Resetting the row in Redis fails with an error, but the fallback's row is reset.
    limiter.reset(&SEARCH, 1).await.unwrap_err();
    assert_eq!(left().await, 3);
    let later = limiter.acquire(&SEARCH, 1).cost(3).hold().await.unwrap().into_receipt();
    let unseen = limiter.acquire(&PAGES, 1).cost(3).hold().await.unwrap().into_receipt();
    // Redis has no record of these charges and does not receive their settlements.
    server.restart();
    wait_until_redis_decides(&limiter).await;
    later.settle(1).await.unwrap();
    unseen.settle(700).await.unwrap();
    assert_eq!((left().await, limiter.remaining(&PAGES, 1).await.unwrap()), (10, 1000));
    // The fallback keeps its rows for the next outage.
    server.kill();
    assert_eq!(left().await, 2);
}

#[tokio::test]
async fn redis_resumes_with_its_own_rows_after_an_outage() {
    let server = Server::start();
    // Long enough for a busy machine, and yet the deadline of the one call that a stopped server keeps waiting.
    let backend = RedisBackend::builder().deadline(Duration::from_secs(5)).connect(&server.url()).await.unwrap();
    let limiter = modes(RateLimiter::builder(backend)).build();
    let before = limiter.acquire(&SEARCH, 1).cost(8).hold().await.unwrap().into_receipt();
    assert_eq!(before.decisions().get(0).unwrap().decided_by(), DecidedBy::Backend);
    server.signal("STOP");
    for _ in 0..10 {
        let decision = limiter.try_limit(&SEARCH, 1).await.unwrap();
        assert_eq!(decision.decided_by(), DecidedBy::Fallback);
    }
    let lost = limiter.acquire(&PAGES, 1).hold().await.unwrap().into_receipt();
    assert!(lost.settle(0).await.is_ok(), "settling a charge that Redis did not make must succeed");
    server.signal("CONT");
    wait_until_redis_decides(&limiter).await;
    // Redis made none of the charges during the outage, except perhaps the charge that timed out.
    let left = limiter.remaining(&SEARCH, 1).await.unwrap();
    assert!((1..=2).contains(&left), "{left}");
    before.settle(0).await.unwrap();
    assert_eq!(limiter.remaining(&SEARCH, 1).await.unwrap(), left + 8);
}

#[tokio::test]
async fn a_settlement_fails_if_redis_is_unreachable() {
    let (mut server, limiter) = start().await;
    let charged = limiter.acquire(&SEARCH, 1).cost(8).hold().await.unwrap().into_receipt();
    server.kill();
    assert_eq!(charged.settle(2).await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(
        charged.is_settled(),
        "a settlement that returns an error may have taken effect, so it must not be repeated"
    );
}

#[tokio::test]
async fn the_fallback_backend_can_be_replaced() {
    let mut server = Server::start();
    let backend = server.backend().await;
    let own = std::sync::Arc::new(MemoryBackend::new());
    let limiter = modes(RateLimiter::builder(backend)).fallback_backend(std::sync::Arc::clone(&own)).build();
    server.kill();
    drop(limiter.try_limit(&SEARCH, 1).await.unwrap());
    assert_eq!(own.len(), 1);
}

#[tokio::test]
async fn cached_denials_apply_for_a_second_during_an_outage() {
    let mut server = Server::start();
    let backend = server.backend().await;
    let cached = RateLimiter::new(backend.clone());
    let bare = RateLimiter::builder(backend).block_cache(0).build();
    let key = fresh();
    for _ in 0..=LIMIT {
        drop(cached.try_limit(&SLOW, key).await.unwrap());
    }
    assert_eq!(bare.try_limit(&SLOW, key).await.unwrap().decided_by(), DecidedBy::Backend);
    server.kill();
    let denied = cached.try_limit(&SLOW, key).await.unwrap();
    assert_eq!((denied.is_allowed(), denied.decided_by()), (false, DecidedBy::BlockCache));
    assert!(bare.try_limit(&SLOW, key).await.is_err());
    assert!(cached.try_limit(&SLOW, fresh()).await.is_err());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(cached.try_limit(&SLOW, key).await.is_err(), "the denial is still cached after a second");
}
