//! What the fuzz targets of `fuzz/` see that nobody else does. There under `--cfg fuzzing` only, and no promise.

use std::time::Duration;

use crate::algorithm::{Quota, Step};
use crate::policy::{Decision, Digest, PolicyName};

pub use crate::backend::{Answered, Operation, decided, notices, value_of};
pub use crate::middleware::sent;

/// What is read of a duration as text.
pub fn duration(text: &str) -> Option<Duration> {
    crate::policy::parse_duration(text)
}

/// What a limiter makes of a backend's step.
pub fn decision(policy: PolicyName, quota: Quota, cost: u64, step: Step, all_granted: bool) -> Decision {
    Decision::new(policy, Digest::from_bits(0), quota, cost, step, all_granted)
}
