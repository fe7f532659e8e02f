//! Settling a request's charges by its response.

use std::sync::Arc;
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::response::Parts;
use http::{HeaderValue, StatusCode};

use super::retry_after::retry_after;
use super::shared::Shared;
use crate::algorithm::DAY;
use crate::backend::BackendFuture;
use crate::limiter::Receipt;

/// What becomes of a charge, now that the response is there.
///
/// ```
/// use tollgate::{key, Policy, Quota, RateLimitLayer, OnResponse, MINUTE};
///
/// const TOKENS: Policy = Policy::new("tokens", Quota::token_bucket(10_000, MINUTE));
/// RateLimitLayer::new(TOKENS, key::client_ip()).cost(|_| 1000).on_response(|res| {
///     match res.headers.get("x-tokens-used").and_then(|value| value.to_str().ok()?.parse().ok()) {
///         Some(tokens) => OnResponse::Charge(tokens),
///         None if res.status.is_server_error() => OnResponse::Refund,
///         None => OnResponse::Keep,
///     }
/// });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnResponse {
    /// It stays as it is.
    Keep,
    /// It was for nothing: given back, as far as nobody has [built on it](Receipt#what-can-be-given-back).
    Refund,
    /// It truly cost so many tokens, more or less than it was charged for.
    Charge(u64),
    /// The key starts afresh: all that it has spent under the policy is forgotten.
    Reset,
    /// The charge stays, and the key is [paused](crate::RateLimiter::pause) for so long: requests that wait for their
    /// turns are held too. For a layer around a client, whose server has refused.
    Pause(Duration),
}

impl OnResponse {
    /// For attempts of which only failures count, such as logins: a 2xx forgets them all, anything else keeps the
    /// charge. Since each attempt is charged before it is made, parallel guesses cannot slip through.
    ///
    /// ```
    /// use tollgate::{key, Policy, Quota, RateLimitLayer, OnResponse, HOUR};
    ///
    /// const LOGIN: Policy = Policy::new("login", Quota::token_bucket(5, HOUR));
    /// RateLimitLayer::new(LOGIN, key::client_ip()).on_response(OnResponse::reset_on_success);
    /// ```
    ///
    /// Whoever has an account can reset the count of their own address this way, and guess other people's passwords in
    /// between. So limit by the account as well, and reset only that one: see the `login_protection` example. A form
    /// that answers with a redirect whatever happens needs a closure of its own.
    ///
    /// A gRPC response whose status comes in trailers keeps the charge: whether it succeeded is not known when it begins. Call
    /// [`Receipt::reset`] in the method.
    pub fn reset_on_success(response: &Parts) -> OnResponse {
        let content_type = response.headers.get(CONTENT_TYPE).map_or(&[][..], HeaderValue::as_bytes);
        let succeeded = match response.headers.get("grpc-status") {
            Some(status) => status == "0",
            None => !content_type.starts_with(b"application/grpc"),
        };
        if response.status.is_success() && succeeded { OnResponse::Reset } else { OnResponse::Keep }
    }
}

impl OnResponse {
    /// For a layer around a client: after a 429 or 503 with `Retry-After`, in seconds or as a date, the key is paused for
    /// that long, at most a day. Anything else keeps the charge.
    ///
    /// A date is compared with the response's `Date`, so the clocks of client and server need not agree; without one, with
    /// the system's clock.
    ///
    /// ```
    /// use http::Response;
    /// use tollgate::{key, Policy, Quota, RateLimitLayer, OnResponse, MINUTE, SECOND};
    ///
    /// const THEIRS: Policy = Policy::new("theirs", Quota::token_bucket(19, SECOND).capacity(4).max_reserved(500));
    /// # #[cfg(feature = "wait")]
    /// RateLimitLayer::new(THEIRS, key::host()).wait_up_to(MINUTE).on_response(OnResponse::pause_on_retry_after);
    ///
    /// let (parts, ()) = Response::builder().status(429).header("retry-after", "20").body(())?.into_parts();
    /// assert_eq!(OnResponse::pause_on_retry_after(&parts), OnResponse::Pause(20 * SECOND));
    /// # Ok::<(), http::Error>(())
    /// ```
    ///
    /// A server that refuses without `Retry-After` needs a closure of your own, which returns [`OnResponse::Pause`] with a time
    /// that you choose.
    pub fn pause_on_retry_after(response: &Parts) -> OnResponse {
        let refused = matches!(response.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        match retry_after(&response.headers) {
            Some(wait) if refused => OnResponse::Pause(wait.min(DAY)),
            _ => OnResponse::Keep,
        }
    }
}

/// How a rule settles its charge by the response.
pub(super) type OnResponseFn = dyn Fn(&Parts) -> OnResponse + Send + Sync;

/// The charges of a request that is with the inner service.
pub(super) struct Unsettled {
    pub(super) shared: Arc<Shared>,
    pub(super) charges: Receipt,
}

impl Unsettled {
    /// Settles each charge by its own rule. Returns what a remote backend has not confirmed yet.
    pub(super) fn settle(&self, response: &Parts) -> Vec<BackendFuture<()>> {
        let mut pending = Vec::new();
        for (index, decision) in self.charges.decisions().iter().enumerate() {
            let Some(settle) = self.shared.settle_of(decision) else { continue };
            let charge = self.charges.at(index);
            let done = match settle(response) {
                OnResponse::Keep => continue,
                OnResponse::Refund => charge.refund(),
                OnResponse::Charge(tokens) => charge.settle(tokens),
                OnResponse::Reset => charge.reset().map(|_| ()),
                OnResponse::Pause(lasts) => self.shared.limiter.pause_row(decision, lasts),
            };
            pending.extend(done.try_ready().err());
        }
        pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_grpc_is_no_success() {
        // Found in review: it comes with HTTP 200, and each wrong guess reset the count.
        let settled = |status: u16, grpc: Option<&str>| {
            let mut response = http::Response::builder().status(status);
            if let Some(grpc) = grpc {
                response = response.header("grpc-status", grpc);
            }
            OnResponse::reset_on_success(&response.body(()).expect("a response").into_parts().0)
        };
        assert_eq!(settled(200, None), OnResponse::Reset);
        assert_eq!(settled(200, Some("0")), OnResponse::Reset);
        assert_eq!(settled(200, Some("16")), OnResponse::Keep);
        assert_eq!(settled(401, None), OnResponse::Keep);
        // Its status comes in trailers: six wrong guesses of two passed.
        let begun = http::Response::builder().header("content-type", "application/grpc+proto").body(());
        assert_eq!(OnResponse::reset_on_success(&begun.expect("a response").into_parts().0), OnResponse::Keep);
        assert_eq!(settled(303, None), OnResponse::Keep);
    }
}
