//! A refusal, and what it is answered with.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use http::request::Parts;
use http::{Response, StatusCode, Version};

use super::headers::{HeaderFamily, Report, retry_later};
use super::items::whole_seconds;
use super::shared::Shared;
use super::{grpc, problem};
use crate::backend::Error;
use crate::limiter::LimitError;
use crate::policy::KeyError;
use crate::policy::{Decisions, KeyFault};

/// Why a request is not let through: for [`on_refusal`](super::RateLimitLayer::on_refusal).
///
/// ```
/// use tollgate::{key, Quota, RateLimitLayer, Refusal, MINUTE};
///
/// RateLimitLayer::new(Quota::token_bucket(10, MINUTE), key::client_ip()).on_refusal(|refusal: &Refusal<'_>| {
///     if let Some(error) = refusal.error() {
///         eprintln!("{error}"); // nobody could decide; for the log, not for the client
///     }
///     if !refusal.request().uri.path().starts_with("/page") {
///         return refusal.default_response();
///     }
///     let tightest = refusal.decisions().and_then(|decisions| decisions.tightest());
///     let text = match (refusal.retry_after_seconds(), tightest) {
///         (Some(wait), Some(decision)) => format!("{} too often; again in {wait} s", decision.policy()),
///         _ => refusal.message(),
///     };
///     refusal.respond("text/plain; charset=utf-8", text)
/// });
/// ```
pub struct Refusal<'a> {
    cause: &'a Cause,
    parts: &'a Parts,
    /// Added to the wait, the same wherever it is told.
    jitter: Duration,
    /// Whether gRPC requests are answered with a gRPC status.
    grpc: bool,
}

/// What stood in the way.
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

/// Without the request: its headers and query are full of credentials.
impl fmt::Debug for Refusal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refusal").field("cause", self.cause).finish_non_exhaustive()
    }
}

impl Refusal<'_> {
    /// The request, without its body, which was not read.
    pub fn request(&self) -> &Parts {
        self.parts
    }

    /// The decisions, if it is a denial: of a quota, a deny list or a block. `None` if the limiter could not decide, or
    /// a key could not be found.
    pub fn decisions(&self) -> Option<&Decisions> {
        if let Cause::Denied(decisions) = self.cause { Some(decisions) } else { None }
    }

    /// The backend's error, if it could not decide. Its text is for operators, not for clients.
    pub fn error(&self) -> Option<&Error> {
        if let Cause::Unavailable(error) = self.cause { Some(error) } else { None }
    }

    /// The status that fits: 429, or 503 if the backend could not decide, or the key extractor's (500 unless it says
    /// otherwise).
    pub fn status(&self) -> StatusCode {
        match self.cause {
            Cause::Denied(_) => StatusCode::TOO_MANY_REQUESTS,
            Cause::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
            Cause::NoKey(error) => error.status(),
        }
    }

    /// When to come back, to the microsecond, [jitter](super::RateLimitLayer::retry_jitter) included; `None` if that does
    /// not help. A body that tells it tells [whole seconds](Refusal::retry_after_seconds): `as_secs` rounds down, which
    /// is too early, and another number than the header's.
    pub fn retry_after(&self) -> Option<Duration> {
        let retry = match self.cause {
            Cause::Denied(decisions) => decisions.retry_after(),
            // Nobody knows when the backend is back; soon is a good guess.
            Cause::Unavailable(_) => Some(Duration::from_secs(1)),
            Cause::NoKey(_) => None,
        };
        retry.map(|retry| retry.saturating_add(self.jitter))
    }

    /// The number in the `Retry-After` header: [`retry_after`](Refusal::retry_after) in whole seconds, rounded up and never
    /// 0.
    pub fn retry_after_seconds(&self) -> Option<u64> {
        self.retry_after().map(whole_seconds)
    }

    /// An answer of your own with the [status](Refusal::status) that fits, and this content type. Another status, and
    /// more headers, can be set on what it returns.
    ///
    /// ```
    /// use tollgate::{key, Quota, RateLimitLayer, Refusal, MINUTE};
    ///
    /// RateLimitLayer::new(Quota::token_bucket(10, MINUTE), key::client_ip()).on_refusal(|refusal: &Refusal<'_>| {
    ///     if refusal.decisions().is_none() {
    ///         return refusal.default_response(); // no fault of the client's: 500 or 503
    ///     }
    ///     let wait = refusal.retry_after_seconds(); // as the header says
    ///     refusal.respond("application/json", serde_json::json!({"ok": false, "retry_in": wait}).to_string())
    /// });
    /// ```
    pub fn respond(&self, content_type: &str, body: impl Into<Bytes>) -> Response<Bytes> {
        let mut response = Response::new(body.into());
        *response.status_mut() = self.status();
        if let Ok(content_type) = HeaderValue::from_str(content_type) {
            response.headers_mut().insert(CONTENT_TYPE, content_type);
        }
        response
    }

    /// Whether the request does not say who sent it.
    pub(super) fn is_anonymous(&self) -> bool {
        matches!(self.cause, Cause::NoKey(error) if error.fault() == KeyFault::Anonymous)
    }

    /// A text for people. It names policies, never keys.
    pub fn message(&self) -> String {
        match self.cause {
            Cause::Denied(decisions) => decisions.to_string(),
            Cause::Unavailable(_) => "the service cannot tell its limits at the moment".into(),
            Cause::NoKey(error) => error.to_string(),
        }
    }

    /// What would be answered without `on_refusal`, but for the headers that are added in any case.
    pub fn default_response(&self) -> Response<Bytes> {
        match grpc::content_type(self.parts).filter(|_| self.grpc) {
            Some(content_type) => grpc::response(self, content_type),
            None => problem::response(self),
        }
    }
}

