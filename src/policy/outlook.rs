//! What a step means to whoever is told of it: what remains, and for how long.

use std::time::Duration;

use crate::algorithm::{Micros, Quota, State, Step, Verdict, available, next_change, roll_if_own, when};

/// A step under its quota.
#[derive(Clone, Copy)]
pub(crate) struct Outlook<'a> {
    pub(crate) quota: &'a Quota,
    pub(crate) step: &'a Step,
}

impl Outlook<'_> {
    /// See [`Decision::remaining`](super::Decision::remaining).
    pub(crate) fn remaining(self) -> u64 {
        available(self.quota, &self.row(), self.step.now)
    }

    /// See [`Decision::reset`](super::Decision::reset).
    pub(crate) fn reset(self) -> Duration {
        when(self.quota, &self.row(), self.step.now, 0.0).unwrap_or(Micros::MAX).since(self.step.now)
    }

    /// See [`Decision::window`](super::Decision::window); `remaining` as told here.
    pub(crate) fn window(self, remaining: u64) -> Duration {
        let Outlook { quota, step } = self;
        let (from, until) = match step.verdict {
            Verdict::Deny { retry: Some(retry) } => return retry,
            Verdict::Reserve { wait } if !wait.is_zero() => {
                let turn = step.now + wait;
                (turn, next_change(quota, &roll_if_own(quota, &step.state, turn), turn))
            }
            _ if remaining > 0 && !quota.algorithm().has_windows() => {
                let tokens = State { spent: remaining as f64, at: step.now, stamp: quota.stamp(), ..State::default() };
                (step.now, when(quota, &tokens, step.now, 0.0))
            }
            _ => (step.now, next_change(quota, &self.row(), step.now)),
        };
        until.unwrap_or(Micros::MAX).since(from)
    }

    fn row(self) -> State {
        roll_if_own(self.quota, &self.step.state, self.step.now)
    }
}
