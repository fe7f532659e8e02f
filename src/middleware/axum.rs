//! Responses and extractors for axum.

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

/// Responds with 429 and the same headers and body as a layer's default refusal.
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
/// ```
impl IntoResponse for Denied {
    fn into_response(self) -> Response {
        default_response(&Cause::Denied(self.into_decisions()))
    }
}

/// Responds with 503 Service Unavailable.
impl IntoResponse for Error {
    fn into_response(self) -> Response {
        default_response(&Cause::Unavailable(self))
    }
}

/// Responds with 429 for a denial, 503 for a backend error, the error's own status for a [`KeyError`], or 500 if the
/// quota does not allow reservations.
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
        /// Converts the error to a response, so that `?` works in handlers that return `Result<_, Response>`.
        impl From<$error> for Response {
            fn from(error: $error) -> Response {
                error.into_response()
            }
        }
    )*};
}

into_response!(Denied, Error, LimitError);

/// Responds with the error's [status](KeyError::status) (500 by default) and its message.
impl IntoResponse for KeyError {
    fn into_response(self) -> Response {
        default_response(&Cause::NoKey(self))
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

/// Extracts `None` if no layer that wraps the handler uses [`with_status`](super::RateLimitLayer::with_status).
impl<S: Sync> OptionalFromRequestParts<S> for RateLimitStatus {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Option<RateLimitStatus>, Infallible> {
        Ok(parts.extensions.get().cloned())
    }
}

/// Extracts `None` if no layer that wraps the handler uses [`with_receipt`](super::RateLimitLayer::with_receipt).
impl<S: Sync> OptionalFromRequestParts<S> for Receipt {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Option<Receipt>, Infallible> {
        Ok(parts.extensions.get().cloned())
    }
}

fn default_response(cause: &Cause) -> Response {
    let (parts, ()) = http::Request::new(()).into_parts();
    refuse(cause, &parts, None).map(Body::from)
}

fn extension<T: Clone + Send + Sync + 'static>(parts: &Parts, name: &str, method: &str) -> Result<T, KeyError> {
    parts.extensions.get().cloned().ok_or_else(|| {
        KeyError::new(format!(
            "tollgate: no {name} in this request. Wrap this route in a `RateLimitLayer` with `.{method}()`"
        ))
    })
}
