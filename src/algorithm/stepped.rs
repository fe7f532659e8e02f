//! A step before anybody asks what is to be told of it.

use std::time::Duration;

use super::{Micros, Quota, State, Step, Verdict, token_bucket, whole_micros};

/// A [`Step`] of which it is known whether it is allowed, and everything else can be told: who wants to know no more than
/// that, and who waits for the row, is not to wait for divisions.
#[derive(Clone, Copy)]
pub(crate) struct Stepped {
    pub(crate) turn: Turn,
    pub(crate) state: State,
    pub(crate) now: Micros,
}

impl Stepped {
    /// Of one that was told. Its times are whole microseconds.
    pub(crate) fn of(step: Step) -> Stepped {
        let turn = match step.verdict {
            Verdict::Allow => Turn::Now,
            Verdict::Reserve { wait } => Turn::In(whole_micros(wait)),
            Verdict::Deny { retry: Some(retry) } => Turn::AskAgainIn(whole_micros(retry)),
            Verdict::Deny { retry: None } => Turn::Never,
        };
        Stepped { turn, state: step.state, now: step.now }
    }

    /// Under the same quota.
    #[inline(always)]
    pub(crate) fn told(self, quota: &Quota) -> Step {
        let Stepped { turn, state, now } = self;
        let verdict = match turn {
            Turn::Now => Verdict::Allow,
            Turn::In(wait) => Verdict::Reserve { wait: Duration::from_micros(wait) },
            Turn::AskAgainIn(retry) => Verdict::Deny { retry: Some(Duration::from_micros(retry)) },
            Turn::Owing { level } => {
                Verdict::Deny { retry: token_bucket::wait_for(quota, &state, level, now).map(Duration::from_micros) }
            }
            Turn::Never => Verdict::Deny { retry: None },
        };
        Step { verdict, state, now }
    }
}

/// What is to be said, in microseconds: two words, where a verdict would go through memory.
#[derive(Clone, Copy)]
pub(crate) enum Turn {
    Now,
    In(u64),
    AskAgainIn(u64),
    /// Ask again when the row has come down to this: see [`token_bucket::wait_for`].
    Owing {
        level: u64,
    },
    Never,
}

impl Turn {
    #[inline(always)]
    pub(crate) fn is_allowed(self) -> bool {
        matches!(self, Turn::Now | Turn::In(_))
    }
}
