//! The error returned by calls to a limiter.

use std::fmt;

use crate::backend::Error;
use crate::policy::{Denied, KeyError, PolicyName};

/// The reason why a call failed: for example, a denial or a backend error.
///
/// With the `axum` feature, a handler can return the error as a response. The status is 429 for a denial, 503 for a
/// backend error, the error's own status for a key error, and 500 for `NoReservations`.
///
/// ```
/// # use tollgate::{LimitError, Policy, Quota, RateLimiter, HOUR};
/// # static LOGIN: Policy = Policy::new("login", Quota::token_bucket(1, HOUR));
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// # let limiter = RateLimiter::default();
/// assert!(limiter.limit(&LOGIN, "ada@example.com").await.is_ok());
/// let error = limiter.limit(&LOGIN, "ada@example.com").await.unwrap_err();
/// assert!(matches!(error, LimitError::Denied(_)));
/// assert_eq!(error.denied().and_then(|denied| denied.retry_after_secs()), Some(3600));
/// # }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum LimitError {
    /// The call was denied.
    Denied(Denied),
    /// The backend could not decide.
    Backend(Error),
    /// [`KeyExtractor::subject`](crate::key::KeyExtractor::subject) found no key. Limiters never return this variant.
    Key(KeyError),
    /// The call reserves tokens, but this policy's quota allows no reservations. Returned even if no wait is needed.
    NoReservations(PolicyName),
}

impl LimitError {
    /// Returns the denial, if the call was denied.
    pub fn denied(&self) -> Option<&Denied> {
        if let LimitError::Denied(denied) = self { Some(denied) } else { None }
    }
}

impl From<Denied> for LimitError {
    fn from(denied: Denied) -> LimitError {
        LimitError::Denied(denied)
    }
}

impl From<Error> for LimitError {
    fn from(error: Error) -> LimitError {
        LimitError::Backend(error)
    }
}

impl From<KeyError> for LimitError {
    fn from(error: KeyError) -> LimitError {
        LimitError::Key(error)
    }
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LimitError::Denied(denied) => denied.fmt(f),
            LimitError::Backend(error) => error.fmt(f),
            LimitError::Key(error) => error.fmt(f),
            LimitError::NoReservations(policy) => write!(
                f,
                "the quota of policy {policy:?} allows no reservations; add `Quota::max_reserved` or \
                 `Quota::unlimited_reservations` to it (sliding windows support neither)"
            ),
        }
    }
}

// Delegates `source()` to the inner error, because `Display` already writes the inner error.
impl std::error::Error for LimitError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LimitError::Denied(denied) => denied.source(),
            LimitError::Backend(error) => error.source(),
            LimitError::Key(error) => error.source(),
            LimitError::NoReservations(_) => None,
        }
    }
}
