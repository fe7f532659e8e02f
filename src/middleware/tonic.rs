//! What tonic makes of this crate's errors: the statuses that a layer for gRPC refuses with.

use ::tonic::Status;
use http::HeaderValue;
use http::header::CONTENT_TYPE;

use super::refusal::{Cause, refuse};
use crate::backend::Error;
use crate::limiter::LimitError;
use crate::policy::Denied;
use crate::policy::KeyError;

/// RESOURCE_EXHAUSTED, with the metadata and the `google.rpc.RetryInfo` that a [layer](crate::RateLimitLayer::grpc) would
/// send.
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
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
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

/// UNAVAILABLE: the limiter's backend cannot decide. The error's text is for operators and not in the status.
impl From<Error> for Status {
    fn from(error: Error) -> Status {
        status(&Cause::Unavailable(error))
    }
}

/// What the layer would answer where its own extractor finds no key: UNAUTHENTICATED for
/// [`or_reject`](crate::key::KeyExtractor::or_reject), else the code for the error's [status](KeyError::status).
impl From<KeyError> for Status {
    fn from(error: KeyError) -> Status {
        status(&Cause::NoKey(error))
    }
}

/// As of what is inside; INTERNAL where the quota has no turns.
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

/// What a layer would answer.
fn status(cause: &Cause) -> Status {
    let (mut parts, ()) = http::Request::new(()).into_parts();
    parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    let response = refuse(cause, &parts, None);
    // Always there: the request is gRPC.
    Status::from_header_map(response.headers()).unwrap_or_else(|| Status::unknown("rate limit"))
}
