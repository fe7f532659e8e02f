//! What axum makes of this crate's types.

use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::response::{IntoResponse, Response};
use http::request::Parts;

use super::key::KeyError;
use super::refusal::{Cause, plain};
use super::status::RateLimitStatus;
use crate::backend::Error;
use crate::limiter::{LimitError, Settlement};
use crate::policy::Denied;

/// 429 with the headers and the body that the layer would send.
///
/// ```
/// use axum::extract::State;
/// use tollgate::{Policy, Quota, RateLimiter, HOUR};
///
/// static LOGIN: Policy = Policy::new("login", Quota::token_bucket(5, HOUR));
///
/// async fn login(State(limiter): State<RateLimiter>, email: String) -> axum::response::Result<&'static str> {
///     limiter.limit(&LOGIN, email).await?.into_result()?;
///     Ok("come in")
/// }
/// # let _: axum::Router = axum::Router::new()
/// #     .route("/", axum::routing::post(login)).with_state(RateLimiter::default());
/// ```
impl IntoResponse for Denied {
    fn into_response(self) -> Response {
        plain(&Cause::Denied(self.into_decisions())).map(Body::from)
    }
}

/// For handlers that return `Result<_, Response>`.
impl From<Denied> for Response {
    fn from(denied: Denied) -> Response {
        denied.into_response()
    }
}

/// 503: the limiter's backend cannot decide.
impl IntoResponse for Error {
    fn into_response(self) -> Response {
        plain(&Cause::Unavailable(self)).map(Body::from)
    }
}

/// For handlers that return `Result<_, Response>`.
impl From<Error> for Response {
    fn from(error: Error) -> Response {
        error.into_response()
    }
}

/// 429 or 503, as of what it says.
impl IntoResponse for LimitError {
    fn into_response(self) -> Response {
        match self {
            LimitError::Denied(denied) => denied.into_response(),
            LimitError::Backend(error) => error.into_response(),
        }
    }
}

/// For handlers that return `Result<_, Response>`.
impl From<LimitError> for Response {
    fn from(error: LimitError) -> Response {
        error.into_response()
    }
}

/// 500, with what to do.
impl IntoResponse for KeyError {
    fn into_response(self) -> Response {
        plain(&Cause::NoKey(self)).map(Body::from)
    }
}

impl<S: Sync> FromRequestParts<S> for RateLimitStatus {
    type Rejection = KeyError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<RateLimitStatus, KeyError> {
        extension(parts, "RateLimitStatus", "with_status")
    }
}

impl<S: Sync> FromRequestParts<S> for Settlement {
    type Rejection = KeyError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Settlement, KeyError> {
        extension(parts, "Settlement", "with_settlement")
    }
}

/// What the layer puts there if it is told to.
fn extension<T: Clone + Send + Sync + 'static>(parts: &Parts, name: &str, method: &str) -> Result<T, KeyError> {
    parts.extensions.get().cloned().ok_or_else(|| {
        KeyError::new(format!(
            "tollgate: no {name} in this request. Put a `RateLimitLayer` with `.{method}()` around this route"
        ))
    })
}
