//! Why a quota was refused.

use std::fmt;

use super::quota::Quota;

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
    StartNotMicros,
}

impl QuotaError {
    pub(super) const fn new(problem: Problem, value: u64) -> QuotaError {
        QuotaError { problem, value }
    }

    /// A panic in a `const` takes a fixed text only.
    #[track_caller]
    pub(super) const fn panic(&self) -> ! {
        match self.problem {
            Problem::CapacityTooLarge => panic!("tollgate: capacity must be at most 999999999999999 tokens"),
            Problem::FillTooLong => panic!("tollgate: a full capacity must be paid back within 285 years"),
            Problem::NothingFits => panic!("tollgate: a capacity of 0 without reservations refuses everything"),
            Problem::Period => panic!("tollgate: period must be from 1 microsecond to 100 years"),
            Problem::PeriodNotMicros => panic!("tollgate: period must be whole microseconds"),
            Problem::Rate => panic!("tollgate: rate must be from 1 to 999999999999999 tokens"),
            Problem::ReservedTooLarge => panic!("tollgate: max_reserved must be at most 999999999999999 tokens"),
            Problem::ReservedTooLong => panic!("tollgate: max_reserved must be paid back within 285 years"),
            Problem::SlidingCapacity => panic!("tollgate: a sliding window's capacity is its limit; it takes no other"),
            Problem::SlidingReservation => panic!("tollgate: a sliding window cannot reserve"),
            Problem::StartNotMicros => panic!("tollgate: start must be whole microseconds"),
        }
    }
}

impl fmt::Display for QuotaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, max) = (self.value, Quota::MAX_TOKENS);
        match self.problem {
            Problem::CapacityTooLarge => write!(f, "capacity is {value}; it must be at most {max} tokens"),
            Problem::FillTooLong => {
                write!(f, "capacity is {value}; at this rate it takes over 285 years to be paid back")
            }
            Problem::NothingFits => {
                write!(f, "capacity is {value} and nothing may be reserved: every request would be refused")
            }
            Problem::Period => write!(f, "period is {value} s; it must be from 1 microsecond to 100 years"),
            Problem::PeriodNotMicros => {
                write!(f, "period ends in {value} ns; it must be whole microseconds")
            }
            Problem::Rate => write!(f, "rate is {value}; it must be from 1 to {max} tokens"),
            Problem::ReservedTooLarge => write!(f, "max_reserved is {value}; it must be at most {max} tokens"),
            Problem::ReservedTooLong => {
                write!(f, "max_reserved is {value}; at this rate it takes over 285 years to be paid back")
            }
            Problem::SlidingCapacity => {
                write!(f, "capacity {value} for a sliding window; its capacity is its limit, so leave it out")
            }
            Problem::SlidingReservation => {
                write!(f, "reservations for a sliding window, which cannot keep a promise; use a token bucket")
            }
            Problem::StartNotMicros => write!(f, "start ends in {value} ns; it must be whole microseconds"),
        }
    }
}

impl std::error::Error for QuotaError {}
