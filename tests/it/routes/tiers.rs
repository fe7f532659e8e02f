//! Two policies with two tiers each, and callers whose tier changes.

use axum::Router;
use axum::http::request::Parts;
use axum::routing::{get, post};
use tollgate::{MINUTE, Policy, Quota, RateLimiter, RouteLimits, SECOND, Subject, clock::ManualClock};

use super::app::{Server, header, limiter, policy, quota_headers, serve, user};

const PER_MINUTE: fn(u64) -> Quota = |rate| Quota::token_bucket(rate, MINUTE);

/// Returns the subject from the `x-user` and `x-plan` headers, which stand in for authentication. Without
/// `x-user`, the subject is anonymous; without `x-plan`, it has no tier.
fn by_plan(req: &Parts) -> Subject {
    let subject = Subject::from(user(req));
    match header(req, "x-plan") {
        Some(plan) => subject.tier(plan),
        None => subject,
    }
}

fn default_policy() -> Policy {
    policy("default", 30).tier("free", PER_MINUTE(60)).tier("premium", PER_MINUTE(200))
}

fn todo_create() -> Policy {
    policy("todo/create", 10).tier("free", PER_MINUTE(20)).tier("premium", PER_MINUTE(60))
}

/// Serves `GET /todos` under the default policy and `POST /todos` under `create`.
async fn todos(create: Policy) -> (Server, RateLimiter, ManualClock) {
    let (limiter, clock) = limiter();
    let limits = RouteLimits::new(by_plan).policy(create).default_policy(default_policy()).limiter(&limiter);
    let app = Router::new()
        .route("/todos", get(|| async { "all" }).post(|| async { "made" }))
        .layer(limits.table([("POST /todos", "todo/create")]));
    (serve(app).await, limiter, clock)
}

/// Returns a caller's header lines, or none if `plan` is empty.
fn header_lines<'a>(plan: &'a str, user: &'a str) -> Vec<&'a str> {
    if plan.is_empty() { Vec::new() } else { vec![plan, user] }
}

#[tokio::test]
async fn each_policy_and_tier_has_a_separate_limit_and_bucket() {
    let (server, _limiter, clock) = todos(todo_create()).await;
    let cases = [
        ("GET /todos", "default", "", "", 30),
        ("GET /todos", "default", "x-plan: free", "x-user: fay", 60),
        ("GET /todos", "default", "x-plan: premium", "x-user: pia", 200),
        ("POST /todos", "todo/create", "", "", 10),
        ("POST /todos", "todo/create", "x-plan: free", "x-user: fay", 20),
        ("POST /todos", "todo/create", "x-plan: premium", "x-user: pia", 60),
    ];
    // Alternate between the cases, so that the test fails if two cases share a bucket.
    for spent in 1..=3 {
        for (line, name, plan, user, limit) in cases {
            let answer = server.call(line, &header_lines(plan, user)).await;
            assert_eq!(
                (answer.status, quota_headers(&answer)),
                (200, (name.into(), limit, limit - spent)),
                "{line} {plan}"
            );
        }
    }
    // Spend all tokens of each case. The next request then has to wait for one token.
    for (line, name, plan, user, limit) in cases {
        for left in (0..limit - 3).rev() {
            assert_eq!(quota_headers(&server.call(line, &header_lines(plan, user)).await), (name.into(), limit, left));
        }
        let refused = server.call(line, &header_lines(plan, user)).await;
        assert_eq!((refused.status, quota_headers(&refused)), (429, (name.into(), limit, 0)));
        assert_eq!(
            (refused.violated_policies(), refused.retry_after()),
            (vec![name.into()], Some(60_u64.div_ceil(limit)))
        );
    }
    clock.advance(MINUTE);
    for (line, name, plan, user, limit) in cases {
        assert_eq!(
            quota_headers(&server.call(line, &header_lines(plan, user)).await),
            (name.into(), limit, limit - 1),
            "{line} {plan}"
        );
    }
}

#[tokio::test]
async fn callers_with_an_unknown_tier_get_the_policys_own_quota() {
    let (server, _limiter, _clock) = todos(policy("todo/create", 10).tier("free", PER_MINUTE(20))).await;
    for (line, plan, limit) in [
        ("POST /todos", "premium", 10),
        ("POST /todos", "unheard-of", 10),
        ("POST /todos", "free", 20),
        ("GET /todos", "premium", 200),
        ("GET /todos", "unheard-of", 30),
        ("GET /todos", "Premium", 30),
    ] {
        let (user, plan) = (format!("x-user: {plan}"), format!("x-plan: {plan}"));
        assert_eq!(quota_headers(&server.call(line, &[&user, &plan]).await).1, limit, "{line} {plan}");
    }
}

