//! What axum makes of this crate's types.

use std::convert::Infallible;

use axum::body::Body;
use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::response::{IntoResponse, Response};
use http::request::Parts;

use super::refusal::{Cause, refuse};
use super::status::RateLimitStatus;
use crate::backend::Error;
use crate::limiter::{LimitError, Receipt};
use crate::policy::Denied;
use crate::policy::KeyError;

/// 429 with the headers and the body that the layer would send.
///
/// ```
/// use axum::extract::State;
/// use tollgate::{Policy, Quota, RateLimiter, HOUR};
///
/// static LOGIN: Policy = Policy::new("login", Quota::token_bucket(5, HOUR));
///
/// async fn login(State(limiter): State<RateLimiter>, email: String) -> axum::response::Result<&'static str> {
///     limiter.limit(&LOGIN, email).await?;
///     Ok("come in")
/// }
/// # let _: axum::Router = axum::Router::new()
/// #     .route("/", axum::routing::post(login)).with_state(RateLimiter::default());
/// ```
impl IntoResponse for Denied {
    fn into_response(self) -> Response {
        plain(&Cause::Denied(self.into_decisions()))
    }
}

/// 503: the limiter's backend cannot decide.
impl IntoResponse for Error {
    fn into_response(self) -> Response {
        plain(&Cause::Unavailable(self))
    }
}

/// 429 for a denial, 503 for a backend error, the status of a [`KeyError`], and 500 where the quota has no turns.
impl IntoResponse for LimitError {
    fn into_response(self) -> Response {
        match self {
            LimitError::Denied(denied) => denied.into_response(),
            LimitError::Backend(error) => error.into_response(),
            LimitError::Key(error) => error.into_response(),
            LimitError::NoReservations(_) => KeyError::new(format!("tollgate: {self}")).into_response(),
        }
    }
}

macro_rules! into_response {
    ($($error:ty),*) => {$(
        /// For handlers that return `Result<_, Response>`.
        impl From<$error> for Response {
            fn from(error: $error) -> Response {
                error.into_response()
            }
        }
    )*};
}

into_response!(Denied, Error, LimitError);

/// 500, with what to do.
impl IntoResponse for KeyError {
    fn into_response(self) -> Response {
        plain(&Cause::NoKey(self))
    }
}

impl<S: Sync> FromRequestParts<S> for RateLimitStatus {
    type Rejection = KeyError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<RateLimitStatus, KeyError> {
        extension(parts, "RateLimitStatus", "with_status")
    }
}

impl<S: Sync> FromRequestParts<S> for Receipt {
    type Rejection = KeyError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Receipt, KeyError> {
        extension(parts, "Receipt", "with_receipt")
    }
}

/// `None` if the layer does not have [`with_status`](super::RateLimitLayer::with_status).
impl<S: Sync> OptionalFromRequestParts<S> for RateLimitStatus {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Option<RateLimitStatus>, Infallible> {
        Ok(parts.extensions.get().cloned())
    }
}

/// `None` if the layer does not have [`with_receipt`](super::RateLimitLayer::with_receipt).
impl<S: Sync> OptionalFromRequestParts<S> for Receipt {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Option<Receipt>, Infallible> {
        Ok(parts.extensions.get().cloned())
    }
}

/// What the layer would answer.
fn plain(cause: &Cause) -> Response {
    let (parts, ()) = http::Request::new(()).into_parts();
    refuse(cause, &parts, None).map(Body::from)
}

/// What the layer puts there if it is told to.
fn extension<T: Clone + Send + Sync + 'static>(parts: &Parts, name: &str, method: &str) -> Result<T, KeyError> {
    parts.extensions.get().cloned().ok_or_else(|| {
        KeyError::new(format!(
            "tollgate: no {name} in this request. Put a `RateLimitLayer` with `.{method}()` around this route"
        ))
    })
}
