//! Conversions of errors to `tonic::Status`, as a gRPC layer would respond.

use ::tonic::Status;
use http::HeaderValue;
use http::header::CONTENT_TYPE;

use super::refusal::{Cause, refuse};
use crate::backend::Error;
use crate::limiter::LimitError;
use crate::policy::Denied;
use crate::policy::KeyError;

/// Converts to RESOURCE_EXHAUSTED, with the metadata and the `google.rpc.RetryInfo` that a
/// [layer](crate::RateLimitLayer::grpc) sends.
///
/// ```
/// use tollgate::{Policy, Quota, RateLimiter, HOUR};
/// use tonic::{Code, Request, Response, Status};
///
/// static LOGIN: Policy = Policy::new("login", Quota::token_bucket(1, HOUR));
///
/// async fn login(limiter: &RateLimiter, request: Request<String>) -> Result<Response<String>, Status> {
///     limiter.limit(&LOGIN, request.get_ref().as_str()).await?;
///     Ok(Response::new("come in".into()))
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let limiter = RateLimiter::default();
/// assert!(login(&limiter, Request::new("ada".into())).await.is_ok());
/// let refused = login(&limiter, Request::new("ada".into())).await.unwrap_err();
/// assert_eq!(refused.code(), Code::ResourceExhausted);
/// assert!(refused.metadata().contains_key("grpc-retry-pushback-ms") && !refused.details().is_empty());
/// # }
/// ```
impl From<Denied> for Status {
    fn from(denied: Denied) -> Status {
        status(&Cause::Denied(denied.into_decisions()))
    }
}

/// Converts to UNAVAILABLE, without the error's text, which is for operators.
impl From<Error> for Status {
    fn from(error: Error) -> Status {
        status(&Cause::Unavailable(error))
    }
}

/// Converts to UNAUTHENTICATED for [`or_reject`](crate::key::KeyExtractor::or_reject), otherwise the code for the
/// error's [status](KeyError::status).
impl From<KeyError> for Status {
    fn from(error: KeyError) -> Status {
        status(&Cause::NoKey(error))
    }
}

/// Converts to the status of the inner error, or to INTERNAL if the quota does not allow reservations.
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
    // Always `Some`, since the request is gRPC.
    Status::from_header_map(response.headers()).unwrap_or_else(|| Status::unknown("rate limit"))
}
