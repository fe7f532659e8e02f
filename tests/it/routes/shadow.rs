//! Shadow mode decides and charges like an enforced limit, but never refuses a request.

use axum::Router;
use axum::routing::any;
use tollgate::key::KeyExtractor;
use tollgate::policy::Enforce;
use tollgate::{
    HeaderFamily, MINUTE, Policy, Quota, RateLimitLayer, RateLimitStatus, RateLimiter, key, middleware::ResetUnit,
};

use super::app::{call, header, limiter, policy, user};

fn hello() -> Router {
    let show = |status: RateLimitStatus| async move {
        let left: Vec<_> = status.decisions().iter().map(|decision| decision.remaining().to_string()).collect();
        format!("{} {}", if status.decisions().is_shadowed() { "shadowed" } else { "within" }, left.join(" "))
    };
    Router::new().route("/", any(show))
}

const USER: Policy = policy("user", 3);
const ALL: Policy = Policy::new("all", Quota::token_bucket(8, MINUTE));

fn layer(limiter: &RateLimiter) -> RateLimitLayer {
    with(limiter, Enforce::Always)
}

fn shadow(limiter: &RateLimiter) -> RateLimitLayer {
    with(limiter, Enforce::Never)
}

fn with(limiter: &RateLimiter, enforce: Enforce) -> RateLimitLayer {
    let cost = |req: &axum::http::request::Parts| header(req, "x-cost").map_or(1, |cost| cost.parse().unwrap());
    let layer = RateLimitLayer::new(USER.enforce(enforce), user).and(ALL.enforce(enforce), key::global());
    layer.cost(cost).with_status().limiter(limiter)
}

/// The user and the cost of each request, and the number of seconds to wait before sending it. Five of the requests are
/// denied: four by only one of the rules, and one by both.
const REQUESTS: [(&str, u64, u64); 12] = [
    ("ada", 1, 0),
    ("ada", 2, 0),
    ("ada", 1, 0),
    ("ada", 4, 0),
    ("bob", 3, 0),
    ("bob", 1, 1),
    ("cyd", 3, 0),
    ("dan", 1, 0),
    ("cyd", 1, 5),
    ("ada", 1, 20),
    ("ada", 9, 0),
    ("bob", 2, 30),
];

#[tokio::test]
async fn shadow_mode_decides_exactly_like_an_enforced_limit() {
    let ((real, real_clock), (trial, trial_clock)) = (limiter(), limiter());
    let enforced = hello().layer(layer(&real));
    let shadowed = hello().layer(shadow(&trial).shadow_header("x-ratelimit-shadow"));
    let mut denied = 0;
    for (user, cost, wait) in REQUESTS {
        real_clock.advance(std::time::Duration::from_secs(wait));
        trial_clock.advance(std::time::Duration::from_secs(wait));
        let lines = [&*format!("x-user: {user}"), &*format!("x-cost: {cost}")];
        let (real_answer, answer) = (call(&enforced, "GET /", &lines).await, call(&shadowed, "GET /", &lines).await);
        assert_eq!(answer.status, 200, "shadow mode must not refuse a request");
        let is_denied = real_answer.status == 429;
        denied += u64::from(is_denied);

        // Only the handler and the shadow header show the denial.
        let body = String::from_utf8(answer.body).unwrap();
        assert_eq!(body.starts_with("shadowed"), is_denied, "{user} {cost}: {body}");
        if !is_denied {
            assert_eq!(body.as_bytes(), real_answer.body);
        }
        assert_eq!(
            answer.headers.get("x-ratelimit-shadow").map(|value| value.as_bytes()),
            is_denied.then_some(&b"denied"[..])
        );
        for name in ["ratelimit", "ratelimit-policy", "retry-after", "cache-control"] {
            assert!(!answer.headers.contains_key(name), "{name}");
        }

        for name in ["ada", "bob", "cyd", "dan"] {
            let (one, other) = (
                real.snapshot(&USER, name).await.unwrap().remove(0),
                trial.snapshot(&USER, name).await.unwrap().remove(0),
            );
            assert_eq!(one.available(one.now()), other.available(other.now()), "{name}");
        }
        let rows = (real.remaining(&ALL, "global").await.unwrap(), trial.remaining(&ALL, "global").await.unwrap());
        assert_eq!(rows.0, rows.1);
    }
    assert_eq!(denied, 5, "expected five denied requests");
}

