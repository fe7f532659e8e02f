//! Conversions of errors to the `tonic::Status` that a gRPC layer would send.

use ::tonic::Status;
use http::HeaderValue;
use http::header::CONTENT_TYPE;

use super::refusal::{Cause, refuse};
use crate::backend::Error;
use crate::limiter::LimitError;
use crate::policy::Denied;
use crate::policy::KeyError;

/// Converts the denial to RESOURCE_EXHAUSTED, with the metadata that a [layer](crate::RateLimitLayer::grpc) sends.
///
/// ```
/// use tollgate::{Policy, Quota, RateLimiter, HOUR};
/// use tonic::{Request, Response, Status};
///
/// static LOGIN: Policy = Policy::new("login", Quota::token_bucket(1, HOUR));
///
/// async fn login(limiter: &RateLimiter, request: Request<String>) -> Result<Response<String>, Status> {
///     limiter.limit(&LOGIN, request.get_ref().as_str()).await?;
///     Ok(Response::new("come in".into()))
/// }
/// ```
impl From<Denied> for Status {
    fn from(denied: Denied) -> Status {
        status(&Cause::Denied(denied.into_decisions()))
    }
}

/// Converts the error to UNAVAILABLE. The status does not contain the error's text, which is meant for operators.
impl From<Error> for Status {
    fn from(error: Error) -> Status {
        status(&Cause::Unavailable(error))
    }
}

/// Converts the error's [status](KeyError::status) to a gRPC code. Errors from `or_reject` become UNAUTHENTICATED.
impl From<KeyError> for Status {
    fn from(error: KeyError) -> Status {
        status(&Cause::NoKey(error))
    }
}

/// Converts the error to the status of the inner error, or to INTERNAL if the quota does not allow reservations.
impl From<LimitError> for Status {
    fn from(error: LimitError) -> Status {
        match error {
            LimitError::Denied(denied) => denied.into(),
            LimitError::Backend(error) => error.into(),
            LimitError::Key(error) => error.into(),
            LimitError::NoReservations(_) => KeyError::new(format!("tollgate: {error}")).into(),
        }
    }
}

fn status(cause: &Cause) -> Status {
    let (mut parts, ()) = http::Request::new(()).into_parts();
    parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    let response = refuse(cause, &parts, None);
    // The request is a gRPC request, so the result is always `Some`.
    Status::from_header_map(response.headers()).unwrap_or_else(|| Status::unknown("rate limit"))
}
