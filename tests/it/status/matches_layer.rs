//! The status endpoints apply the same keys, tiers, routes, skips and changed quotas as the layer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::http::request::Parts;
use axum::routing::post;
use tollgate::key::{Extraction, KeyExtractor};
use tollgate::policy::Enforce;
use tollgate::{
    DAY, MINUTE, Policy, Quota, RateLimitLayer, RateLimiter, RouteLimits, Rule, Subject, clock::ManualClock, key,
    status,
};

use super::app::{ReportedLimit, call, limiter, limits, status, statuses, text, user};

static API: Policy = Policy::new("api", Quota::token_bucket(10, MINUTE));
static DAILY: Policy = Policy::new("daily", Quota::fixed_window(500, DAY));

fn app_with_status(layer: &RateLimitLayer) -> Router {
    Router::new().route("/chat", post(|| async {}).layer(layer.clone())).route("/rate-limit", status::of_layer(layer))
}

async fn chat(app: &Router, user: &str) -> u16 {
    call(app, "POST /chat", &[&format!("x-user: {user}")]).await.status
}

fn names(reported: &[ReportedLimit]) -> Vec<&str> {
    reported.iter().map(|limit| limit.policy.as_str()).collect()
}

#[tokio::test]
async fn the_status_reports_what_the_layer_charged() {
    let layer = RateLimitLayer::new(&API, user);
    let app = app_with_status(&layer);
    for spent in 1..=10 {
        assert_eq!(chat(&app, "ada").await, 200);
        // With the system clock, a fraction of a token is refilled between the calls, but the row stores only whole
        // tokens.
        assert_eq!(status(&app, "ada").await.spent, f64::from(spent));
    }
    assert_eq!(status(&app, "grace").await.spent, 0.0);
}

#[tokio::test]
async fn a_tier_has_its_own_quota() {
    let (limiter, _clock) = limiter();
    let api = API.clone().tier("premium", Quota::token_bucket(100, MINUTE).capacity(300));
    let by_plan = |req: &Parts| match user(req) {
        Some(name) if name.starts_with("p-") => Subject::new(name).tier("premium"),
        other => Subject::from(other),
    };
    let app = app_with_status(&RateLimitLayer::new(&api, by_plan).limiter(&limiter));
    assert_eq!(chat(&app, "p-ada").await, 200);
    let (premium, free) = (status(&app, "p-ada").await, status(&app, "ada").await);
    assert_eq!((premium.rate, premium.capacity, premium.spent), (100.0, 300.0, 1.0));
    assert_eq!((free.rate, free.capacity, free.spent), (10.0, 10.0, 0.0));
}

#[tokio::test]
async fn a_table_reports_policies_with_their_own_keys_and_uses_each_extractor_once() {
    let (limiter, _clock) = limiter();
    let lookups = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&lookups);
    let slow_user = move |req: &Parts| {
        counted.fetch_add(1, Ordering::Relaxed);
        let user = user(req);
        Extraction::later(async { user })
    };
    let tenant = |req: &Parts| req.headers.get("x-tenant").map(|value| value.to_str().unwrap().to_owned());
    let table = RouteLimits::new(slow_user)
        .policy(&API)
        .policy(&DAILY)
        .rule(Rule::new(Policy::new("tenant", Quota::per_minute(20)), tenant.or_reject()))
        .group("chat", ["api", "tenant"])
        .limiter(&limiter)
        .table([("POST /chat", "chat"), ("POST /report", "daily")]);
    let app = Router::new()
        .route("/chat", post(|| async {}))
        .layer(table.clone())
        .route("/rate-limit", status::of_layer(&table));
    assert_eq!(call(&app, "POST /chat", &["x-user: ada", "x-tenant: 1"]).await.status, 200);
    lookups.store(0, Ordering::Relaxed);
    let answer = call(&app, "GET /rate-limit", &["x-user: ada", "x-tenant: 1"]).await;
    let reported: Vec<_> = limits(&text(&answer)).into_iter().map(|limit| (limit.policy, limit.spent)).collect();
    let expected = [("api", 1.0), ("daily", 0.0), ("tenant", 1.0)].map(|(name, spent)| (name.to_owned(), spent));
    assert_eq!(reported, expected);
    assert_eq!(lookups.load(Ordering::Relaxed), 1);
    // Without a tenant, the report omits only the `tenant` policy, because requests to other routes need no tenant.
    assert_eq!(names(&statuses(&app, "ada").await), ["api", "daily"]);
}

