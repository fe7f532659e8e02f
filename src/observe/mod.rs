//! Observers for logs and metrics: `Tracing` (feature `tracing`), `Metrics` (feature `metrics`), and [`Top`], which
//! finds the keys with the most charges.
//!
//! Register them with [`RateLimiterBuilder::observer`](crate::limiter::RateLimiterBuilder::observer). For setup and
//! alerts, see [`docs::observing`](crate::docs::observing).

#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "metrics")]
pub mod names;
mod per_policy;
#[cfg(feature = "tracing")]
mod sample;
#[cfg(feature = "metrics")]
mod series;
mod sketch;
mod top;
#[cfg(feature = "tracing")]
mod tracing;

#[cfg(feature = "metrics")]
pub use self::metrics::Metrics;
pub use self::top::{Top, TopKey, TopKeys};
#[cfg(feature = "tracing")]
pub use self::tracing::Tracing;
pub use crate::limiter::mistake::{Mistake, MistakeKind, Mistakes};
pub use crate::limiter::observer::{
    Audited, Blocked, Credited, Decided, Failed, Observer, Outcome, Requested, Reset, Settled,
};
