//! Refused requests and the responses to them.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use http::request::Parts;
use http::{Response, StatusCode, Version};

use super::headers::{HeaderFamily, LimitHeaders, add_retry_after};
use super::items::whole_seconds;
use super::options::LayerOptions;
use super::{grpc, problem};
use crate::backend::Error;
use crate::limiter::LimitError;
use crate::policy::KeyError;
use crate::policy::{Decisions, KeyFault, random};

/// The reason for refusing a request, passed to [`on_refusal`](super::RateLimitLayer::on_refusal).
///
/// ```
/// use tollgate::{key, Quota, RateLimitLayer, Refusal, MINUTE};
///
/// RateLimitLayer::new(Quota::token_bucket(10, MINUTE), key::client_ip()).on_refusal(|refusal: &Refusal<'_>| {
///     if let Some(error) = refusal.error() {
///         eprintln!("{error}"); // the backend could not decide: log this error, but do not send it
///     }
///     if refusal.request().uri.path().starts_with("/api") {
///         return refusal.default_response();
///     }
///     refusal.respond("text/plain; charset=utf-8", refusal.message())
/// });
/// ```
pub struct Refusal<'a> {
    cause: &'a Cause,
    parts: &'a Parts,
    /// A random duration to add to the wait. It is drawn only once, so that the headers and the body agree.
    jitter: Duration,
    grpc: bool,
}

#[derive(Debug)]
pub(super) enum Cause {
    Denied(Decisions),
    Unavailable(Error),
    NoKey(KeyError),
}

impl From<LimitError> for Cause {
    fn from(error: LimitError) -> Cause {
        match error {
            LimitError::Denied(denied) => Cause::Denied(denied.into_decisions()),
            LimitError::Backend(error) => Cause::Unavailable(error),
            LimitError::Key(error) => Cause::NoKey(error),
            LimitError::NoReservations(_) => Cause::NoKey(KeyError::new(format!("tollgate: {error}"))),
        }
    }
}

/// The output omits the request, since its headers and query may contain credentials.
impl fmt::Debug for Refusal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refusal").field("cause", self.cause).finish_non_exhaustive()
    }
}

impl Refusal<'_> {
    /// Returns the request without its body, which has not been read.
    pub fn request(&self) -> &Parts {
        self.parts
    }

    /// Returns the decisions, or `None` if the limiter could not decide or no key could be found.
    pub fn decisions(&self) -> Option<&Decisions> {
        if let Cause::Denied(decisions) = self.cause { Some(decisions) } else { None }
    }

    /// Returns the backend's error if the backend could not decide. The text is for operators, not for clients.
    pub fn error(&self) -> Option<&Error> {
        if let Cause::Unavailable(error) = self.cause { Some(error) } else { None }
    }

    /// Returns 429 for a denial, 503 for a backend error, or the key extractor's [status](KeyError::status).
    pub fn status(&self) -> StatusCode {
        match self.cause {
            Cause::Denied(_) => StatusCode::TOO_MANY_REQUESTS,
            Cause::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
            Cause::NoKey(error) => error.status(),
        }
    }

    /// Returns the wait, including [jitter](super::RateLimitLayer::retry_jitter), or `None` if waiting cannot help.
    pub fn retry_after(&self) -> Option<Duration> {
        let retry = match self.cause {
            Cause::Denied(decisions) => decisions.retry_after(),
            // This is a guess, since it is unknown when the backend will recover.
            Cause::Unavailable(_) => Some(Duration::from_secs(1)),
            Cause::NoKey(_) => None,
        };
        retry.map(|retry| retry.saturating_add(self.jitter))
    }

    /// Returns [`retry_after`](Refusal::retry_after) in whole seconds, rounded up (at least 1), as in `Retry-After`.
    pub fn retry_after_secs(&self) -> Option<u64> {
        self.retry_after().map(whole_seconds)
    }

    /// Creates a response with this refusal's [status](Refusal::status) and the given content type and body.
    pub fn respond(&self, content_type: &str, body: impl Into<Bytes>) -> Response<Bytes> {
        let mut response = Response::new(body.into());
        *response.status_mut() = self.status();
        if let Ok(content_type) = HeaderValue::from_str(content_type) {
            response.headers_mut().insert(CONTENT_TYPE, content_type);
        }
        response
    }

    pub(super) fn is_anonymous(&self) -> bool {
        matches!(self.cause, Cause::NoKey(error) if error.fault() == KeyFault::Anonymous)
    }

    /// Returns a human-readable message. It may contain policy names and the time to wait in seconds, but never keys.
    pub fn message(&self) -> String {
        match self.cause {
            Cause::Denied(decisions) => decisions.to_string(),
            Cause::Unavailable(_) => "the service cannot check its rate limits at the moment".into(),
            Cause::NoKey(error) => error.to_string(),
        }
    }

    /// Returns the layer's default response, without the headers that the layer adds to each refusal.
    pub fn default_response(&self) -> Response<Bytes> {
        match grpc::content_type(self.parts).filter(|_| self.grpc) {
            Some(content_type) => grpc::response(self, content_type),
            None => problem::response(self),
        }
    }
}

/// Removes and returns the `Retry-After` header if its value is at least `seconds`.
fn take_late_retry_after(seconds: Option<u64>, headers: &mut HeaderMap) -> Option<HeaderValue> {
    let own = headers.get(RETRY_AFTER)?.to_str().ok()?.parse::<u64>().ok()?;
    if own >= seconds? { headers.remove(RETRY_AFTER) } else { None }
}

/// Returns the response to a refused request. If `options` is `None`, gRPC requests get a gRPC response.
pub(super) fn refuse(cause: &Cause, parts: &Parts, options: Option<&LayerOptions>) -> Response<Bytes> {
    let jitter = options.map_or(Duration::ZERO, |options| random_up_to(options.retry_jitter));
    let refusal = Refusal { cause, parts, jitter, grpc: options.is_none_or(|options| options.grpc) };
    let looks_like_grpc = || parts.version == Version::HTTP_2 && grpc::content_type(parts).is_some();
    if let Some(options) = options.filter(|options| !options.grpc).filter(|_| looks_like_grpc()) {
        options.limiter.plain_grpc_refusal();
    }
    let mut response = match options.and_then(|options| options.on_refusal.as_ref()) {
        Some(on_refusal) => on_refusal(&refusal),
        None => refusal.default_response(),
    };
    let headers = response.headers_mut();
    // `append_to` omits `RateLimit` if there is a `Retry-After`, since the window might end after it. A late
    // `Retry-After` does not conflict, so it is added afterwards.
    let later = take_late_retry_after(refusal.retry_after_secs(), headers);
    if let Some(decisions) = refusal.decisions() {
        let family = options.map_or_else(HeaderFamily::default, |options| options.headers);
        LimitHeaders::new(family, decisions, |decision| options?.items_of(decision)).append_to(headers);
    }
    if let Some(later) = later {
        headers.insert(RETRY_AFTER, later);
    }
    add_retry_after(refusal.retry_after(), headers);
    response
}

pub(super) fn random_up_to(max: Duration) -> Duration {
    if max.is_zero() {
        return Duration::ZERO;
    }
    let share = random() as f64 / u64::MAX as f64;
    // If `max` is near `Duration::MAX`, rounding in f64 can cause an overflow.
    Duration::try_from_secs_f64(max.as_secs_f64() * share).unwrap_or(max)
}
