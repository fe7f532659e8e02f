//! Observers to log and measure by: [`Tracing`] (feature `tracing`) and [`Metrics`] (feature `metrics`).
//!
//! They are told by [`RateLimiterBuilder::observer`](crate::limiter::RateLimiterBuilder::observer). Neither shows a key: events
//! have its digest, labels nothing of it. Both set up, and what to alert on: [`docs::observing`](crate::docs::observing).

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
pub use crate::limiter::observer::{Blocked, Decided, Failed, Observer, Outcome, Reset, Settled};
