//! Policy groups over a real socket: options for all layers, a key for each policy, and several policies per route.

use axum::Router;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::routing::{get, post};
use tollgate::{
    HeaderFamily, OnResponse, RateLimitLayer, RateLimiter, Refusal, RouteLimits, Rule,
    key::{self, KeyExtractor},
};
#[cfg(feature = "wait")]
use tollgate::{Policy, Quota, SECOND};

use super::app::{Server, header, limiter, policy, serve, user};

/// `read` and `write` limit each user. `tenant` limits each tenant, at a cost of 5 per request. `all` limits all
/// requests.
fn limits(limiter: &RateLimiter) -> RouteLimits {
    RouteLimits::new(user)
        .policy(policy("read", 100))
        .policy(policy("write", 3))
        .rule(Rule::new(policy("tenant", 20), |req: &Parts| header(req, "x-tenant")).fixed_cost(5))
        .group("export", ["write", "tenant"])
        .configure(|layer| layer.and(policy("all", 1000), key::global()))
        .limiter(limiter)
}

fn routes() -> Router {
    Router::new()
        .route("/", get(|| async {}))
        .route("/export", post(|| async {}))
        .route("/fail", get(|| async { StatusCode::INTERNAL_SERVER_ERROR }))
        .route("/health", get(|| async {}))
}

/// Returns the status and, for each limit in the headers, the remaining tokens, for example `read=99 all=999`.
async fn left(server: &Server, line: &str, lines: &[&str]) -> (u16, String) {
    let answer = server.call(line, lines).await;
    let limits: Vec<_> = answer.limits().iter().map(|(name, left, _)| format!("{name}={left}")).collect();
    (answer.status, limits.join(" "))
}

const ADA: &[&str] = &["x-user: ada", "x-tenant: 1"];
const EVE: &[&str] = &["x-user: eve", "x-tenant: 1"];

#[tokio::test]
async fn a_group_charges_all_of_its_policies_or_none() {
    let (limiter, _clock) = limiter();
    let layer = limits(&limiter).table([("GET /", "read"), ("POST /export", "export")]);
    let server = serve(routes().layer(layer)).await;
    for (line, lines, status, expected) in [
        ("GET /", ADA, 200, "read=99 all=999"),
        ("POST /export", ADA, 200, "write=2 tenant=15 all=998"),
        // Eve is another user of the same tenant.
        ("POST /export", EVE, 200, "write=2 tenant=10 all=997"),
        ("POST /export", ADA, 200, "write=1 tenant=5 all=996"),
        ("POST /export", ADA, 200, "write=0 tenant=0 all=995"),
        // Both policies of the group deny the request.
        ("POST /export", ADA, 429, "write=0 tenant=0"),
        // The `tenant` policy denies the request, so nothing is charged.
        ("POST /export", EVE, 429, "tenant=0"),
        ("POST /export", &["x-user: eve", "x-tenant: 2"], 200, "write=1 tenant=15 all=994"),
        // Only the `all` policy applies to unlisted routes.
        ("GET /health", ADA, 200, "all=993"),
    ] {
        assert_eq!(left(&server, line, lines).await, (status, expected.to_owned()), "{line} {lines:?}");
    }
}

#[tokio::test]
async fn a_layer_on_a_handler_can_apply_a_group_or_a_policy() {
    let (limiter, _clock) = limiter();
    let limits = limits(&limiter);
    let app = Router::new()
        .route("/", get(|| async {}).layer(limits.route("read")))
        .route("/export", post(|| async {}).layer(limits.route("export")))
        .route("/tenant", get(|| async {}).layer(limits.route("tenant")));
    let server = serve(app).await;
    for (line, expected) in [
        ("GET /", "read=99 all=999"),
        ("POST /export", "write=2 tenant=15 all=998"),
        ("GET /tenant", "tenant=10 all=997"),
    ] {
        assert_eq!(left(&server, line, ADA).await, (200, expected.to_owned()), "{line}");
    }
}

#[tokio::test]
async fn a_group_can_be_chosen_by_a_closure_or_be_the_default() {
    let (limiter, _clock) = limiter();
    let limits = limits(&limiter).group("none", []).group("more", ["read", "export"]).default_group("export");
    let by_header = |req: &Parts| header(req, "x-kind").map(|kind| if kind == "none" { "none" } else { "more" });
    let server = serve(routes().layer(limits.choose(by_header))).await;
    for (lines, expected) in [
        (&["x-user: ada", "x-tenant: 1", "x-kind: none"][..], "all=999"),
        (&["x-user: ada", "x-tenant: 1", "x-kind: more"], "read=99 write=2 tenant=15 all=998"),
        (ADA, "write=1 tenant=10 all=997"),
    ] {
        assert_eq!(left(&server, "GET /", lines).await, (200, expected.to_owned()), "{lines:?}");
    }
}

fn refuse(refusal: &Refusal<'_>) -> http::Response<bytes::Bytes> {
    refusal.respond("text/plain", "slow down")
}

