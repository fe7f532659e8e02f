//! Why a call of the limiter did not admit its caller.

use std::fmt;

use crate::backend::Error;
use crate::policy::{Denied, KeyError, PolicyName};

/// Why a call did not admit its caller: a denial, a backend that could not decide, or a call that cannot work.
///
/// ```
/// use tollgate::{LimitError, Policy, Quota, RateLimiter, HOUR};
///
/// static LOGIN: Policy = Policy::new("login", Quota::token_bucket(1, HOUR));
///
/// async fn login(limiter: &RateLimiter, email: &str) -> Result<(), LimitError> {
///     limiter.limit(&LOGIN, email).await?;
///     Ok(())
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let limiter = RateLimiter::default();
/// assert!(login(&limiter, "ada@example.com").await.is_ok());
/// let error = login(&limiter, "ada@example.com").await.unwrap_err();
/// assert!(matches!(error, LimitError::Denied(_)));
/// assert_eq!(error.denied().and_then(|denied| denied.retry_after_secs()), Some(3600));
/// # }
/// ```
///
/// With feature `axum` it is a response too: 429 or 503 as the layer would answer, the key error's own status, or 500.
#[derive(Debug)]
#[non_exhaustive]
pub enum LimitError {
    /// Some quota is exceeded.
    Denied(Denied),
    /// The backend could not decide.
    Backend(Error),
    /// The handler's own [key extraction](crate::key::KeyExtractor::subject) found no key: for `?` beside the limiter's calls.
    Key(KeyError),
    /// The call waits for a turn or reserves one, and the quota of this policy has none. It is an error even when the
    /// tokens are there at once, so that the first call shows it.
    NoReservations(PolicyName),
}

impl LimitError {
    /// The denial, if it is one.
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
                 `Quota::unlimited_reservations` to it (sliding windows have neither)"
            ),
        }
    }
}

// Transparent: delegates `source()` to the inner error.
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
