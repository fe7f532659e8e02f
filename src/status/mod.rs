//! Endpoints that tell clients how their limits stand, so that a limited user sees a disabled button and a countdown,
//! and not an error.
//!
//! ```
//! use axum::{routing::post, Router};
//! use tollgate::{key, status, Policy, Quota, RateLimitLayer, RateLimiter, MINUTE};
//!
//! static CHAT: Policy = Policy::new("chat", Quota::token_bucket(10, MINUTE).capacity(20));
//!
//! let limiter = RateLimiter::default();
//! let app: Router = Router::new()
//!     .route("/chat", post(|| async {}).layer(RateLimitLayer::new(&CHAT, key::client_ip()).limiter(&limiter)))
//!     .route("/rate-limit", status::of(&limiter, &CHAT, key::client_ip()))
//!     .route("/time", status::time(&limiter));
//! ```
//!
//! `GET /rate-limit` answers a [snapshot](crate::limiter::Snapshot::to_json) of the caller's own limit:
//!
//! ```json
//! {"policy":"chat","algorithm":"token_bucket","rate":10,"period":60000000,"capacity":20,"start":0,"max_reserved":0,
//!  "spent":3,"previous":0,"ts":1767225600000000,"now":1767225600123456}
//! ```
//!
//! With it a client can tell by itself, at any later instant, how many tokens there are and when a request will pass:
//! by the arithmetic of [`algorithm`](crate::algorithm), which the browser package `tollgate-client` does in
//! TypeScript, to the same last bit. So it need not ask again while it waits, only after others may have spent.
//!
//! A caller who is [blocked](crate::protection::AutoBlock), or on a [deny list](crate::protection::DenyList), is told `not_before` as well:
//! nothing is allowed before that instant, whatever the rest says. It does not say why.
//!
//! # Whose limit
//! The caller's own, as the key extractor tells: the same one that the [layer](crate::RateLimitLayer) has. Nothing else
//! in the request has a say, be it in the query, the path, the body or a header that the extractor does not look at.
//! Put the endpoint where the extractor finds what it needs: inside authentication, under the same path parameters.
//! [`of_layer`] takes rules, keys and limiter from the layer itself, so that the two cannot differ.
//!
//! Reading consumes nothing and writes nothing. Answers are `Cache-Control: private, no-store`. Only `GET` and `HEAD`
//! are answered; CORS is left to the application.
//!
//! # Who asks too often
//! These endpoints are not limited, unless they are inside a layer. Each answer costs a look at the backend, so give
//! them a limit of their own (inside the limit that it is about, a limited user could not ask how long to wait):
//!
//! ```
//! # use axum::Router;
//! # use tollgate::{key, status, Policy, Quota, RateLimitLayer, RateLimiter, MINUTE};
//! # static CHAT: Policy = Policy::new("chat", Quota::token_bucket(10, MINUTE));
//! const STATUS: Policy = Policy::new("status", Quota::token_bucket(60, MINUTE));
//!
//! # let limiter = RateLimiter::default();
//! let polite = RateLimitLayer::new(STATUS, key::client_ip()).limiter(&limiter);
//! let app: Router = Router::new()
//!     .route("/rate-limit", status::of(&limiter, &CHAT, key::client_ip()))
//!     .route("/time", status::time(&limiter))
//!     .layer(polite);
//! ```

mod named;

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};

use crate::limiter::{RateLimiter, Snapshot};
use crate::middleware::RateLimitLayer;
use crate::middleware::key::KeyExtractor;
use crate::policy::Policy;

pub use named::of_subject;

