//! Limiters whose backends behave like remote backends.

use std::sync::Arc;

use tokio::sync::Notify;
use tollgate::{MemoryBackend, RateLimiter, clock::ManualClock};

use crate::support::backends::{Delay, DelayedBackend};

/// Creates two limiters with stopped clocks. One decides immediately, and the other decides after a delay.
pub(crate) fn limiters() -> [RateLimiter; 2] {
    let immediate = MemoryBackend::builder().clock(ManualClock::new()).build();
    [RateLimiter::new(immediate), RateLimiter::new(DelayedBackend::new(&ManualClock::new(), 2))]
}

/// Creates a limiter that completes one call for each notification of `gate`.
pub(crate) fn gated(gate: &Arc<Notify>) -> RateLimiter {
    RateLimiter::new(DelayedBackend::with(&ManualClock::new(), Delay::Until(Arc::clone(gate))))
}
