//! Summaries of decisions in whole tokens and whole seconds.

use std::time::Duration;

use super::decision::Decision;

/// A [summary](Decision::summary) of the limit after a decision, for JSON responses. Serializable with the `serde`
/// feature.
///
/// ```
/// # use tollgate::{clock::ManualClock, MemoryBackend, Policy, Quota, RateLimiter, HOUR};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::backend::Error> {
/// # let limiter = RateLimiter::new(MemoryBackend::builder().clock(ManualClock::new()).build());
/// static LOGIN: Policy = Policy::new("login", Quota::token_bucket(2, HOUR));
/// let summary = limiter.try_limit(&LOGIN, "ada").await?.summary();
/// assert_eq!((summary.limit, summary.remaining, summary.reset, summary.retry_after), (2, 1, 1800, None));
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Summary {
    /// The capacity in tokens; see [`Decision::capacity`].
    pub limit: u64,
    /// The remaining whole tokens; see [`Decision::remaining`].
    pub remaining: u64,
    /// The seconds until the full limit is available, rounded up; see [`Decision::reset`]. 0 if it is available now.
    pub reset: u64,
    /// The seconds until a retry succeeds, rounded up, with a minimum of 1; see [`Decision::retry_after`].
    pub retry_after: Option<u64>,
}

impl Summary {
    pub(super) fn of(decision: &Decision) -> Summary {
        Summary {
            limit: decision.capacity(),
            remaining: decision.remaining(),
            reset: seconds_up(decision.reset()),
            retry_after: decision.retry_after().map(|wait| seconds_up(wait).max(1)),
        }
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Summary {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let Summary { limit, remaining, reset, retry_after } = self;
        let mut fields = serializer.serialize_struct("Summary", 4)?;
        fields.serialize_field("limit", limit)?;
        fields.serialize_field("remaining", remaining)?;
        fields.serialize_field("reset", reset)?;
        fields.serialize_field("retry_after", retry_after)?;
        fields.end()
    }
}

/// Rounds up to whole seconds, because a client that retries too early would be refused again.
pub(crate) const fn seconds_up(duration: Duration) -> u64 {
    duration.as_secs().saturating_add((duration.subsec_nanos() > 0) as u64)
}