/// How the caller's limit under one policy stands: a [snapshot](crate::limiter::Snapshot::to_json). See the [module](self).
///
/// A caller whom `key` [skips](crate::key::Extraction::skip) has no limit and is answered as by [`of_layer`]; one whom
/// it refuses, or a backend that cannot tell, as the layer would.
///
/// ```
/// use axum::{body::Body, extract::Request, Router};
/// use tollgate::{key, status, Policy, Quota, RateLimiter, MINUTE};
/// use tower::ServiceExt;
///
/// static CHAT: Policy = Policy::new("chat", Quota::token_bucket(10, MINUTE));
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = RateLimiter::default();
/// let user = || key::header("x-user"); // checked, or set, by the gateway in front
/// let app: Router = Router::new().route("/rate-limit", status::of(&limiter, &CHAT, user()));
/// let request = Request::get("/rate-limit").header("x-user", "ada").body(Body::empty())?;
/// let body = axum::body::to_bytes(app.oneshot(request).await?.into_body(), 1000).await?;
/// assert!(body.starts_with(br#"{"policy":"chat","algorithm":"token_bucket","rate":10,"#));
/// # Ok(())
/// # }
/// ```
///
/// # Panics
/// If a bare quota refuses everything (capacity 0 without reservations).
#[track_caller]
pub fn of<S>(limiter: &RateLimiter, policy: impl Into<Policy>, key: impl KeyExtractor) -> MethodRouter<S>
where
    S: Clone + Send + Sync + 'static,
{
    of_layer(&RateLimitLayer::new(policy, key).limiter(limiter))
}

/// How the caller's limits stand under all that a layer limits by: its limiter, its keys, its tiers, whom it skips.
///
/// ```
/// use axum::{routing::post, Router};
/// use tollgate::{key, status, Policy, Quota, RateLimitLayer, RouteLimits, DAY, MINUTE};
///
/// const CHAT: Policy = Policy::new("chat", Quota::token_bucket(10, MINUTE));
/// const DAILY: Policy = Policy::new("daily", Quota::fixed_window(500, DAY));
///
/// let layer = RateLimitLayer::new(CHAT, key::client_ip()).and(DAILY, key::client_ip());
/// let app: Router = Router::new()
///     .route("/chat", post(|| async {}).layer(layer.clone()))
///     .route("/rate-limit", status::of_layer(&layer));
///
/// // That of one route:
/// let routes = RouteLimits::new(key::client_ip()).policy(CHAT).policy(DAILY);
/// let app: Router = Router::new()
///     .route("/chat", post(|| async {}).layer(routes.route("chat")))
///     .route("/chat/rate-limit", status::of_layer(&routes.route("chat")));
/// ```
///
/// With one policy the answer is its snapshot. With several, and to a caller who is not limited (none), it is
///
/// ```json
/// {"limits": [..], "now": 1767225600123456}
/// ```
///
/// Of a layer that chooses a policy by route, all of its policies are there, each under its name: which of them a
/// request would fall under, the client knows. Who is not held to a limit ([shadow mode](RateLimitLayer::shadow)) is
/// told of none.
///
/// What is told is exact: [jitter](RateLimitLayer::retry_jitter) has no part in it. A client that waits with many
/// others adds its own.
pub fn of_layer<S>(layer: &RateLimitLayer) -> MethodRouter<S>
where
    S: Clone + Send + Sync + 'static,
{
    let layer = layer.clone();
    get(move |request: Request| async move {
        let (parts, _body) = request.into_parts();
        let (limits, now) = match layer.status_report(&parts).await {
            Ok(standing) => standing,
            Err(refusal) => return refusal.map(Into::into),
        };
        if let ([limit], true) = (&limits[..], layer.has_one_policy()) {
            return json(limit.to_json());
        }
        let limits: Vec<String> = limits.iter().map(Snapshot::to_json).collect();
        json(format!(r#"{{"limits":[{}],"now":{}}}"#, limits.join(","), now.get()))
    })
}

/// The server's time by which limits are decided, that of the limiter's backend: `{"now": 1767225600123456}`, in
/// microseconds since the Unix epoch.
///
/// Snapshots tell it too. This is for clients that have a snapshot from elsewhere: from the page they were served, say.
///
/// ```
/// use axum::Router;
/// use tollgate::{status, RateLimiter};
///
/// let limiter = RateLimiter::default();
/// let app: Router = Router::new().route("/time", status::time(&limiter));
/// ```
pub fn time<S>(limiter: &RateLimiter) -> MethodRouter<S>
where
    S: Clone + Send + Sync + 'static,
{
    let limiter = limiter.clone();
    get(move || async move { limiter.now().await.map(|now| json(format!(r#"{{"now":{}}}"#, now.get()))) })
}

fn json(body: String) -> Response {
    // One caller's, as of this instant. What is not stored is not told to anybody else, so there is nothing to vary by.
    ([(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "private, no-store")], body).into_response()
}
