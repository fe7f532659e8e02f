//! Observers for logs and metrics: `Tracing` (feature `tracing`) and `Metrics` (feature `metrics`).
//!
//! Register them with [`RateLimiterBuilder::observer`](crate::limiter::RateLimiterBuilder::observer). Events contain
//! only the digest of a key. Metric labels do not even contain the digest. For setup and alerts, see
//! [`docs::observing`](crate::docs::observing).

#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "metrics")]
pub mod names;
#[cfg(any(feature = "metrics", feature = "tracing"))]
mod per_policy;
#[cfg(feature = "tracing")]
mod sample;
#[cfg(feature = "metrics")]
mod series;
#[cfg(feature = "tracing")]
mod tracing;

#[cfg(feature = "metrics")]
pub use self::metrics::Metrics;
#[cfg(feature = "tracing")]
pub use self::tracing::Tracing;
pub use crate::limiter::mistake::{Mistake, MistakeKind, Mistakes};
pub use crate::limiter::observer::{Blocked, Credited, Decided, Failed, Observer, Outcome, Reset, Settled};
