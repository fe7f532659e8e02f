//! Endpoints that report a client's limits, for pages that show a disabled button and a countdown instead of an error.
//!
//! ```
//! use axum::{routing::post, Router};
//! use tollgate::{key, status, Policy, Quota, RateLimitLayer, RateLimiter, MINUTE};
//! const CHAT: Policy = Policy::new("chat", Quota::token_bucket(10, MINUTE).capacity(20));
//! const STATUS: Policy = Policy::new("status", Quota::token_bucket(60, MINUTE)); // for the endpoints
//!
//! let limiter = RateLimiter::default();
//! let limit = |policy: Policy| RateLimitLayer::new(policy, key::client_ip()).limiter(&limiter);
//! let chat = limit(CHAT);
//! let endpoints: Router = Router::new()
//!     .route("/rate-limit", status::of(&limiter, CHAT, key::client_ip()))
//!     .route("/rate-limits", status::of_layer(&chat)) // all policies of the layer
//!     .route("/time", status::time(&limiter));
//! let app: Router = Router::new().route("/chat", post(|| async {}).layer(chat)).merge(endpoints.layer(limit(STATUS)));
//! ```
//!
//! `GET /rate-limit` returns a [snapshot](crate::limiter::Snapshot::to_json) of the caller's limit:
//!
//! ```json
//! {"policy":"chat","algorithm":"token_bucket","rate":10,"period":60000000,"capacity":20,"start":0,"max_reserved":0,
//!  "spent":3,"previous":0,"ts":1767225600000000,"now":1767225600123456}
//! ```
//!
//! With the arithmetic of the [`algorithm`](crate::algorithm) module, a client can compute from a snapshot how many
//! tokens are available at any later instant, and when a request will be allowed. The browser package `tollgate-client`
//! implements the same arithmetic in TypeScript, with bit-identical results. The client needs a new snapshot only if
//! other clients may have spent tokens in the meantime.
//!
//! If the caller is [blocked](crate::protection::AutoBlock) or on a [deny list](crate::protection::DenyList), the
//! snapshot also has a `not_before` field, and every request is denied until that instant. The reason is not reported.
//!
//! # Access
//! An endpoint reports the limit for the key that its extractor finds. A request cannot ask for any other key. Use the
//! same extractor as the [layer](crate::RateLimitLayer), or use [`of_layer`]. Put the endpoint where the extractor
//! can find the key: for example, inside the authentication layer, and on a route with the same path parameters.
//!
//! Requests to the endpoints spend no tokens and write nothing. Responses have the header `Cache-Control: private,
//! no-store`. Only `GET` and `HEAD` are supported. The endpoints set no CORS headers.
//!
//! # Limiting these endpoints
//! By default, the endpoints are not limited, and each request reads from the backend. Wrap them in a layer with a
//! separate limit, as in the example above. If the endpoints shared the reported limit, a denied client could not see
//! how long to wait.

mod named;

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};

use crate::limiter::{RateLimiter, Snapshot};
use crate::middleware::RateLimitLayer;
use crate::middleware::key::KeyExtractor;
use crate::policy::Policy;

pub use named::of_any_caller;

/// Creates an endpoint that reports the caller's limit under one policy as a
/// [snapshot](crate::limiter::Snapshot::to_json). If `key` [skips](crate::key::Extraction::skip) the caller, the
/// response contains an empty list, as with [`of_layer`]. If `key` refuses the request or the backend fails, the
/// response is the one that a layer would return.
///
/// # Panics
/// Panics if `policy` is a bare quota that denies everything (capacity 0 and no reservations).
#[track_caller]
pub fn of<S>(limiter: &RateLimiter, policy: impl Into<Policy>, key: impl KeyExtractor) -> MethodRouter<S>
where
    S: Clone + Send + Sync + 'static,
{
    of_layer(&RateLimitLayer::new(policy, key).limiter(limiter))
}

/// Creates an endpoint that reports the caller's limits under all policies of a layer. The endpoint uses the layer's
/// limiter, keys and tiers, and skips the same requests.
///
/// If the layer has one policy, the response is a snapshot. If it has several, the response is an object such as
/// `{"limits": [..], "now": 1767225600123456}`. If the caller has no limits, the list is empty.
///
/// If the layer chooses a policy for each route, the response contains all of the layer's policies, and the client
/// selects one by name. Rules in [shadow mode](crate::policy::Enforce) are not reported. Times are exact and do not
/// include [jitter](RateLimitLayer::retry_jitter).
pub fn of_layer<S>(layer: &RateLimitLayer) -> MethodRouter<S>
where
    S: Clone + Send + Sync + 'static,
{
    let layer = layer.clone();
    get(move |request: Request| async move {
        let (parts, _body) = request.into_parts();
        let (limits, now) = match layer.status_report(&parts).await {
            Ok(report) => report,
            Err(refusal) => return refusal.map(Into::into),
        };
        if let ([limit], true) = (&limits[..], layer.has_one_policy()) {
            return json(limit.to_json());
        }
        let limits: Vec<String> = limits.iter().map(Snapshot::to_json).collect();
        json(format!(r#"{{"limits":[{}],"now":{}}}"#, limits.join(","), now.get()))
    })
}

/// Creates an endpoint that returns the current time of the limiter's backend, in microseconds since the Unix epoch:
/// `{"now": 1767225600123456}`. Snapshots also contain this time, so this endpoint is needed only by clients that get
/// their snapshot in another way, for example embedded in a page.
pub fn time<S>(limiter: &RateLimiter) -> MethodRouter<S>
where
    S: Clone + Send + Sync + 'static,
{
    let limiter = limiter.clone();
    get(move || async move { limiter.now().await.map(|now| json(format!(r#"{{"now":{}}}"#, now.get()))) })
}

fn json(body: String) -> Response {
    // With `no-store`, the `Vary` header is not needed.
    ([(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "private, no-store")], body).into_response()
}