#[tokio::test]
async fn a_route_reports_its_own_policy_and_a_table_reports_all_policies() {
    let (limiter, _clock) = limiter();
    let limits = RouteLimits::new(user)
        .limiter(&limiter)
        .policy(&API)
        .policy(&DAILY)
        .default_policy(Policy::new("default", Quota::token_bucket(60, MINUTE)));
    let table = limits.table([("POST /chat", "api"), ("POST /report", "daily")]);
    let app = Router::new()
        .route("/chat", post(|| async {}))
        .route("/report", post(|| async {}))
        .layer(table.clone())
        .route("/rate-limit", status::of_layer(&table))
        .route("/chat/rate-limit", status::of_layer(&limits.route("api")));
    for (line, times) in [("POST /chat", 3), ("POST /report", 2), ("GET /nowhere", 1)] {
        for _ in 0..times {
            call(&app, line, &["x-user: ada"]).await;
        }
    }
    let reported = statuses(&app, "ada").await;
    assert_eq!(names(&reported), ["api", "daily", "default"]);
    assert_eq!(reported.iter().map(|limit| limit.spent).collect::<Vec<_>>(), [3.0, 2.0, 1.0]);
    let one = ReportedLimit::read(&text(&call(&app, "GET /chat/rate-limit", &["x-user: ada"]).await));
    assert_eq!((one.policy.as_str(), one.spent), ("api", 3.0));
}

#[tokio::test]
async fn several_rules_are_read_at_the_same_instant() {
    let (limiter, _clock) = limiter();
    let layer = RateLimitLayer::new(&API, user).and(&DAILY, key::global()).limiter(&limiter);
    let app = app_with_status(&layer);
    chat(&app, "ada").await;
    chat(&app, "grace").await;
    let reported = statuses(&app, "ada").await;
    assert_eq!(names(&reported), ["api", "daily"]);
    assert_eq!((reported[0].spent, reported[1].spent, reported[0].now), (1.0, 2.0, reported[1].now));
}

#[tokio::test]
async fn quotas_set_at_run_time_are_reported_immediately() {
    let (limiter, _clock) = limiter();
    let api = API.clone().tier("pro", Quota::token_bucket(50, MINUTE));
    let by_plan = |req: &Parts| Subject::from(user(req)).tier("pro");
    let app = app_with_status(&RateLimitLayer::new(&api, by_plan).limiter(&limiter));
    let capacity = async || status(&app, "ada").await.capacity;
    let quota = |rate| Quota::token_bucket(rate, MINUTE);
    assert_eq!(capacity().await, 50.0);
    limiter.set_quota(&api, quota(40)).await.unwrap();
    assert_eq!(capacity().await, 40.0);
    limiter.set_tier_quota(&api, "pro", quota(30)).await.unwrap();
    assert_eq!(capacity().await, 30.0);
    limiter.set_key_quota(&api, "ada".to_owned(), quota(3)).await.unwrap();
    assert_eq!(capacity().await, 3.0);
    assert_eq!(status(&app, "grace").await.capacity, 30.0);
    for expected in [200, 200, 200, 429] {
        assert_eq!(chat(&app, "ada").await, expected);
    }
    assert_eq!(status(&app, "ada").await.spent, 3.0);
    limiter.set_key_quota(&api, "ada".to_owned(), None).await.unwrap();
    let reported = status(&app, "ada").await;
    assert_eq!((reported.capacity, reported.spent), (30.0, 3.0));
}