#[tokio::test]
async fn shadow_mode_sends_no_rate_limit_headers_by_default() {
    for family in [HeaderFamily::Draft11, HeaderFamily::Draft6, HeaderFamily::XRateLimit(ResetUnit::Epoch)] {
        let app = hello().layer(shadow(&limiter().0).headers(family));
        for _ in 0..5 {
            let answer = call(&app, "GET /", &["x-user: ada"]).await;
            let mut names: Vec<_> = answer.headers.keys().map(|name| name.as_str()).collect();
            names.sort_unstable();
            assert_eq!((answer.status, names), (200, vec!["content-length", "content-type"]));
        }
    }
}

#[tokio::test]
async fn shadow_mode_admits_requests_without_a_key() {
    let layer =
        |enforce| RateLimitLayer::new(USER.enforce(enforce), user.or_reject()).with_status().limiter(&limiter().0);
    assert_eq!(call(&hello().layer(layer(Enforce::Always)), "GET /", &[]).await.status, 400);
    let shadowed = layer(Enforce::Never).shadow_header("x-would-be");
    let shadowed = call(&hello().layer(shadowed), "GET /", &[]).await;
    assert_eq!((shadowed.status, &shadowed.headers["x-would-be"]), (200, &"denied".parse().unwrap()));
    let by_address =
        |enforce| RateLimitLayer::new(USER.enforce(enforce), key::client_ip()).with_status().limiter(&limiter().0);
    assert_eq!(call(&hello().layer(by_address(Enforce::Always)), "GET /", &[]).await.status, 500);
    assert_eq!(call(&hello().layer(by_address(Enforce::Never)), "GET /", &[]).await.status, 200);
}

#[tokio::test]
async fn shadow_mode_admits_grpc_requests() {
    let app = hello().layer(shadow(&limiter().0).grpc());
    for _ in 0..5 {
        let answer = call(&app, "POST /", &["x-user: ada", "content-type: application/grpc"]).await;
        assert_eq!((answer.status, answer.headers.contains_key("grpc-status")), (200, false));
    }
}

const TRIAL: Policy = Policy::new("trial", Quota::token_bucket(2, MINUTE)).enforce(Enforce::Never);

#[tokio::test]
async fn rules_in_shadow_mode_never_refuse_requests_but_other_rules_do() {
    let (limiter, _clock) = limiter();
    let layer = RateLimitLayer::new(USER, user).and(TRIAL, key::global()).with_status().limiter(&limiter);
    let app = hello().layer(layer.shadow_header("x-would-be"));
    let mut seen = Vec::new();
    for _ in 0..4 {
        let answer = call(&app, "GET /", &["x-user: ada"]).await;
        // Limits in shadow mode are hidden from clients.
        let names: Vec<_> = answer.headers.get_all("ratelimit-policy").iter().collect();
        assert_eq!(names, ["\"user\";q=3;w=60"]);
        assert_eq!(answer.headers.get_all("ratelimit").iter().count(), 1);
        seen.push((answer.status, answer.headers.contains_key("x-would-be"), answer.body.starts_with(b"shadowed")));
    }
    assert_eq!(seen, [(200, false, false), (200, false, false), (200, true, true), (429, false, false)]);
    assert_eq!(limiter.remaining(&USER, "ada").await.unwrap(), 0);

    limiter.set_enforcement(&TRIAL, Enforce::Always).await.unwrap();
    assert_eq!(call(&app, "GET /", &["x-user: eve"]).await.status, 429);
}

#[tokio::test]
async fn a_rule_in_shadow_mode_admits_requests_without_a_key() {
    let layer = RateLimitLayer::new(TRIAL, user.or_reject()).with_status().shadow_header("x-would-be");
    let (limiter, _clock) = limiter();
    let app = hello().layer(layer.limiter(&limiter));
    let answer = call(&app, "GET /", &[]).await;
    assert_eq!((answer.status, answer.headers.contains_key("x-would-be")), (200, true));
    limiter.set_enforcement(&TRIAL, Enforce::Always).await.unwrap();
    assert_eq!(call(&app, "GET /", &[]).await.status, 400);
}
