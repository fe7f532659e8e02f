//! The rate-limiting arithmetic, as pure functions that read no clock and never wait.
//!
//! Given a quota, the state of a row and an instant, these functions decide whether an [`Ask`] is granted. All backends
//! use them and therefore make the same decisions. To simulate a limit without a backend, call them directly.
//!
//! The state of a key is the number of **spent** tokens and the instant at which they were counted. Spent tokens are a
//! debt that is **repaid** over time; the algorithm determines how fast. The rest of the capacity is available.
//!
//! ```
//! use std::time::Duration;
//! use tollgate::{algorithm::{step, Ask, Micros, State, Verdict}, Quota, MINUTE};
//!
//! let quota = Quota::token_bucket(10, MINUTE).max_reserved(1);
//! let (now, soon) = (Micros::new(1_700_000_000_000_000), Duration::from_secs(6));
//! let first = step(&quota, &State::default(), now, Ask::cost(10));
//! assert_eq!(first.verdict, Verdict::Allow);
//!
//! let next = |ask: Ask| step(&quota, &first.state, now, ask).verdict;
//! assert_eq!(next(Ask::cost(1)), Verdict::Deny { retry: Some(soon) });
//! assert_eq!(next(Ask::cost(1).wait_up_to(soon)), Verdict::Reserve { wait: soon });
//! assert_eq!(next(Ask::cost(12)), Verdict::Deny { retry: None });
//! assert!(step(&quota, &first.state, now + soon, Ask::cost(1)).is_allowed());
//! ```

mod changed;
mod const_message;
mod error;
mod fixed_window;
mod give_back;
mod lease;
mod list;
mod micros;
mod quota;
mod sliding_window;
mod step;
mod token_bucket;

use std::fmt;
use std::time::Duration;

pub(crate) use changed::{is_foreign, writer};
pub(crate) use const_message::ConstMessage;
pub use error::QuotaError;
pub(crate) use give_back::carry_until;
pub use give_back::{ChargeRecord, settle, takes_effect};
pub use lease::{LEASE_LIFE, Lease, LeaseId, LeaseReport, Outstanding, lease, settle_leases};
#[cfg(feature = "redis")]
pub(crate) use lease::{MIN_LEASE, floored, with_leases};
pub(crate) use list::List;
pub use micros::Micros;
pub(crate) use micros::whole_micros;
pub(crate) use quota::MAX_SPENT;
pub use quota::{Algorithm, DAY, HOUR, MINUTE, Quota, SECOND, WEEK};
pub use step::{Line, Steps, step, step_all};
use step::{granted, retry_own};

/// The stored state of a key under a policy. The default is the state of a new key.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct State {
    /// The number of tokens that are spent and not yet repaid at [`at`](State::at). It can exceed the capacity.
    pub spent: f64,
    /// The instant from which `spent` is repaid. For windows, the boundary up to which tokens have been repaid.
    pub at: Micros,
    /// For a sliding window, the count of the previous window. For other algorithms, the number of refunded tokens, on
    /// which later settlements depend. It is usually 0.
    pub carry: f64,
    /// The [stamp](stamp()) of the quota under which the row was written.
    pub stamp: u32,
    /// The whole second at which the row expires. By then, the row is fully repaid under the quota that wrote it, so
    /// other quotas treat it as unspent. A backend may store a later instant, except for a sliding window, whose
    /// `clear` must be `at` plus two periods, rounded up. [`Micros::MAX`] means never.
    pub clear: Micros,
}

impl State {
    pub(crate) fn or_none(self) -> State {
        if self.spent == 0.0 && self.carry == 0.0 { State::default() } else { self }
    }
}

/// A request for tokens, either without waiting or with a maximum wait. Waits are rounded up to whole microseconds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    cost: u64,
    /// The longest wait in microseconds, or `NO_WAIT`. This is not an `Option`, so that an `Ask` fits in two registers.
    max_wait: u64,
}

const NO_WAIT: u64 = u64::MAX;
const ANY_WAIT: u64 = NO_WAIT - 1;

impl Ask {
    /// Asks for `cost` tokens immediately. A cost of 0 only checks that the spent tokens do not exceed the capacity.
    pub const fn cost(cost: u64) -> Ask {
        Ask { cost, max_wait: NO_WAIT }
    }

    /// Accepts a reservation that is due within `wait`. Has no effect if the quota does not allow reservations.
    #[must_use]
    pub fn wait_up_to(mut self, wait: Duration) -> Ask {
        self.max_wait = whole_micros(wait).min(ANY_WAIT);
        self
    }