#[tokio::test]
async fn skipped_callers_have_no_limits() {
    let (limiter, _clock) = limiter();
    let layers = [
        RateLimitLayer::new(&API, user).skip(|req: &Parts| req.headers.contains_key("x-admin")),
        RateLimitLayer::new(&API, |req: &Parts| match req.headers.contains_key("x-admin") {
            true => Extraction::skip(),
            false => user(req).into(),
        }),
    ];
    for layer in layers {
        let app = app_with_status(&layer.limiter(&limiter));
        let answer = call(&app, "GET /rate-limit", &["x-user: ada", "x-admin: yes"]).await;
        assert_eq!((answer.status, text(&answer)), (200, r#"{"limits":[],"now":1767225600000000}"#.to_owned()));
        assert_eq!(status(&app, "ada").await.capacity, 10.0);
    }
    let optional = RateLimitLayer::new(&API, |req: &Parts| user(req)).and(&DAILY, key::bearer().or_skip());
    let app = app_with_status(&optional.limiter(&limiter));
    assert_eq!(names(&statuses(&app, "ada").await), ["api"]);
    let authenticated = call(&app, "GET /rate-limit", &["x-user: ada", "authorization: Bearer t"]).await;
    assert_eq!(names(&limits(&text(&authenticated))), ["api", "daily"]);
}

#[tokio::test]
async fn limits_that_are_not_enforced_are_not_reported() {
    let (limiter, _clock) = limiter();
    let layer = |enforce| RateLimitLayer::new(API.clone().enforce(enforce), user).limiter(&limiter);
    let nothing = r#"{"limits":[],"now":1767225600000000}"#;
    let shadowed = app_with_status(&layer(Enforce::Never));
    for _ in 0..12 {
        assert_eq!(chat(&shadowed, "ada").await, 200);
    }
    assert_eq!(text(&call(&shadowed, "GET /rate-limit", &["x-user: ada"]).await), nothing);

    let half_enforced = app_with_status(&layer(Enforce::Share(0.5)));
    let mut enforced = 0;
    for i in 0..40 {
        let user = format!("user-{i}");
        limiter.acquire(&API, user.clone()).cost(10).await.unwrap();
        let refused = chat(&half_enforced, &user).await == 429;
        let answer = text(&call(&half_enforced, "GET /rate-limit", &[&format!("x-user: {user}")]).await);
        assert_eq!(answer == nothing, !refused, "{answer}");
        enforced += u32::from(refused);
    }
    // The number of heads in 40 tosses of a fair coin is outside this range with a probability below 10^-8.
    assert!((3..=37).contains(&enforced), "the limit is enforced for {enforced} of 40 users");
}

#[tokio::test]
async fn an_async_extractor_is_awaited() {
    let (limiter, _clock) = limiter();
    let slow = |req: &Parts| {
        let name = user(req);
        Extraction::later(async move {
            tokio::task::yield_now().await;
            name
        })
    };
    let app = app_with_status(&RateLimitLayer::new(&API, slow).and(&DAILY, slow).limiter(&limiter));
    chat(&app, "ada").await;
    let reported = statuses(&app, "ada").await;
    assert_eq!((names(&reported), reported[0].spent, reported[1].spent), (vec!["api", "daily"], 1.0, 1.0));
}

#[tokio::test]
async fn an_extractor_reads_the_path_of_the_status_endpoint() {
    let (limiter, _clock) = limiter();
    let layer = RateLimitLayer::new(&API, key::path("team")).limiter(&limiter);
    let app: Router = Router::new()
        .route("/teams/{team}/chat", post(|| async {}).layer(layer.clone()))
        .nest("/teams/{team}", Router::new().route("/rate-limit", status::of_layer(&layer)));
    for _ in 0..3 {
        assert_eq!(call(&app, "POST /teams/a%2Fb/chat", &[]).await.status, 200);
    }
    for (path, spent) in [("/teams/a%2fb/rate-limit", 3.0), ("/teams/c/rate-limit?team=a%2Fb", 0.0)] {
        let answer = call(&app, &format!("GET {path}"), &[]).await;
        assert_eq!(ReportedLimit::read(&text(&answer)).spent, spent, "{path}");
    }
}

#[tokio::test]
async fn reserved_tokens_are_reported_as_spent() {
    let clock = ManualClock::new();
    let limiter = RateLimiter::new(tollgate::MemoryBackend::builder().clock(clock.clone()).build());
    let reservable = Policy::new("reservable", Quota::token_bucket(10, MINUTE).capacity(1).max_reserved(50));
    let app = Router::new().route("/rate-limit", status::of(&limiter, &reservable, user));
    for _ in 0..4 {
        limiter.acquire(&reservable, "ada".to_owned()).reserve().await.unwrap().into_receipt();
    }
    let reported = status(&app, "ada").await;
    assert_eq!((reported.spent, reported.capacity, reported.max_reserved), (4.0, 1.0, Some(50.0)));
}
