//! A decision that is known to be an admission.

use std::ops::Deref;

use super::decision::Decision;

/// An admission: a [`Decision`], or [`Decisions`](super::Decisions), that is not a denial.
///
/// [`RateLimiter::limit`](crate::RateLimiter::limit) and the other calls that fail on a denial return it. It
/// dereferences to the decision. Unlike a decision it may be ignored: there is nothing left to check.
///
/// ```
/// # use tollgate::{policy::Allowed, Decision, LimitError, Policy, Quota, RateLimiter, HOUR};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), LimitError> {
/// static LOGIN: Policy = Policy::new("login", Quota::token_bucket(5, HOUR));
///
/// let limiter = RateLimiter::default();
/// limiter.limit(&LOGIN, "ada").await?;
/// let second: Allowed = limiter.limit(&LOGIN, "ada").await?;
/// assert_eq!(second.remaining(), 3);
/// let decision: Decision = second.into_inner();
/// assert!(decision.is_allowed());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Allowed<T = Decision>(T);

impl<T> Allowed<T> {
    pub(super) fn new(decision: T) -> Allowed<T> {
        Allowed(decision)
    }

    /// The decision, to keep.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> Deref for Allowed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