    /// Accepts a reservation, however late it is due. Has no effect if the quota does not allow reservations.
    #[must_use]
    pub const fn reserve(mut self) -> Ask {
        self.max_wait = ANY_WAIT;
        self
    }

    /// Replaces the cost.
    #[must_use]
    pub const fn for_cost(mut self, cost: u64) -> Ask {
        self.cost = cost;
        self
    }

    /// The cost in tokens.
    pub const fn tokens(&self) -> u64 {
        self.cost
    }

    pub(crate) const fn max_wait_micros(&self) -> Option<u64> {
        if self.max_wait == NO_WAIT { None } else { Some(self.max_wait) }
    }

    /// The longest wait that the caller accepts, or `None` if the caller does not wait.
    pub const fn max_wait(&self) -> Option<Duration> {
        match self.max_wait_micros() {
            Some(micros) => Some(Duration::from_micros(micros)),
            None => None,
        }
    }
}

impl fmt::Debug for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ask").field("cost", &self.cost).field("max_wait", &self.max_wait()).finish()
    }
}

/// The answer to an [`Ask`]. See the [module](self) for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums)] // Callers match on all outcomes.
pub enum Verdict {
    /// The tokens are spent, and the caller may proceed now.
    Allow,
    /// The tokens are reserved: they already count as spent. The caller may proceed after `wait`.
    Reserve {
        /// The time until the reservation is due, in whole microseconds. It is never zero.
        wait: Duration,
    },
    /// The ask is denied, and no tokens are spent.
    Deny {
        /// The shortest wait, in whole microseconds, after which the same ask succeeds if the key spends nothing in the
        /// meantime. `None` if the ask can never succeed.
        retry: Option<Duration>,
    },
}

impl Verdict {
    /// Returns a sort key that orders verdicts by when the ask is granted: now, after a wait, on a retry, or never.
    pub(crate) fn wait_order(&self) -> (u8, Duration) {
        match *self {
            Verdict::Allow => (0, Duration::ZERO),
            Verdict::Reserve { wait } => (0, wait),
            Verdict::Deny { retry: Some(retry) } => (1, retry),
            Verdict::Deny { retry: None } => (2, Duration::ZERO),
        }
    }
}

/// A verdict and the resulting row. See the [module](self) for an example.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// The answer.
    pub verdict: Verdict,
    /// The row after the decision. A denial only refills the row, or leaves it unchanged if another quota wrote it.
    pub state: State,
    /// The instant of the decision.
    pub now: Micros,
}

impl Step {
    /// Returns whether the tokens were spent, either immediately or as a reservation.
    pub const fn is_allowed(&self) -> bool {
        !matches!(self.verdict, Verdict::Deny { .. })
    }
}

fn cleared(quota: &Quota, row: State) -> State {
    let clear = match quota.algorithm() {
        Algorithm::TokenBucket => token_bucket::clear(quota, row.spent, row.at),
        Algorithm::FixedWindow => fixed_window::clear(quota, &row),
        Algorithm::SlidingWindow => row.at.plus(2 * quota.period_micros()).to_whole_second(),
    };
    State { clear, ..row }
}

/// Returns the row as of `now`, without the tokens that have been repaid. A foreign row is converted; see [`changed`].
pub(crate) fn roll(quota: &Quota, state: &State, now: Micros) -> State {
    if state.stamp == quota.stamp() { roll_own(quota, state, now) } else { changed::roll(quota, state, now) }
}

/// Like [`roll`], but leaves a foreign row unchanged, because [`when`] must know that another quota wrote it.
pub(crate) fn roll_if_own(quota: &Quota, state: &State, now: Micros) -> State {
    if is_foreign(quota, state, now) { *state } else { roll(quota, state, now) }
}

fn roll_own(quota: &Quota, state: &State, now: Micros) -> State {
    let mut row = *state;
    if quota.algorithm() == Algorithm::SlidingWindow && !sliding_window::aligned(quota, &row) {
        row = State { spent: 0.0, carry: 0.0, ..row };
    }
    if is_too_far_ahead(quota, &row, now) {
        row = State { spent: 0.0, at: now, ..row };
        if quota.algorithm() == Algorithm::SlidingWindow {
            row.carry = 0.0;
        }
    }
    roll_within(quota, &row, now)
}

