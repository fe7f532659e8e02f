//! A limit as it stands, to be projected by whoever holds it.

use crate::algorithm::{Ask, Micros, Quota, State, Step, available, roll, step};
use crate::policy::{Decision, PolicyName};

/// A row, the quota that applies to it, and the instant at which it was read.
#[derive(Clone, Debug)]
pub struct Snapshot {
    policy: PolicyName,
    quota: Quota,
    state: State,
    now: Micros,
}

impl Snapshot {
    pub(super) fn of(decision: &Decision) -> Snapshot {
        Snapshot {
            policy: decision.policy().clone(),
            quota: *decision.quota(),
            state: decision.step().state,
            now: decision.step().now,
        }
    }

    /// The policy's name.
    pub const fn policy(&self) -> &PolicyName {
        &self.policy
    }

    /// The quota, with the window boundaries of this key.
    pub const fn quota(&self) -> &Quota {
        &self.quota
    }

    /// The row.
    pub const fn state(&self) -> &State {
        &self.state
    }

    /// When it was read, by the backend's clock.
    pub const fn now(&self) -> Micros {
        self.now
    }

    /// Whole tokens that could be spent at once at `instant`, if nobody spends until then.
    pub fn available(&self, instant: Micros) -> u64 {
        available(&self.quota, &roll(&self.quota, &self.state, instant), instant)
    }

    /// What would be answered to `ask` at `instant`, if nobody spends until then.
    pub fn project(&self, instant: Micros, ask: Ask) -> Step {
        step(&self.quota, &self.state, instant, ask)
    }
}
