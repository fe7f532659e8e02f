//! A decision that is known to allow its call.

use std::ops::Deref;

use super::decision::Decision;
use super::decisions::Decisions;

/// A [`Decision`] or [`Decisions`](super::Decisions) that allowed the call, returned by
/// [`RateLimiter::limit`](crate::RateLimiter::limit) and the other methods that return a denial as an error. Unlike a
/// `Decision`, it may be ignored.
///
/// ```
/// # use tollgate::{policy::Allowed, Policy, Quota, RateLimiter, HOUR};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::LimitError> {
/// # let limiter = RateLimiter::default();
/// static LOGIN: Policy = Policy::new("login", Quota::token_bucket(5, HOUR));
/// let allowed: Allowed = limiter.limit(&LOGIN, "ada").await?;
/// assert_eq!(allowed.remaining(), 4);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Allowed<T = Decision>(T);

impl<T> Allowed<T> {
    pub(super) fn new(decision: T) -> Allowed<T> {
        Allowed(decision)
    }

    /// Returns the decision.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl Allowed<Decisions> {
    pub(crate) fn into_binding(self) -> Option<Allowed> {
        self.0.into_binding().map(Allowed)
    }
}

impl<T> Deref for Allowed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