fn is_too_far_ahead(quota: &Quota, row: &State, now: Micros) -> bool {
    if row.at <= now || row.at.micros_since(now) <= quota.fill_micros() {
        return false;
    }
    // Repayment cannot simply start at `now`: a denial stores nothing, so every retry would start over. The row is
    // dropped if the same debt, counted from `now`, would be fully repaid before `at`.
    let begun = State { at: now, ..*row };
    when_own(quota, &begun, now, 0.0).is_some_and(|clear| clear < row.at)
}

fn roll_within(quota: &Quota, row: &State, now: Micros) -> State {
    match quota.algorithm() {
        Algorithm::TokenBucket => token_bucket::roll(quota, row, now),
        Algorithm::FixedWindow => fixed_window::roll(quota, row, now),
        Algorithm::SlidingWindow => sliding_window::roll(quota, row, now),
    }
}

pub(crate) fn spent(quota: &Quota, row: &State, now: Micros) -> f64 {
    match quota.algorithm() {
        Algorithm::TokenBucket => token_bucket::spent(quota, row, now),
        Algorithm::FixedWindow => row.spent,
        Algorithm::SlidingWindow => sliding_window::spent(quota, row, now),
    }
}

/// Converts a row that another quota wrote. A row with this quota's stamp must already be rolled.
fn own(quota: &Quota, row: &State, now: Micros) -> State {
    if row.stamp == quota.stamp() { *row } else { roll(quota, row, now) }
}

pub(crate) fn available(quota: &Quota, row: &State, now: Micros) -> u64 {
    let (limit, row) = (quota.get_capacity(), &own(quota, row, now));
    // The result must equal what `step` would allow, so the guess is checked with the same condition as in `step`.
    let guess = (limit as f64 - spent(quota, row, now) + 1e-6).clamp(0.0, limit as f64) as u64;
    if guess > 0 && !within_own(quota, row, now, (limit - guess) as f64) { guess - 1 } else { guess }
}

/// Returns the first instant, not before `now`, at which at most `level` tokens are outstanding if nothing is spent in
/// the meantime. The row must have been returned by [`roll_if_own`].
pub(crate) fn when(quota: &Quota, row: &State, now: Micros, level: f64) -> Option<Micros> {
    if is_foreign(quota, row, now) {
        return changed::when(quota, row, now, level);
    }
    when_own(quota, &own(quota, row, now), now, level)
}

fn when_own(quota: &Quota, row: &State, now: Micros, level: f64) -> Option<Micros> {
    match quota.algorithm() {
        Algorithm::TokenBucket => token_bucket::when(quota, row, now, level),
        Algorithm::FixedWindow => fixed_window::when(quota, row, now, level),
        Algorithm::SlidingWindow => sliding_window::when(quota, row, now, level),
    }
}

/// For a bucket, returns when it gains its next whole token, or `now` if it is full. For a window, returns when the
/// window ends, or when a foreign row expires if that is earlier. The row must have been returned by [`roll_if_own`].
pub(crate) fn next_change(quota: &Quota, row: &State, now: Micros) -> Option<Micros> {
    if quota.algorithm() == Algorithm::TokenBucket {
        let outstanding = spent(quota, &own(quota, row, now), now);
        return when(quota, row, now, (outstanding.ceil() - 1.0).max(0.0));
    }
    let end = fixed_window::boundary(quota, fixed_window::index(quota, now) + 1);
    Some(if is_foreign(quota, row, now) { end.min(row.clear) } else { end })
}

fn within_own(quota: &Quota, row: &State, now: Micros, level: f64) -> bool {
    match quota.algorithm() {
        Algorithm::TokenBucket => token_bucket::within(quota, row, now, level),
        Algorithm::FixedWindow => row.spent <= level,
        Algorithm::SlidingWindow => sliding_window::within(quota, row, now, level),
    }
}

/// Returns the nonzero number by which rows identify the quota that wrote them. For authors of backends.
pub const fn stamp(quota: &Quota) -> u32 {
    quota.stamp()
}

/// Returns the quota with its window boundaries set. For authors of backends. If a fixed window has no `start`, one of
/// its boundaries is `seed` microseconds after the epoch. The seed does not change the stamp. The quota of a
/// [`Take`](crate::backend::Take) is already seeded with a number derived from the row.
#[must_use]
pub const fn seeded(quota: Quota, seed: u64) -> Quota {
    quota.seeded(seed)
}

/// Checks that a quota can grant requests: a capacity of 0 requires reservations. Policies are checked on creation.
///
/// # Errors
/// Fails if the quota would deny every request.
pub const fn validate(quota: &Quota) -> Result<(), QuotaError> {
    quota.validate()
}

#[cfg(test)]
mod tests;
