//! Options for shadow mode, headers, status and refusals.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Response;

use super::RateLimitLayer;
use crate::middleware::headers::{HeaderFamily, field_name};
use crate::middleware::refusal::Refusal;

impl RateLimitLayer {
    /// Enables shadow mode, in which you can try a limit on live traffic. The limiter decides and counts requests but
    /// never refuses them, and clients see no rate limit headers. A request that would have been refused is not
    /// charged, and its [`RateLimitStatus::is_shadowed`](crate::RateLimitStatus::is_shadowed) is true. To try one of
    /// several rules, use [`Policy::enforce`](crate::Policy::enforce).
    ///
    /// ```
    /// # use axum::{body::Body, extract::Request, routing::get, Router};
    /// # use tollgate::{key, Quota, RateLimitLayer, MINUTE};
    /// # use tower::ServiceExt;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let layer = RateLimitLayer::new(Quota::token_bucket(1, MINUTE), key::global()).shadow().shadow_header("x-limited");
    /// let app: Router = Router::new().route("/", get(|| async { "hello" })).layer(layer);
    /// let first = app.clone().oneshot(Request::new(Body::empty())).await?;
    /// let second = app.clone().oneshot(Request::new(Body::empty())).await?;
    /// assert_eq!((first.status().as_u16(), first.headers().get("x-limited")), (200, None));
    /// assert_eq!((second.status().as_u16(), second.headers()["x-limited"].to_str()?), (200, "denied"));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn shadow(self) -> RateLimitLayer {
        self.enforce_share(0.0)
    }

    /// Enforces the limit for a share of the keys, from 0.0 to 1.0, and applies [shadow mode](RateLimitLayer::shadow)
    /// to the other keys. Use this to roll out a limit step by step.
    ///
    /// A limit is enforced only if both the layer and the [policy](crate::Policy::enforce) enforce it. The first rule
    /// that does not skip the request provides the key. The limiter's
    /// [secret](crate::limiter::RateLimiterBuilder::secret) determines which keys are in the share, and a larger share
    /// includes all keys of a smaller share. By default, the secret is random, so each limiter and each process selects
    /// different keys. All callers without a key count as one key. If the key extractor fails, the request is refused
    /// only if the share is 1.0.
    ///
    /// # Panics
    /// Panics if `share` is not between 0.0 and 1.0.
    #[track_caller]
    #[must_use]
    pub fn enforce_share(mut self, share: f64) -> RateLimitLayer {
        assert!((0.0..=1.0).contains(&share), "tollgate: the share to enforce is {share}; it must be from 0.0 to 1.0");
        self.options_mut().enforced_below = (share < 1.0).then_some((share * u64::MAX as f64) as u64);
        self
    }

    /// Adds a header with this name and the value `denied` to the response if the request would have been refused
    /// without [`shadow`](RateLimitLayer::shadow) mode. The header is meant for the access log. By default, no header
    /// is added.
    ///
    /// # Panics
    /// Panics if `name` is not a valid header name in lower case.
    #[track_caller]
    #[must_use]
    pub fn shadow_header(mut self, name: &'static str) -> RateLimitLayer {
        self.options_mut().shadow_header = Some(field_name(name));
        self
    }

    /// Selects the [headers](HeaderFamily) that inform clients about their limits. Defaults to
    /// [`HeaderFamily::Draft11`]. Denials carry `Retry-After` in every family.
    #[must_use]
    pub fn headers(mut self, family: HeaderFamily) -> RateLimitLayer {
        self.options_mut().headers = family;
        self
    }

    /// Responds to refused gRPC requests with a gRPC status: HTTP 200 with `grpc-status: 8` (RESOURCE_EXHAUSTED) or
    /// another suitable code, and the time to wait in `grpc-retry-pushback-ms` and `google.rpc.RetryInfo`.
    ///
    /// Enable this on gRPC services only. The layer detects gRPC by the request's `Content-Type`, which clients choose.
    /// On other services, a client could send a gRPC content type to have its refusals counted as successes. The option
    /// is off by default: gRPC requests are then refused with 429, which gRPC clients report as INTERNAL or
    /// UNAVAILABLE. Such a refusal over HTTP/2 is counted as a [mistake](crate::observe::Mistake), and the first one is
    /// reported to observers. See `docs::grpc` for an example.
    #[must_use]
    pub fn grpc(mut self) -> RateLimitLayer {
        self.options_mut().grpc = true;
        self
    }

    /// Adds a random time of up to `max` to the `Retry-After` of each denial, so that clients that were refused
    /// together do not retry together. `Retry-After` is in whole seconds, rounded up. The default is no extra time.
    #[must_use]
    pub fn retry_jitter(mut self, max: Duration) -> RateLimitLayer {
        self.options_mut().retry_jitter = max;
        self
    }

    /// Inserts a [`RateLimitStatus`](crate::RateLimitStatus) into the extensions of each request that is passed on. See
    /// that type for an example. This is off by default, since extensions require allocations.
    #[must_use]
    pub fn with_status(mut self) -> RateLimitLayer {
        self.options_mut().with_status = true;
        self
    }

    /// Sets a closure that creates the responses to refused requests. The closure usually calls [`Refusal::respond`],
    /// which gives the response the refusal's status: `refusal.respond("application/json", json.to_string())`. See
    /// [`Refusal`] for an example.
    ///
    /// The layer then adds its headers to the response, and also `Retry-After` and `Cache-Control` if they are missing.
    /// If the response already has a `Retry-After` that is earlier than the limiter's, the layer keeps it and omits
    /// `RateLimit`, since the two would contradict each other.
    ///
    /// This closure is not called if a handler returns a [`LimitError`](crate::LimitError). The response then has an
    /// `application/problem+json` body, unless the handler maps the error.
    #[must_use]
    pub fn on_refusal(
        mut self,
        refuse: impl Fn(&Refusal<'_>) -> Response<Bytes> + Send + Sync + 'static,
    ) -> RateLimitLayer {
        self.options_mut().on_refusal = Some(Arc::new(refuse));
        self
    }
}