/// Returns limits with options for all layers: headers, refusal, skip, cost and settlement.
fn with_options(limiter: &RateLimiter) -> RouteLimits {
    RouteLimits::new(user)
        .configure(|layer| layer.headers(HeaderFamily::Draft6).on_refusal(refuse))
        .policy(policy("read", 10))
        .configure(|layer| layer.skip(|req: &Parts| req.uri.path() == "/health"))
        .configure(|layer| layer.cost(|req: &Parts| if req.uri.path() == "/export" { 8 } else { 4 }))
        .configure(|layer| {
            layer.on_response(|res| if res.status.is_server_error() { OnResponse::Refund } else { OnResponse::Keep })
        })
        .limiter(limiter)
}

#[tokio::test]
async fn configured_options_apply_to_every_layer() {
    let layers: [fn(&RouteLimits) -> RateLimitLayer; 3] = [
        |limits| limits.route("read"),
        |limits| limits.table([("/{*rest}", "read"), ("/", "read"), ("/export", "read"), ("/fail", "read")]),
        |limits| limits.choose(|_| Some("read")),
    ];
    for layer in layers {
        let (limiter, _clock) = limiter();
        let server = serve(routes().layer(layer(&with_options(&limiter)))).await;
        let left = async |line: &str| {
            let answer = server.call(line, ADA).await;
            let left = answer.headers.get("ratelimit-remaining").map(|left| left.to_str().unwrap().to_owned());
            (answer.status, left.unwrap_or_default(), String::from_utf8(answer.body).unwrap())
        };
        for (line, status, expected, body) in [
            ("GET /health", 200, "", ""),
            ("GET /", 200, "6", ""),
            // The header does not include the refund yet.
            ("GET /fail", 500, "2", ""),
            ("GET /", 200, "2", ""),
            ("POST /export", 429, "2", "slow down"),
        ] {
            assert_eq!(left(line).await, (status, expected.into(), body.into()), "{line}");
        }
    }
}

#[tokio::test]
async fn the_deny_list_applies_to_addresses_found_by_the_extractor_of_any_rule() {
    use tollgate::{
        MemoryBackend,
        protection::{DenyList, DenyRule},
    };
    let list = DenyList::from_iter([DenyRule::network("127.0.0.0/8").unwrap()]);
    let limiter = RateLimiter::builder(MemoryBackend::new()).deny_list(&list).build();
    let limits = RouteLimits::new(user)
        .policy(policy("read", 10))
        .rule(Rule::new(policy("login", 10), key::client_ip()))
        .limiter(&limiter);
    let server = serve(routes().layer(limits.table([("GET /", "read"), ("POST /export", "login")]))).await;
    for line in ["GET /", "POST /export"] {
        assert_eq!(server.call(line, ADA).await.status, 429, "{line}");
    }
}

#[cfg(feature = "wait")]
#[tokio::test]
async fn requests_are_delayed_only_by_rules_with_wait_up_to() {
    let paced = |name| Policy::new(name, Quota::token_bucket(10, SECOND).capacity(1).max_reserved(5));
    let limits = RouteLimits::new(user)
        .policy(paced("hurried"))
        .rule(Rule::new(paced("patient"), user).wait_up_to(SECOND))
        .group("both", ["hurried", "patient"]);
    let layer = limits.table([("GET /", "hurried"), ("POST /export", "patient"), ("GET /fail", "both")]);
    let server = serve(routes().layer(layer)).await;
    let statuses = async |line: &str, lines: &[&str]| {
        [server.call(line, lines).await.status, server.call(line, lines).await.status]
    };
    let began = std::time::Instant::now();
    assert_eq!(statuses("POST /export", ADA).await, [200, 200]);
    assert!(began.elapsed() >= std::time::Duration::from_millis(80), "{:?}", began.elapsed());
    // The rule that does not wait denies the request, although the group's other rule would wait.
    assert_eq!(statuses("GET /fail", &["x-user: bob"]).await, [500, 429]);
}

#[cfg(feature = "wait")]
#[test]
fn wait_up_to_can_be_configured_if_any_policy_allows_reservations() {
    let limits = RouteLimits::new(user)
        .policy(policy("read", 10))
        .policy(Policy::new("queue", Quota::per_second(1).max_reserved(5)))
        .configure(|layer| layer.wait_up_to(SECOND));
    let _layers = (limits.route("read"), limits.route("queue"), limits.table([("/", "read")]));
}

#[tokio::test]
async fn a_rule_that_rejects_requests_without_a_key_does_not_affect_other_routes() {
    let (limiter, _clock) = limiter();
    let tenant = |req: &Parts| header(req, "x-tenant");
    let limits = RouteLimits::new(user)
        .policy(policy("read", 10))
        .rule(Rule::new(policy("tenant", 10), tenant.or_reject()))
        .limiter(&limiter);
    let server = serve(routes().layer(limits.table([("GET /", "read"), ("POST /export", "tenant")]))).await;
    assert_eq!(server.call("GET /", &["x-user: ada"]).await.status, 200);
    assert_eq!(server.call("POST /export", &["x-user: ada"]).await.status, 400);
    assert_eq!(server.call("POST /export", ADA).await.status, 200);
}
