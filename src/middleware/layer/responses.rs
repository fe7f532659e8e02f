//! Options for headers, status and refusals.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Response;

use super::RateLimitLayer;
use crate::middleware::headers::{HeaderFamily, field_name};
use crate::middleware::refusal::Refusal;

impl RateLimitLayer {
    /// Adds a header with this name and the value `denied` to the response if the request would have been refused, had
    /// all policies been [enforced](crate::Policy::enforce). The header is meant for the access log.
    ///
    /// ```
    /// # use tollgate::{key, policy::Enforce, Policy, Quota, RateLimitLayer, MINUTE};
    /// // Try out a limit on live traffic. Responses to requests over the limit carry `x-limited: denied`.
    /// const TRIAL: Policy = Policy::new("trial", Quota::token_bucket(10, MINUTE)).enforce(Enforce::Never);
    /// RateLimitLayer::new(TRIAL, key::client_ip()).shadow_header("x-limited");
    /// ```
    ///
    /// # Panics
    /// Panics if `name` is not a valid header name in lower case.
    #[track_caller]
    #[must_use]
    pub fn shadow_header(mut self, name: &'static str) -> RateLimitLayer {
        self.options_mut().shadow_header = Some(field_name(name));
        self
    }

    /// Selects the [headers](HeaderFamily) that describe the limits. Defaults to [`HeaderFamily::Draft11`].
    #[must_use]
    pub fn headers(mut self, family: HeaderFamily) -> RateLimitLayer {
        self.options_mut().headers = family;
        self
    }

    /// Responds to refused gRPC requests with a gRPC status: HTTP 200 with `grpc-status: 8` (RESOURCE_EXHAUSTED) or
    /// another suitable code, and the time to wait in `grpc-retry-pushback-ms` and `google.rpc.RetryInfo`.
    ///
    /// Enable this on gRPC services only. The layer detects gRPC by the request's `Content-Type`, which clients choose.
    /// On other services, a client could send a gRPC content type to make its refusals look like successes. Without
    /// this option, gRPC requests are refused with 429, which gRPC clients report as INTERNAL or UNAVAILABLE. Such a
    /// refusal over HTTP/2 is counted as a [mistake](crate::observe::Mistake). See `docs::grpc` for an example.
    #[must_use]
    pub fn grpc(mut self) -> RateLimitLayer {
        self.options_mut().grpc = true;
        self
    }

    /// Adds a random duration of up to `max` to the `Retry-After` of each refusal, so that clients that were refused
    /// together do not retry together. Defaults to zero.
    #[must_use]
    pub fn retry_jitter(mut self, max: Duration) -> RateLimitLayer {
        self.options_mut().retry_jitter = max;
        self
    }

    /// Inserts a [`RateLimitStatus`](crate::RateLimitStatus) into the extensions of each request that is passed on.
    /// This is off by default, since extensions require allocations.
    #[must_use]
    pub fn with_status(mut self) -> RateLimitLayer {
        self.options_mut().with_status = true;
        self
    }

    /// Sets a closure that creates the responses to refused requests. See [`Refusal`] for an example.
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
