//! Settles a request's charges based on its response.

use std::sync::Arc;
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::response::Parts;
use http::{HeaderValue, StatusCode};

use super::options::LayerOptions;
use super::retry_after::retry_after;
use crate::algorithm::DAY;
use crate::backend::BackendFuture;
use crate::limiter::Receipt;

/// What happens to a charge after the response.
///
/// ```
/// use tollgate::{key, Policy, Quota, RateLimitLayer, OnResponse, HOUR, MINUTE};
///
/// const TOKENS: Policy = Policy::new("tokens", Quota::token_bucket(10_000, MINUTE));
/// RateLimitLayer::new(TOKENS, key::client_ip()).cost(|_| 1000).on_response(|res| {
///     match res.headers.get("x-tokens-used").and_then(|value| value.to_str().ok()?.parse().ok()) {
///         Some(tokens) => OnResponse::Settle(tokens),
///         None if res.status.is_server_error() => OnResponse::Refund,
///         None => OnResponse::Keep,
///     }
/// });
///
/// // This limit is per account. `x-account` has been checked by an outer layer.
/// const LOGIN: Policy = Policy::new("login", Quota::token_bucket(5, HOUR));
/// RateLimitLayer::new(LOGIN, key::header("x-account")).on_response(OnResponse::reset_on_success);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnResponse {
    /// Keep the charge.
    Keep,
    /// Refund the charge, [as far as possible](Receipt#what-can-be-given-back).
    Refund,
    /// Adjust the charge to this cost, which may be higher or lower than the original cost.
    Settle(u64),
    /// Reset the key, so that it has its full quota under the policy again.
    Reset,
    /// Keep the charge and [pause](crate::RateLimiter::pause) the key, including its waiting requests, for this long.
    /// Use this in a layer that wraps a client, when the server has refused a request.
    Pause(Duration),
}

impl OnResponse {
    /// Resets the key on a 2xx response and keeps the charge on any other, so only failures, such as failed logins,
    /// count. Each attempt is charged before it is processed, so parallel guesses cannot bypass the limit.
    ///
    /// Do not use this for a per-address limit, since attackers could reset the count by logging in to their own
    /// accounts. For such a limit, return [`OnResponse::Refund`] on success, and add a per-account limit as well (see
    /// the `login_protection` example). If your login handler always responds with a redirect, write your own closure.
    ///
    /// If a gRPC response carries its status in the trailers, the charge is kept. To reset the key, call
    /// [`Receipt::reset`] in the gRPC method.
    pub fn reset_on_success(response: &Parts) -> OnResponse {
        let content_type = response.headers.get(CONTENT_TYPE).map_or(&[][..], HeaderValue::as_bytes);
        let succeeded = match response.headers.get("grpc-status") {
            Some(status) => status == "0",
            None => !content_type.starts_with(b"application/grpc"),
        };
        if response.status.is_success() && succeeded { OnResponse::Reset } else { OnResponse::Keep }
    }

    /// After a 429 or 503 response, pauses the key for as long as the `Retry-After` header says, but for at most one
    /// day. Always keeps the charge. A date in `Retry-After` is compared with the response's `Date` or, without a
    /// `Date`, with the system clock. See [`docs::outgoing`](crate::docs::outgoing).
    pub fn pause_on_retry_after(response: &Parts) -> OnResponse {
        let refused = matches!(response.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        match retry_after(&response.headers) {
            Some(wait) if refused => OnResponse::Pause(wait.min(DAY)),
            _ => OnResponse::Keep,
        }
    }
}

pub(super) type OnResponseFn = dyn Fn(&Parts) -> OnResponse + Send + Sync;

/// The charges of a request that the inner service is processing.
pub(super) struct PendingSettlement {
    pub(super) options: Arc<LayerOptions>,
    pub(super) receipt: Receipt,
}

impl PendingSettlement {
    /// Settles each charge according to its rule. Returns the calls that a remote backend has not confirmed yet.
    pub(super) fn settle(&self, response: &Parts) -> Vec<BackendFuture<()>> {
        let mut pending = Vec::new();
        for (first, decisions) in self.receipt.charges() {
            let decision = &decisions[0];
            let Some(on_response) = self.options.on_response_of(decision) else { continue };
            let charge = self.receipt.at(first, decisions);
            let settled = match on_response(response) {
                OnResponse::Keep => continue,
                OnResponse::Refund => charge.refund().map(drop),
                OnResponse::Settle(tokens) => charge.settle(tokens).map(drop),
                OnResponse::Reset => charge.reset().map(drop),
                OnResponse::Pause(duration) => self.options.limiter.pause_row(decision, duration),
            };
            pending.extend(settled.try_ready().err());
        }
        pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grpc_error_does_not_reset_the_key() {
        // gRPC errors are sent with HTTP 200, so the HTTP status alone would let each wrong guess reset the count.
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
        // The gRPC status is sent later, in trailers.
        let begun = http::Response::builder().header("content-type", "application/grpc+proto").body(());
        assert_eq!(OnResponse::reset_on_success(&begun.expect("a response").into_parts().0), OnResponse::Keep);
        assert_eq!(settled(303, None), OnResponse::Keep);
    }
}
