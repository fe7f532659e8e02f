//! The crate's key extractors in a real router. The tests check which requests share a key.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::extract::{FromRequestParts, MatchedPath, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{self, Next};
use axum::routing::get;
use axum::{Extension, Router};
use tollgate::key::KeyExtractor;
use tollgate::{
    RateLimitLayer, RateLimiter, Subject,
    key::{self, KeyError},
};

use super::app::{call, header, limiter, policy, quota_headers};

fn limited(limiter: &RateLimiter, key: impl KeyExtractor) -> Router {
    let layer = RateLimitLayer::new(policy("five", 5), key).limiter(limiter);
    Router::new().route("/", get(|| async {})).route("/users/{id}", get(|| async {})).layer(layer)
}

/// Sends each request and checks how many tokens its key has left.
async fn assert_left(app: &Router, requests: &[(&str, &[&str], u64)]) {
    for (line, lines, left) in requests {
        assert_eq!(quota_headers(&call(app, line, lines).await).2, *left, "{line} {lines:?}");
    }
}

#[tokio::test]
async fn a_header_a_bearer_token_or_a_cookie_can_be_the_key() {
    let (limiter, _clock) = limiter();
    let app = limited(&limiter, key::header("x-api-key"));
    assert_left(
        &app,
        &[
            ("GET /", &["x-api-key: k1"], 4),
            ("GET /", &["X-Api-Key: k1"], 3),
            ("GET /users/7", &["x-api-key: k1"], 2),
            ("GET /", &["x-api-key: K1"], 4),
            // Callers are anonymous if the header is missing, empty or repeated.
            ("GET /", &[], 4),
            ("GET /", &["x-api-key: "], 3),
            ("GET /", &["x-api-key: k1", "x-api-key: k2"], 2),
        ],
    )
    .await;
    assert_eq!(limiter.remaining(&policy("five", 5), key::header("x-api-key").key("k1")).await.unwrap(), 2);

    let app = limited(&super::app::limiter().0, key::bearer());
    assert_left(
        &app,
        &[
            ("GET /", &["authorization: Bearer t1"], 4),
            ("GET /", &["authorization: bearer t1"], 3),
            ("GET /", &["authorization: Bearer t2"], 4),
            ("GET /", &["authorization: Basic t1"], 4),
            ("GET /", &["authorization: Bearer t1", "authorization: Bearer t2"], 3),
        ],
    )
    .await;

    let app = limited(&super::app::limiter().0, key::cookie("sid"));
    assert_left(
        &app,
        &[
            ("GET /", &["cookie: sid=1"], 4),
            ("GET /", &["cookie: theme=dark; sid=1; x=y"], 3),
            ("GET /", &["cookie: theme=dark", "cookie: sid=1"], 2),
            ("GET /", &["cookie: sid=2"], 4),
            ("GET /", &["cookie: xsid=1"], 4),
            ("GET /", &["cookie: sid=1; sid=2"], 3),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_refusal_does_not_contain_the_key() {
    let secret = "sk-Zq81hs";
    let app = limited(&limiter().0, key::header("x-api-key"));
    for _ in 0..5 {
        call(&app, "GET /", &[&format!("x-api-key: {secret}")]).await;
    }
    let refused = call(&app, "GET /", &[&format!("x-api-key: {secret}")]).await;
    assert_eq!(refused.status, 429);
    assert!(
        !format!("{:?}", refused.headers).contains(secret) && !String::from_utf8_lossy(&refused.body).contains(secret)
    );
}

#[tokio::test]
async fn a_path_parameter_can_be_the_key() {
    let app = limited(&limiter().0, key::path("id"));
    assert_left(
        &app,
        &[
            ("GET /users/7", &[], 4),
            ("GET /users/7?x=8", &[], 3),
            ("GET /users/%37", &[], 2),
            ("GET /users/8", &[], 4),
            // Requests to a route without the parameter and requests that match no route share one bucket.
            ("GET /", &[], 4),
            ("GET /nowhere/7", &[], 3),
        ],
    )
    .await;
}

#[derive(Clone)]
struct User {
    id: u64,
    plan: &'static str,
}

#[tokio::test]
async fn an_authentication_extension_can_provide_the_key() {
    async fn authenticate(mut request: Request, next: Next) -> axum::response::Response {
        if let Some(id) = request.headers().get("x-user").and_then(|id| id.to_str().ok()?.parse().ok()) {
            request.extensions_mut().insert(User { id, plan: if id < 10 { "staff" } else { "free" } });
        }
        next.run(request).await
    }
    let policy = policy("five", 5).tier("staff", tollgate::Quota::token_bucket(50, tollgate::MINUTE));
    let by_user = key::extension(|user: &User| Subject::new(user.id).tier(user.plan));
    let layer = RateLimitLayer::new(policy, by_user).limiter(&limiter().0);
    let whoami = |Extension(user): Extension<User>| async move { user.id.to_string() };
    // The layer that is added last runs first.
    let app = Router::new().route("/", get(whoami)).layer(layer).layer(middleware::from_fn(authenticate));
    assert_left(
        &app,
        &[
            ("GET /", &["x-user: 7"], 49),
            ("GET /", &["x-user: 70"], 4),
            ("GET /", &["x-user: 70"], 3),
            ("GET /", &[], 4),
        ],
    )
    .await;
    assert_eq!(call(&app, "GET /", &["x-user: 7"]).await.body, b"7", "the handler must still find the extension");
}

#[derive(Clone)]
struct Sessions(Arc<AtomicUsize>);

/// An asynchronous axum extractor that needs the application's state.
struct Session(u64);

impl FromRequestParts<Sessions> for Session {
    type Rejection = StatusCode;

    async fn from_request_parts(parts: &mut Parts, sessions: &Sessions) -> Result<Session, StatusCode> {
        let session = header(parts, "x-session").ok_or(StatusCode::UNAUTHORIZED)?;
        tokio::task::yield_now().await;
        sessions.0.fetch_add(1, Ordering::Relaxed);
        // Extensions that an extractor inserts must not reach the handler.
        parts.extensions.insert(User { id: 0, plan: "left behind" });
        session.strip_prefix("user ").and_then(|id| id.parse().ok()).map(Session).ok_or(StatusCode::FORBIDDEN)
    }
}

#[tokio::test]
async fn an_extractor_that_needs_state_can_provide_the_key() {
    let sessions = Sessions(Arc::default());
    let by_session = || key::from_extractor(sessions.clone(), |session: Session| session.0);
    let app = limited(&limiter().0, by_session());
    assert_left(
        &app,
        &[
            ("GET /", &["x-session: user 7"], 4),
            ("GET /users/1", &["x-session: user 7"], 3),
            ("GET /", &["x-session: user 8"], 4),
            ("GET /", &["x-session: forged"], 4),
            ("GET /", &[], 3),
        ],
    )
    .await;
    assert_eq!(sessions.0.load(Ordering::Relaxed), 4, "expected one lookup per request with `x-session`");

    let app = limited(&limiter().0, by_session().or_reject());
    assert_eq!(call(&app, "GET /", &["x-session: forged"]).await.status, 400);
    assert_eq!(call(&app, "GET /", &["x-session: user 7"]).await.status, 200);
    let untouched = |extension: Option<Extension<User>>| async move { extension.is_none().to_string() };
    let layer = RateLimitLayer::new(policy("five", 5), by_session()).limiter(&limiter().0);
    let app = Router::new().route("/", get(untouched)).layer(layer);
    assert_eq!(call(&app, "GET /", &["x-session: user 7"]).await.body, b"true");
}

#[tokio::test]
async fn axum_extractors_can_provide_the_key() {
    let by_query = key::from_extractor((), |Query(query): Query<Vec<(String, String)>>| {
        query.into_iter().find(|(name, _)| name == "tenant").map(|(_, tenant)| tenant)
    });
    let app = limited(&limiter().0, by_query);
    assert_left(&app, &[("GET /?tenant=a", &[], 4), ("GET /users/7?x=1&tenant=a", &[], 3), ("GET /?tenant=b", &[], 4)])
        .await;

    let by_path = key::from_extractor((), |Path(id): Path<u64>| id);
    let app = limited(&limiter().0, by_path);
    assert_left(
        &app,
        &[("GET /users/7", &[], 4), ("GET /users/07", &[], 3), ("GET /users/x", &[], 4), ("GET /", &[], 3)],
    )
    .await;

    let by_route = key::from_extractor((), |route: MatchedPath| route.as_str().to_owned());
    let app = limited(&limiter().0, by_route);
    assert_left(&app, &[("GET /users/7", &[], 4), ("GET /users/8", &[], 3), ("GET /", &[], 4)]).await;

    let both = key::from_extractor((), |(Path(id), headers): (Path<u64>, HeaderMap)| match headers.get("x-tenant") {
        Some(tenant) => Ok(format!("{id} {tenant:?}")),
        None => Err(KeyError::new("no tenant").with_status(StatusCode::UNAUTHORIZED)),
    });
    let app = limited(&limiter().0, both);
    assert_left(&app, &[("GET /users/7", &["x-tenant: a"], 4), ("GET /users/7", &["x-tenant: b"], 4)]).await;
    assert_eq!(call(&app, "GET /users/7", &[]).await.status, 401);
}

#[tokio::test]
async fn extractors_can_be_combined() {
    let key = key::header("x-api-key").and(key::path("id")).or(key::cookie("sid")).map(|subject| subject.tier("any"));
    let app = limited(&limiter().0, key);
    assert_left(
        &app,
        &[
            ("GET /users/7", &["x-api-key: k"], 4),
            ("GET /users/8", &["x-api-key: k"], 4),
            ("GET /users/7", &["x-api-key: k", "cookie: sid=1"], 3),
            // If either key of the pair is missing, the next extractor is used.
            ("GET /", &["x-api-key: k", "cookie: sid=1"], 4),
            ("GET /users/7", &["cookie: sid=1"], 3),
            ("GET /", &["x-api-key: k"], 4),
        ],
    )
    .await;
}
