//! Internals for the fuzz targets in `fuzz/`, compiled only with `--cfg tollgate_fuzzing`.

use std::time::Duration;

use crate::algorithm::{Quota, Step};
use crate::policy::{ChargedQuota, Decision, Digest, Part, PolicyName};

pub use crate::backend::{Answered, Operation, decided, notices, value_of};
pub use crate::middleware::sent;

/// Parses a duration.
pub fn duration(text: &str) -> Option<Duration> {
    crate::policy::parse_duration(text)
}

/// Returns the decision that a limiter creates from a backend's step.
pub fn decision(policy: PolicyName, quota: Quota, cost: u64, step: Step, all_granted: bool) -> Decision {
    let key = Digest::from_bits(0);
    Decision::new(ChargedQuota { policy, row_key: key, quota, cost, window: 0, part: Part::WHOLE }, step, all_granted)
}