/// Takes a `Retry-After` out that is no earlier than so many seconds.
fn later_than(seconds: Option<u64>, headers: &mut HeaderMap) -> Option<HeaderValue> {
    let own = headers.get(RETRY_AFTER)?.to_str().ok()?.parse::<u64>().ok()?;
    if own >= seconds? { headers.remove(RETRY_AFTER) } else { None }
}

/// The answer to a request that a layer refuses; without one, in the default form for the parts' content type.
pub(super) fn refuse(cause: &Cause, parts: &Parts, shared: Option<&Shared>) -> Response<Bytes> {
    let jitter = shared.map_or(Duration::ZERO, |shared| random_up_to(shared.jitter));
    let refusal = Refusal { cause, parts, jitter, grpc: shared.is_none_or(|shared| shared.grpc) };
    let looks_like_grpc = || parts.version == Version::HTTP_2 && grpc::content_type(parts).is_some();
    if let Some(shared) = shared.filter(|shared| !shared.grpc).filter(|_| looks_like_grpc()) {
        shared.limiter.plain_grpc_refusal();
    }
    let mut response = match shared.and_then(|shared| shared.refuse.as_ref()) {
        Some(refuse) => refuse(&refusal),
        None => refusal.default_response(),
    };
    let headers = response.headers_mut();
    // A window that is told must not end after `Retry-After`: one of the program's own that is early silences it.
    let later = later_than(refusal.retry_after_seconds(), headers);
    if let Some(decisions) = refusal.decisions() {
        let family = shared.map_or_else(HeaderFamily::default, |shared| shared.headers);
        Report::new(family, decisions, |decision| shared?.items_of(decision)).append_to(headers);
    }
    if let Some(later) = later {
        headers.insert(RETRY_AFTER, later);
    }
    retry_later(refusal.retry_after(), headers);
    response
}

pub(super) fn random_up_to(most: Duration) -> Duration {
    if most.is_zero() {
        return Duration::ZERO;
    }
    use std::hash::{BuildHasher, Hasher, RandomState};
    let share = RandomState::new().build_hasher().finish() as f64 / u64::MAX as f64;
    // In f64 and back: of a length near Duration::MAX, rounding up would overflow.
    Duration::try_from_secs_f64(most.as_secs_f64() * share).unwrap_or(most)
}
