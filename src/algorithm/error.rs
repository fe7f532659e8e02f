//! Why a quota was refused.

use std::fmt;

use super::words::Words;

/// Why a quota was refused: which value, and what it may be.
///
/// ```
/// use tollgate::{Quota, MINUTE};
///
/// let error = Quota::try_token_bucket(0, MINUTE).unwrap_err();
/// assert_eq!(error.to_string(), "rate is 0; it must be from 1 to 999999999999999 tokens");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaError {
    problem: Problem,
    value: u64,
}

/// What can be wrong with a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Problem {
    CapacityTooLarge,
    FillTooLong,
    NothingFits,
    Period,
    PeriodNotMicros,
    Rate,
    ReservedTooLarge,
    ReservedTooLong,
    SlidingCapacity,
    SlidingReservation,
    SlidingUnlimited,
    StartNotMicros,
}

impl QuotaError {
    pub(super) const fn new(problem: Problem, value: u64) -> QuotaError {
        QuotaError { problem, value }
    }

    /// What is said before and after the value, in an error and in a panic alike.
    const fn words(&self) -> (&'static str, &'static str) {
        match self.problem {
            Problem::CapacityTooLarge => ("capacity is ", "; it must be at most 999999999999999 tokens"),
            Problem::FillTooLong => (
                "capacity is ",
                "; at this rate it takes over 285 years to be paid back, so lower it or raise the rate",
            ),
            Problem::NothingFits => (
                "capacity is ",
                " and nothing may be reserved: every request would be refused; raise it, or allow reservations",
            ),
            Problem::Period => ("period is ", " s; it must be from 1 microsecond to 100 years"),
            Problem::PeriodNotMicros => ("period ends in ", " ns; it must be whole microseconds"),
            Problem::Rate => ("rate is ", "; it must be from 1 to 999999999999999 tokens"),
            Problem::ReservedTooLarge => ("max_reserved is ", "; it must be at most 999999999999999 tokens"),
            Problem::ReservedTooLong => (
                "max_reserved is ",
                "; at this rate it takes over 285 years to be paid back, so lower it or raise the rate",
            ),
            Problem::SlidingCapacity => {
                ("capacity is ", " for a sliding window; its capacity is its limit, so leave it out")
            }
            Problem::SlidingReservation => (
                "max_reserved is ",
                " for a sliding window, which cannot promise a turn; leave it out, or use a token bucket",
            ),
            Problem::SlidingUnlimited => (
                "reservations are unlimited",
                " for a sliding window, which cannot promise a turn; leave them out, or use a token bucket",
            ),
            Problem::StartNotMicros => ("start ends in ", " ns; it must be whole microseconds"),
        }
    }

    /// The value, where it is a number.
    const fn number(&self) -> Option<u64> {
        match self.problem {
            Problem::SlidingUnlimited => None,
            _ => Some(self.value),
        }
    }

    /// For constructors that are `const`, and cannot return it.
    #[track_caller]
    pub(crate) const fn panic(&self) -> ! {
        let (before, after) = self.words();
        let words = Words::new().text(before);
        let words = match self.number() {
            Some(value) => words.number(value),
            None => words,
        };
        words.text(after).panic()
    }
}

impl fmt::Display for QuotaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (before, after) = self.words();
        f.write_str(before)?;
        if let Some(value) = self.number() {
            write!(f, "{value}")?;
        }
        f.write_str(after)
    }
}

impl std::error::Error for QuotaError {}
