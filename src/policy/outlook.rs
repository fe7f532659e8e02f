//! What a step means to whoever is told of it: what remains, and for how long.

use std::time::Duration;

use crate::algorithm::{
    Algorithm, Micros, Quota, State, Step, Verdict, available, left_of_whole, next_change, roll_if_own, when,
};

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

    /// See [`Decision::window`](super::Decision::window).
    pub(crate) fn window(self) -> Duration {
        match self.step.verdict {
            Verdict::Deny { retry: Some(retry) } => retry,
            Verdict::Reserve { wait } if !wait.is_zero() => {
                let turn = self.step.now + wait;
                let row = roll_if_own(self.quota, &self.step.state, turn);
                next_change(self.quota, &row, turn).unwrap_or(Micros::MAX).since(turn)
            }
            _ => self.window_with(self.remaining()),
        }
    }

    /// [`remaining`](Outlook::remaining) and [`window`](Outlook::window).
    pub(crate) fn remaining_and_window(self) -> (u64, Duration) {
        // What nearly every response is told.
        if let Some((remaining, micros)) = left_of_whole(self.quota, self.step) {
            return (remaining, Duration::from_micros(micros));
        }
        let remaining = self.remaining();
        match self.step.verdict {
            Verdict::Allow => (remaining, self.window_with(remaining)),
            _ => (remaining, self.window()),
        }
    }

    /// [`window`](Outlook::window), by who knows already what [remains](Outlook::remaining).
    fn window_with(self, remaining: u64) -> Duration {
        let Outlook { quota, step } = self;
        let until = if quota.algorithm() == Algorithm::TokenBucket && remaining > 0 {
            let tokens = State { spent: remaining as f64, at: step.now, stamp: quota.stamp(), ..State::default() };
            when(quota, &tokens, step.now, 0.0)
        } else {
            next_change(quota, &self.row(), step.now)
        };
        until.unwrap_or(Micros::MAX).since(step.now)
    }

    fn row(self) -> State {
        roll_if_own(self.quota, &self.step.state, self.step.now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::{Ask, step};
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]
        #[test]
        fn the_short_way_tells_what_the_long_one_does(
            rate in 1..50u64,
            period in prop_oneof![1..5_000_000u64, Just(60_000_000), Just(1 << 52)],
            capacity in prop_oneof![1..100u64, Just(1 << 40)],
            spent in prop_oneof![0..100u64, Just(1 << 39)],
            part in prop_oneof![Just(0.0), Just(0.5)],
            elapsed in 0..10_000_000u64,
            cost in 0..4u64,
            now in prop_oneof![Just(1_700_000_000_000_000), Just(Micros::MAX.get() - 5_000_000)],
        ) {
            let Ok(quota) = Quota::try_token_bucket(rate, Duration::from_micros(period)) else { return Ok(()) };
            let Ok(quota) = quota.try_capacity(capacity) else { return Ok(()) };
            let (now, at) = (Micros::new(now), Micros::new(now.saturating_sub(elapsed)));
            let before = State { spent: spent as f64 + part, at, stamp: quota.stamp(), ..State::default() };
            let step = step(&quota, &before, now, Ask::cost(cost));
            // As of an allowed call; and of one that another charge refused, which leaves the row as it was.
            for state in [step.state, before] {
                let step = Step { state, ..step };
                let outlook = Outlook { quota: &quota, step: &step };
                prop_assert_eq!(outlook.remaining_and_window(), (outlook.remaining(), outlook.window()));
            }
        }
    }
}