#[tokio::test]
async fn an_upgrade_applies_immediately_and_spent_tokens_stay_spent() {
    let (server, _limiter, clock) = todos(todo_create()).await;
    let (free, premium) = (["x-user: ada", "x-plan: free"], ["x-user: ada", "x-plan: premium"]);
    for _ in 0..60 {
        assert_eq!(server.call("GET /todos", &free).await.status, 200);
    }
    assert_eq!(server.call("GET /todos", &free).await.status, 429);
    // In half a second, the free quota refills half a token.
    clock.advance(SECOND / 2);
    assert_eq!(server.call("GET /todos", &free).await.status, 429);

    let upgraded = server.call("GET /todos", &premium).await;
    // Of 200 tokens, 61 were spent, and 1.67 were refilled in half a second at the new rate.
    assert_eq!((upgraded.status, quota_headers(&upgraded)), (200, ("default".into(), 200, 140)));
    assert_eq!(quota_headers(&server.call("POST /todos", &premium).await), ("todo/create".into(), 60, 59));
    for left in (0..140).rev() {
        assert_eq!(quota_headers(&server.call("GET /todos", &premium).await).2, left);
    }
    assert_eq!(server.call("GET /todos", &premium).await.status, 429);
}

#[tokio::test]
async fn tokens_spent_before_a_downgrade_are_refilled_at_the_old_rate() {
    let (server, limiter, clock) = todos(todo_create()).await;
    let (free, premium) = (["x-user: ada", "x-plan: free"], ["x-user: ada", "x-plan: premium"]);
    for _ in 0..200 {
        assert_eq!(server.call("GET /todos", &premium).await.status, 200);
    }
    // The next request has to wait until 141 tokens are refilled: 42.3 s at the old rate of 200/min.
    let refused = server.call("GET /todos", &free).await;
    assert_eq!(
        (refused.status, quota_headers(&refused), refused.retry_after()),
        (429, ("default".into(), 60, 0), Some(43))
    );
    for _ in 0..3 {
        clock.advance(14 * SECOND);
        assert_eq!(server.call("GET /todos", &free).await.status, 429);
    }
    clock.advance(SECOND / 2);
    let back = server.call("GET /todos", &free).await;
    assert_eq!((back.status, quota_headers(&back).2), (200, 0));
    clock.advance(MINUTE);
    assert_eq!(limiter.remaining(&default_policy(), Subject::new("ada").tier("free")).await.unwrap(), 60);
}

#[tokio::test]
async fn spent_tokens_that_fit_the_new_capacity_stay_spent_after_a_downgrade() {
    let (server, _limiter, _clock) = todos(todo_create()).await;
    for left in (190..200).rev() {
        assert_eq!(quota_headers(&server.call("GET /todos", &["x-user: ada", "x-plan: premium"]).await).2, left);
    }
    assert_eq!(
        quota_headers(&server.call("GET /todos", &["x-user: ada", "x-plan: free"]).await),
        ("default".into(), 60, 49)
    );
    assert_eq!(quota_headers(&server.call("GET /todos", &[]).await), ("default".into(), 30, 29));
    let anonymous = server.call("GET /todos", &["x-plan: free"]).await;
    assert_eq!(quota_headers(&anonymous), ("default".into(), 60, 58), "all anonymous callers must share one bucket");
}

#[tokio::test]
async fn layers_on_handlers_apply_the_same_quotas_as_a_table() {
    let (limiter, _clock) = limiter();
    let limits = RouteLimits::new(by_plan).policy(todo_create()).policy(default_policy()).limiter(&limiter);
    let app = Router::new()
        .route("/todos", post(|| async {}).layer(limits.route("todo/create")))
        .route("/todos/{id}", get(|| async {}).layer(limits.route("default")));
    let server = serve(app).await;
    for (plan, default, create) in [("", 30, 10), ("x-plan: free", 60, 20), ("x-plan: premium", 200, 60)] {
        let user = format!("x-user: {}", plan.len());
        let lines = header_lines(plan, &user);
        assert_eq!(
            quota_headers(&server.call("POST /todos", &lines).await),
            ("todo/create".into(), create, create - 1)
        );
        assert_eq!(quota_headers(&server.call("GET /todos/7", &lines).await), ("default".into(), default, default - 1));
        assert_eq!(
            quota_headers(&server.call("GET /todos/8", &lines).await).2,
            default - 2,
            "all paths of a route must share a bucket"
        );
    }
}
