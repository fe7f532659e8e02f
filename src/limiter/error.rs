//! Why a call came back with nothing.

use std::fmt;

use crate::backend::Error;
use crate::policy::Denied;

/// A denial, or a backend that could not decide: what a handler returns that has both to pass on.
///
/// ```
/// use tollgate::{LimitError, Policy, Quota, RateLimiter, HOUR};
///
/// static LOGIN: Policy = Policy::new("login", Quota::token_bucket(1, HOUR));
///
/// async fn login(limiter: &RateLimiter, email: &str) -> Result<(), LimitError> {
///     limiter.limit(&LOGIN, email).await?.into_result()?;
///     Ok(())
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let limiter = RateLimiter::default();
/// assert!(login(&limiter, "ada@example.com").await.is_ok());
/// let error = login(&limiter, "ada@example.com").await.unwrap_err();
/// assert!(matches!(error, LimitError::Denied(_)));
/// assert_eq!(error.denied().is_some_and(|denied| denied.retry_after().is_some()), true);
/// # }
/// ```
///
/// With feature `axum` it is a response too: 429 or 503, as the layer would answer.
#[derive(Debug)]
#[non_exhaustive]
pub enum LimitError {
    /// Some quota is exceeded.
    Denied(Denied),
    /// The backend could not decide.
    Backend(Error),
}

impl LimitError {
    /// The denial, if it is one.
    pub fn denied(&self) -> Option<&Denied> {
        match self {
            LimitError::Denied(denied) => Some(denied),
            LimitError::Backend(_) => None,
        }
    }

    fn inner(&self) -> &(dyn std::error::Error + 'static) {
        match self {
            LimitError::Denied(denied) => denied,
            LimitError::Backend(error) => error,
        }
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

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.inner(), f)
    }
}

// It speaks for what is inside, so what caused it is what caused that.
impl std::error::Error for LimitError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.inner().source()
    }
}
