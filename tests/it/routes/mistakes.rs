//! Mistakes that would disable a limit or leave a route without one. Where possible, a mistake causes a panic at
//! startup. All other mistakes are counted, but reported only once.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::middleware::{Next, from_fn};
use axum::routing::{get, post};
use tollgate::{
    Charge, MINUTE, MemoryBackend, Policy, Quota, RateLimitLayer, RateLimiter, RouteLimits, Rule, Subject,
    clock::ManualClock,
    key::{self, KeyExtractor},
    observe::{Decided, Mistake, MistakeKind, Observer},
};

use super::app::{call, policy, quota_headers, user};

#[derive(Clone, Default)]
struct Reports(Arc<Mutex<Vec<(MistakeKind, String)>>>);

impl Reports {
    fn limiter(&self) -> RateLimiter {
        let backend = MemoryBackend::builder().clock(ManualClock::new()).build();
        RateLimiter::builder(backend).observer(self.clone()).build()
    }

    fn take(&self) -> Vec<(MistakeKind, String)> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl Observer for Reports {
    fn decided(&self, _: &Decided<'_>) {}

    fn mistake(&self, mistake: &Mistake) {
        self.0.lock().unwrap().push((mistake.kind(), mistake.to_string()));
    }
}

#[track_caller]
fn panic_of<T>(build: impl FnOnce() -> T) -> String {
    let Err(panic) = catch_unwind(AssertUnwindSafe(build)) else { panic!("expected a panic") };
    *panic.downcast::<String>().expect("expected a `String`")
}

fn hello() -> Router {
    Router::new().route("/", get(|| async { "hello" }))
}

#[tokio::test]
async fn policies_with_the_same_name_and_different_quotas_are_reported_once() {
    let reports = Reports::default();
    let limiter = reports.limiter();
    let layer = |policy: Policy| RateLimitLayer::new(policy, user).limiter(&limiter);
    let _app = hello().layer(layer(policy("api", 10))).layer(layer(policy("other", 10)));
    assert_eq!(reports.take(), []);
    let _app = hello().layer(layer(policy("api", 10)));
    assert_eq!((reports.take(), limiter.stats().mistakes.policy_conflicts), (vec![], 0));

    let _app = hello().layer(layer(policy("api", 20)));
    let text = "two policies named \"api\" have different quotas (10/min and 20/min), but share the same \
                rows; rename one of them";
    assert_eq!(reports.take(), [(MistakeKind::PolicyConflict, text.to_owned())]);
    // Further conflicts over the same name are counted but not reported.
    let _app = hello().layer(layer(Policy::new("api", Quota::sliding_window(10, MINUTE))));
    let _app = hello().layer(layer(policy("api", 10).tier("free", Quota::per_minute(5))));
    assert_eq!((reports.take(), limiter.stats().mistakes.policy_conflicts), (vec![], 3));
}

#[tokio::test]
async fn a_policy_that_conflicts_with_a_layers_policy_is_reported_on_first_use() {
    static API: Policy = policy("api", 10);
    static MORE: Policy = policy("api", 1000);
    let reports = Reports::default();
    let limiter = reports.limiter();
    let _app = hello().layer(RateLimitLayer::new(&API, user).limiter(&limiter));
    for _ in 0..3 {
        limiter.limit(&API, "ada").await.unwrap();
        limiter.limit_all([Charge::new(&policy("api", 10), "ada")]).await.unwrap();
    }
    assert_eq!(reports.take(), []);
    for _ in 0..3 {
        limiter.limit(&MORE, "ada").await.unwrap();
    }
    let [(kind, text)] = &reports.take()[..] else { panic!("expected exactly one report") };
    assert!(*kind == MistakeKind::PolicyConflict && text.contains("10/min and 1000/min"), "{text}");
    assert_eq!(limiter.stats().mistakes.policy_conflicts, 1);
}

#[test]
fn two_policies_with_the_same_name_in_one_layer_cause_a_panic() {
    let text = panic_of(|| RateLimitLayer::new(policy("api", 10), user).and(policy("api", 20), key::global()));
    assert!(text.contains("two rules in one layer have a policy named \"api\""), "{text}");
    let text = panic_of(|| RouteLimits::new(user).policy(policy("api", 10)).default_policy(policy("api", 20)));
    assert!(text.contains("two policies or groups named \"api\""), "{text}");
}

#[tokio::test]
async fn a_misspelled_tier_is_reported_once_with_the_nearest_name() {
    let reports = Reports::default();
    let limiter = reports.limiter();
    let api = policy("api", 10).tier("free", Quota::per_minute(60)).tier("premium", Quota::per_minute(200));
    let plain = policy("plain", 10);
    for i in 0..5 {
        for tier in ["premuim", "gold"] {
            limiter.limit(&api, Subject::new(i).tier(tier)).await.unwrap();
        }
        limiter.limit(&plain, Subject::new(i).tier("premium")).await.unwrap();
        limiter.limit(&api, Subject::new(i).tier("premium")).await.unwrap();
        limiter.limit(&api, i).await.unwrap();
    }
    let text = "policy \"api\" has no tier";
    let suffix = "so callers with this tier get the policy's own quota, 10/min";
    assert_eq!(
        reports.take(),
        [
            (MistakeKind::UnknownTier, format!("{text} \"premuim\", {suffix}; did you mean \"premium\"?")),
            (MistakeKind::UnknownTier, format!("{text} \"gold\", {suffix}; its tiers are [\"free\", \"premium\"]")),
        ]
    );
    assert_eq!(limiter.stats().mistakes.unknown_tiers, 10);
}

#[tokio::test]
async fn the_number_of_reported_unknown_tiers_is_bounded() {
    let reports = Reports::default();
    let limiter = reports.limiter();
    let api = policy("api", 10).tier("free", Quota::per_minute(60));
    for i in 0..2000 {
        limiter.limit(&api, Subject::new(i).tier(format!("{i}{}", "x".repeat(10_000)))).await.unwrap();
    }
    let reported = reports.take();
    assert!((100..=256).contains(&reported.len()), "{} tiers were reported", reported.len());
    assert!(reported.iter().all(|(_, text)| text.len() < 300));
    assert_eq!(limiter.stats().mistakes.unknown_tiers, 2000);
}

#[derive(Clone)]
struct User(u64);

async fn authenticate(mut request: Request, next: Next) -> axum::response::Response {
    request.extensions_mut().insert(User(7));
    next.run(request).await
}

#[tokio::test]
async fn a_missing_extension_is_reported_once_with_its_type_and_the_remedy() {
    let by_user = || key::extension(|user: &User| user.0);
    let later = |_: &Parts| key::Extraction::later(async { None::<u64> });
    for by in [
        Box::new(by_user()) as Box<dyn KeyExtractor>,
        Box::new(by_user().or(by_user()).map(|caller| caller.tier("free"))),
        Box::new(by_user().and(user)),
        Box::new(by_user().or(later)),
    ] {
        let reports = Reports::default();
        let limiter = reports.limiter();
        let layer = RateLimitLayer::new(policy("api", 100), by).limiter(&limiter);
        // The extension exists only inside the authentication layer.
        let inside = hello().layer(layer.clone()).layer(from_fn(authenticate));
        call(&inside, "GET /", &["x-user: ada"]).await;
        assert_eq!((reports.take(), limiter.stats().mistakes.missing_extensions), (vec![], 0));
        let outside = hello().layer(from_fn(authenticate)).layer(layer);
        for _ in 0..3 {
            call(&outside, "GET /", &["x-user: ada"]).await;
        }
        let [(kind, text)] = &reports.take()[..] else { panic!("expected exactly one report") };
        assert_eq!(*kind, MistakeKind::MissingExtension);
        assert!(text.contains("::User`") && text.contains("outside of the rate limiter"), "{text}");
        assert_eq!(limiter.stats().mistakes.missing_extensions, 3);
    }
}

#[tokio::test]
async fn a_missing_extension_is_not_reported_if_the_extractor_handles_it() {
    let by_user = || key::extension(|user: &User| user.0);
    let expected: [Box<dyn KeyExtractor>; 3] =
        [Box::new(by_user().or(user)), Box::new(by_user().or_skip()), Box::new(by_user().or_reject())];
    for by in expected {
        let reports = Reports::default();
        let limiter = reports.limiter();
        let app = hello().layer(RateLimitLayer::new(policy("api", 100), by).limiter(&limiter));
        call(&app, "GET /", &["x-user: ada"]).await;
        assert_eq!((reports.take(), limiter.stats().mistakes.missing_extensions), (vec![], 0));
    }
}

#[test]
fn table_lines_that_can_never_match_cause_a_panic() {
    let limits = || RouteLimits::new(key::global()).policy(policy("api", 10));
    for (line, fault) in [
        ("/users/:id", "write \"{id}\" for \":id\""),
        ("GET /files/*rest", "write \"{id}\" for \":id\", and \"{*rest}\" for \"*rest\""),
        ("GTE /search", "has the method \"GTE\"; did you mean \"GET\"?"),
        ("PSOT /search", "did you mean \"POST\"?"),
        ("OPTION /search", "did you mean \"OPTIONS\"?"),
        ("/search?q=1", "write just the path"),
        ("/users/{id", "an unmatched brace"),
        ("get /search", "has no valid method"),
    ] {
        let text = panic_of(|| limits().table([(line, "api")]));
        assert!(text.starts_with(&format!("tollgate: {line:?} ")) && text.contains(fault), "{text}");
    }
    let _ = limits().table([("PROPFIND /dav/{*path}", "api"), ("PURGE /cache", "api"), ("/{{literal}}", "api")]);
}

#[tokio::test]
async fn a_table_line_ignores_a_trailing_slash_unless_both_spellings_are_listed() {
    let limits = RouteLimits::new(key::global()).policy(policy("a", 100)).policy(policy("b", 100));
    let handler = || get(|| async {}).post(|| async {});
    let app = Router::new()
        .route("/search", handler())
        .route("/todos/", handler())
        .route("/both", handler())
        .route("/both/", handler())
        .nest("/api", Router::new().route("/", handler()))
        .layer(limits.limiter(&Reports::default().limiter()).table([
            ("/search/", "a"),
            ("POST /todos", "a"),
            ("/both", "a"),
            ("GET /both/", "b"),
            ("/api/", "b"),
        ]));
    for (line, name, left) in [
        ("GET /search", "a", 99),
        ("POST /todos/", "a", 98),
        ("GET /both", "a", 97),
        ("GET /both/", "b", 99),
        ("GET /api", "b", 98),
    ] {
        assert_eq!(quota_headers(&call(&app, line, &[]).await), (name.to_owned(), 100, left), "{line}");
    }
    assert!(!call(&app, "POST /both/", &[]).await.headers.contains_key("ratelimit"));
}

#[tokio::test]
async fn unused_lines_are_listed_and_unmatched_requests_are_counted() {
    let limits = RouteLimits::new(key::global()).policy(policy("api", 100)).limiter(&Reports::default().limiter());
    let layer = limits.table([("POST /todo", "api"), ("/users/{id}", "api"), ("GET /search", "api")]);
    let app = Router::new()
        .route("/todos", post(|| async {}))
        .route("/users/{id}", get(|| async {}))
        .route("/search", get(|| async {}))
        .layer(layer.clone());
    assert_eq!(layer.unused_routes(), ["POST /todo", "/users/{id}", "GET /search"]);
    for line in ["POST /todos", "GET /users/7", "HEAD /search", "POST /todos", "GET /nowhere"] {
        call(&app, line, &[]).await;
    }
    assert_eq!((layer.unused_routes(), layer.unmatched_requests()), (vec!["POST /todo"], 3));
    let none = RateLimitLayer::new(policy("api", 1), user);
    assert_eq!((none.unused_routes(), none.unmatched_requests()), (Vec::<&str>::new(), 0));
}

#[test]
fn adding_a_layer_panics_if_any_tier_can_never_grant_the_fixed_cost() {
    let free = |rate| policy("api", 60).tier("free", Quota::per_minute(rate));
    let limits = || RouteLimits::new(user).policy(free(5)).limiter(&Reports::default().limiter());
    let text = "tollgate: policy \"api\", tier \"free\": every request costs 10, but the quota 5/min holds at most 5, so no \
                request would be allowed; raise its capacity, or lower the cost";
    for layer in [
        RateLimitLayer::new(free(5), user).fixed_cost(10),
        RateLimitLayer::from(Rule::new(free(5), user).fixed_cost(10)),
        RateLimitLayer::new(policy("other", 60), user).rule(Rule::new(free(5), user)).fixed_cost(10),
        limits().route("api").fixed_cost(10),
        limits().table([("/export", "api")]).fixed_cost(10),
        limits().choose(|_| None).fixed_cost(10),
    ] {
        assert_eq!(panic_of(|| hello().layer(layer)), text);
    }
    let own = panic_of(|| hello().layer(RateLimitLayer::new(policy("api", 5), user).fixed_cost(10)));
    assert!(own.starts_with("tollgate: policy \"api\": every request costs 10, but the quota 5/min"), "{own}");

    let _ = hello().layer(RateLimitLayer::new(free(10), user).fixed_cost(10));
    let _ = hello().layer(RateLimitLayer::from(Rule::new(free(5), user).fixed_cost(1)).fixed_cost(10));
    let _ = hello().layer(RateLimitLayer::new(free(5), user).fixed_cost(10).fixed_cost(5));
}

#[cfg(feature = "wait")]
#[test]
fn a_fixed_cost_that_reservations_can_cover_is_accepted() {
    let policy = || Policy::new("api", Quota::per_minute(5).max_reserved(10));
    let layer = || RateLimitLayer::new(policy(), user).fixed_cost(10);
    let _ = hello().layer(layer().wait_up_to(10 * MINUTE));
    panic_of(|| hello().layer(layer()));
    panic_of(|| hello().layer(layer().wait_up_to(MINUTE).fixed_cost(16)));
}

#[tokio::test]
async fn an_unknown_name_from_a_closure_is_reported_once_and_counted() {
    let reports = Reports::default();
    let limiter = reports.limiter();
    let limits = RouteLimits::new(user).policy(policy("write", 1)).limiter(&limiter);
    let by_method = |req: &Parts| Some(if req.method.is_safe() { "wirte" } else { "write" });
    let app = Router::new().route("/", get(|| async {}).post(|| async {})).layer(limits.choose(by_method));
    for (line, status) in [("GET /", 200), ("POST /", 200), ("GET /", 200), ("POST /", 429)] {
        assert_eq!(call(&app, line, &["x-user: ada"]).await.status, status);
    }
    assert_eq!(limiter.stats().mistakes.unknown_policies, 2);
    let text = "the closure of `RouteLimits::choose` returned \"wirte\", which is not the name of a policy or a group (did you \
                mean \"write\"?); a request with an unknown name gets the default policy, or no limit if there is none";
    assert_eq!(reports.take(), [(MistakeKind::UnknownPolicy, text.to_owned())]);
}

#[tokio::test]
async fn a_computed_cost_above_the_capacity_is_reported_once_and_counted() {
    let reports = Reports::default();
    let limiter = reports.limiter();
    let by_plan = |req: &Parts| Subject::from(user(req)).tier("free");
    let layer = RateLimitLayer::new(policy("api", 60).tier("free", Quota::per_minute(5)), by_plan).limiter(&limiter);
    let app = hello().layer(layer.cost(|req: &Parts| if req.uri.query().is_some() { 10 } else { 5 }));
    // A denied call that could succeed later is not reported as a mistake.
    for status in [200, 429, 429] {
        assert_eq!(call(&app, "GET /", &["x-user: ada"]).await.status, status);
    }
    assert_eq!((reports.take(), limiter.stats().mistakes.impossible_costs), (vec![], 0));
    for _ in 0..3 {
        assert_eq!(call(&app, "GET /?all", &["x-user: ada"]).await.status, 429);
    }
    let text = "policy \"api\" can never grant a cost of 10: its quota 5/min holds at most 5; raise its capacity, or lower \
                the cost";
    assert_eq!(reports.take(), [(MistakeKind::ImpossibleCost, text.to_owned())]);
    assert_eq!(limiter.stats().mistakes.impossible_costs, 3);
}

#[tokio::test]
async fn grpc_requests_are_refused_with_429_unless_grpc_is_enabled() {
    let reports = Reports::default();
    let limiter = reports.limiter();
    let layer = RateLimitLayer::new(policy("api", 1), key::global()).limiter(&limiter);
    let app = hello().layer(layer.clone());
    let refused = async |app: &Router, version| {
        let request = Request::get("/").version(version).header("content-type", "application/grpc");
        super::app::send(app, request.body(axum::body::Body::empty()).unwrap()).await
    };
    use axum::http::Version;
    assert_eq!(call(&app, "GET /", &[]).await.status, 200);
    let answer = refused(&app, Version::HTTP_11).await;
    assert_eq!((answer.status, answer.headers.contains_key("grpc-status")), (429, false));
    assert_eq!(reports.take(), []);
    for _ in 0..3 {
        assert_eq!(refused(&app, Version::HTTP_2).await.status, 429);
    }
    let [(kind, text)] = &reports.take()[..] else { panic!("expected exactly one report") };
    assert!(*kind == MistakeKind::PlainGrpcRefusal && text.contains("add `.grpc()`"), "{text}");
    assert_eq!(limiter.stats().mistakes.plain_grpc_refusals, 3);

    let answer = refused(&hello().layer(layer.grpc()), Version::HTTP_2).await;
    assert_eq!((answer.status, &answer.headers["grpc-status"]), (200, &"8".parse().unwrap()));
    assert_eq!((reports.take(), limiter.stats().mistakes.plain_grpc_refusals), (vec![], 3));
}

#[tokio::test]
async fn no_header_family_sends_a_reset_time_for_a_cost_above_the_capacity() {
    use tollgate::{HeaderFamily, middleware::ResetUnit};
    let limiter = Reports::default().limiter();
    for (family, expected) in [
        (HeaderFamily::Draft11, vec!["ratelimit-policy: \"api\";q=1;w=60", "ratelimit: \"api\";r=1"]),
        (HeaderFamily::Draft6, vec!["ratelimit-limit: 1", "ratelimit-policy: 1;w=60", "ratelimit-remaining: 1"]),
        (HeaderFamily::XRateLimit(ResetUnit::Seconds), vec!["x-ratelimit-limit: 1", "x-ratelimit-remaining: 1"]),
        (HeaderFamily::XRateLimit(ResetUnit::Epoch), vec!["x-ratelimit-limit: 1", "x-ratelimit-remaining: 1"]),
        (HeaderFamily::None, vec![]),
    ] {
        let layer = RateLimitLayer::new(policy("api", 1), key::global()).limiter(&limiter).headers(family);
        let answer = call(&hello().layer(layer.cost(|_: &Parts| 2)), "GET /", &[]).await;
        let sent = answer
            .headers
            .iter()
            .filter(|(name, _)| name.as_str().contains("ratelimit") || name.as_str().contains("retry"));
        let mut sent: Vec<_> = sent.map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        sent.sort();
        assert_eq!((answer.status, sent.iter().map(String::as_str).collect::<Vec<_>>()), (429, expected));
    }
}
