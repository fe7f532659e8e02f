//! Settling a request's charges by its response.

use std::sync::Arc;

use http::response::Parts;

use super::shared::Shared;
use crate::backend::BackendFuture;
use crate::limiter::Settlement;

/// What becomes of a charge, now that the response is there.
///
/// ```
/// use tollgate::{key, Policy, Quota, RateLimitLayer, Settle, MINUTE};
///
/// const TOKENS: Policy = Policy::new("tokens", Quota::token_bucket(10_000, MINUTE));
/// RateLimitLayer::new(TOKENS, key::bearer()).cost(|_| 1000).settle(|res| {
///     match res.headers.get("x-tokens-used").and_then(|value| value.to_str().ok()?.parse().ok()) {
///         Some(tokens) => Settle::Charge(tokens),
///         None if res.status.is_server_error() => Settle::Refund,
///         None => Settle::Keep,
///     }
/// });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settle {
    /// It stays as it is.
    Keep,
    /// It was for nothing: given back, as far as nobody has [built on it](Settlement#what-can-be-given-back).
    Refund,
    /// It truly cost so many tokens, more or less than it was charged for.
    Charge(u64),
    /// The key starts afresh: all that it has spent under the policy is forgotten.
    Reset,
}

impl Settle {
    /// For attempts of which only failures count, such as logins: a 2xx forgets them all, anything else keeps the
    /// charge. Since each attempt is charged before it is made, parallel guesses cannot slip through.
    ///
    /// ```
    /// use tollgate::{key, Policy, Quota, RateLimitLayer, Settle, HOUR};
    ///
    /// const LOGIN: Policy = Policy::new("login", Quota::token_bucket(5, HOUR));
    /// RateLimitLayer::new(LOGIN, key::client_ip()).settle(Settle::reset_on_success);
    /// ```
    ///
    /// Whoever has an account can reset the count of their own address this way, and guess other people's passwords in
    /// between. So limit by the account as well, and reset only that one: see the `login_protection` example. A form
    /// that answers with a redirect whatever happens needs a closure of its own.
    pub fn reset_on_success(response: &Parts) -> Settle {
        let failed = response.headers.get("grpc-status").is_some_and(|status| status != "0");
        if response.status.is_success() && !failed { Settle::Reset } else { Settle::Keep }
    }
}

/// How a rule settles its charge by the response.
pub(super) type SettleFn = dyn Fn(&Parts) -> Settle + Send + Sync;

/// The charges of a request that is with the inner service.
pub(super) struct Unsettled {
    pub(super) shared: Arc<Shared>,
    pub(super) charges: Settlement,
}

impl Unsettled {
    /// Settles each charge by its own rule. Returns what a remote backend has not confirmed yet.
    pub(super) fn settle(&self, response: &Parts) -> Vec<BackendFuture<()>> {
        let mut pending = Vec::new();
        for (index, decision) in self.charges.decisions().iter().enumerate() {
            let Some(settle) = self.shared.settle_of(decision) else { continue };
            let charge = self.charges.at(index);
            let done = match settle(response) {
                Settle::Keep => continue,
                Settle::Refund => charge.refund(),
                Settle::Charge(tokens) => charge.settle(tokens),
                Settle::Reset => charge.reset(),
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
            Settle::reset_on_success(&response.body(()).expect("a response").into_parts().0)
        };
        assert_eq!(settled(200, None), Settle::Reset);
        assert_eq!(settled(200, Some("0")), Settle::Reset);
        assert_eq!(settled(200, Some("16")), Settle::Keep);
        assert_eq!(settled(401, None), Settle::Keep);
        assert_eq!(settled(303, None), Settle::Keep);
    }
}
