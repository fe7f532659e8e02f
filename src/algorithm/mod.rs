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
mod tests {
    use super::*;

    const NOW: Micros = Micros::new(1_700_000_000_000_000);

    #[test]
    fn a_denial_does_not_change_the_row() {
        let quota = Quota::fixed_window(10, MINUTE).start(Duration::ZERO);
        let state = step(&quota, &State::default(), NOW, Ask::cost(8)).state;
        let denied = step(&quota, &state, NOW, Ask::cost(3));
        assert!(!denied.is_allowed());
        assert_eq!(denied.state, state);
    }

    #[test]
    fn a_cost_that_never_fits_has_no_retry_time() {
        for quota in [
            Quota::token_bucket(10, MINUTE).max_reserved(5),
            Quota::fixed_window(10, MINUTE).max_reserved(5),
            Quota::sliding_window(10, MINUTE),
        ] {
            let never = Verdict::Deny { retry: None };
            assert_eq!(step(&quota, &State::default(), NOW, Ask::cost(16)).verdict, never);
            assert_eq!(step(&quota, &State::default(), NOW, Ask::cost(16).reserve()).verdict, never);
            assert_eq!(step(&quota, &State::default(), NOW, Ask::cost(u64::MAX).reserve()).verdict, never);
        }
    }

    #[test]
    fn a_capacity_of_zero_spaces_reservations_evenly() {
        let quota = Quota::token_bucket(10, MINUTE).capacity(0).unlimited_reservations();
        let mut state = State::default();
        for number in 1..=10 {
            let step = step(&quota, &state, NOW, Ask::cost(1).reserve());
            assert_eq!(step.verdict, Verdict::Reserve { wait: Duration::from_secs(6 * number) });
            state = step.state;
        }
    }

    #[test]
    fn a_reservation_denied_because_of_its_wait_has_a_retry_time() {
        let quota = Quota::token_bucket(1, SECOND).unlimited_reservations();
        let state = step(&quota, &State::default(), NOW, Ask::cost(10).reserve()).state;
        let ask = Ask::cost(1).wait_up_to(Duration::from_secs(4));
        let Verdict::Deny { retry: Some(retry) } = step(&quota, &state, NOW, ask).verdict else { panic!() };
        assert_eq!(retry, Duration::from_secs(6));
        assert!(!step(&quota, &state, NOW + (retry - Duration::from_micros(1)), ask).is_allowed());
        assert!(step(&quota, &state, NOW + retry, ask).is_allowed());
    }

    #[test]
    fn a_row_far_ahead_of_the_clock_is_dropped() {
        let quota = Quota::token_bucket(10, MINUTE);
        let century = NOW + Duration::from_secs(100 * 365 * 86_400);
        let state = step(&quota, &State::default(), century, Ask::cost(10)).state;
        assert!(step(&quota, &state, NOW, Ask::cost(10)).is_allowed());
        let state = step(&quota, &State::default(), NOW + MINUTE, Ask::cost(10)).state;
        let denied = step(&quota, &state, NOW, Ask::cost(1));
        assert_eq!(denied.verdict, Verdict::Deny { retry: Some(Duration::from_secs(66)) });
    }

    #[test]
    fn a_row_is_dropped_if_it_is_ahead_by_more_than_the_refill_time_and_the_repayment_time() {
        let (quota, micro) = (Quota::token_bucket(10, MINUTE), Duration::from_micros(1));
        let rolled = |spent: f64, at: Micros| {
            let row = roll(&quota, &State { spent, at, stamp: quota.stamp(), ..State::default() }, NOW);
            (row.spent, row.at.max(NOW) == at)
        };
        assert_eq!(rolled(5.0, NOW + MINUTE), (5.0, true));
        assert_eq!(rolled(5.0, NOW + MINUTE + micro), (0.0, false));
        assert_eq!(rolled(20.0, NOW + 2 * MINUTE), (20.0, true));
        assert_eq!(rolled(20.0, NOW + 2 * MINUTE + micro), (0.0, false));
    }

    #[test]
    fn an_error_about_unlimited_reservations_contains_no_number() {
        let error = Quota::sliding_window(10, MINUTE).try_unlimited_reservations().unwrap_err().to_string();
        assert!(error.starts_with("unlimited reservations are set for a sliding window"), "{error}");
    }

    #[test]
    fn a_window_ahead_of_the_clock_by_more_than_the_refill_time_is_dropped() {
        let quota = Quota::fixed_window(10, MINUTE).capacity(20).start(Duration::ZERO);
        let now = Micros::new(1_700_000_040_000_000);
        let spent = |windows: u32| {
            let row = State { spent: 5.0, at: now + windows * MINUTE, stamp: quota.stamp(), ..State::default() };
            roll(&quota, &row, now).spent
        };
        assert_eq!((spent(2), spent(3)), (5.0, 0.0));
    }

    #[test]
    fn a_fraction_of_a_token_can_be_owed() {
        let quota = Quota::token_bucket(10, MINUTE);
        let verdict = |spent: f64, since: u64| {
            let at = NOW.minus(since * 1_000_000);
            step(&quota, &State { spent, at, stamp: quota.stamp(), ..State::default() }, NOW, Ask::cost(1)).verdict
        };
        let denied = |seconds: u64| Verdict::Deny { retry: Some(Duration::from_secs(seconds)) };
        assert_eq!((verdict(9.5, 3), verdict(9.5, 2)), (Verdict::Allow, denied(1)));
        assert_eq!((verdict(10.0, 5), verdict(10.5, 5)), (denied(1), denied(4)));
    }

    #[test]
    fn a_sliding_window_far_ahead_of_the_clock_loses_both_counts() {
        let quota = Quota::sliding_window(10, MINUTE);
        let ahead = State {
            spent: 6.0,
            at: Micros::new(2_000_000_040_000_000),
            carry: 4.0,
            stamp: quota.stamp(),
            ..State::default()
        };
        let row = roll(&quota, &ahead, NOW);
        assert_eq!((row.spent, row.carry), (0.0, 0.0));
        assert!(row.at <= NOW);
    }

    #[test]
    fn a_sliding_window_that_does_not_begin_at_a_boundary_counts_as_unspent() {
        let quota = Quota::sliding_window(10, MINUTE);
        let at = Micros::new(1_700_000_040_000_001);
        let row = roll(&quota, &State { spent: 3.0, at, carry: 7.0, stamp: quota.stamp(), ..State::default() }, at);
        assert_eq!((row.spent, row.carry), (0.0, 0.0));
    }

    #[test]
    fn the_available_tokens_are_exactly_what_a_step_would_allow() {
        // In one microsecond, 10^-8 tokens are refilled, which is far less than the tolerance of 10^-6.
        let quota = Quota::token_bucket(1, Duration::from_secs(100)).capacity(10);
        let state = step(&quota, &State::default(), NOW, Ask::cost(10)).state;
        let almost = NOW + Duration::from_micros(99_999_950);
        assert_eq!(available(&quota, &roll(&quota, &state, almost), almost), 0);
        assert!(!step(&quota, &state, almost, Ask::cost(1)).is_allowed());
        let whole = NOW + Duration::from_secs(100);
        assert_eq!(available(&quota, &roll(&quota, &state, whole), whole), 1);
        assert_eq!(available(&quota, &State { spent: 25.0, ..state }, NOW), 0, "in debt");
        assert_eq!(available(&quota, &roll(&quota, &State::default(), NOW), NOW), 10);
    }

    #[test]
    fn the_next_change_is_the_next_whole_token_or_the_end_of_the_window() {
        let bucket = Quota::token_bucket(10, MINUTE);
        let state = step(&bucket, &State::default(), NOW, Ask::cost(3)).state;
        let next = |after: u64| {
            let now = NOW + Duration::from_secs(after);
            next_change(&bucket, &roll(&bucket, &state, now), now).map(|at| at.since(NOW).as_secs())
        };
        assert_eq!(
            (next(0), next(5), next(6), next(17), next(18), next(20)),
            (Some(6), Some(6), Some(12), Some(18), Some(18), Some(20))
        );
        for window in [Quota::fixed_window(10, MINUTE).start(Duration::ZERO), Quota::sliding_window(10, MINUTE)] {
            let row = roll(&window, &State::default(), NOW);
            assert_eq!(next_change(&window, &row, NOW), Some(Micros::new(1_700_000_040_000_000)));
        }
    }

    #[test]
    fn the_wait_for_a_reservation_shrinks_within_a_window() {
        // At most 25 tokens can be outstanding at once, so a cost of 25 does not fit before the next window. In the
        // middle of that window, the wait for the reservation is short enough.
        let quota = Quota::fixed_window(10, MINUTE).max_reserved(15).start(Duration::ZERO);
        let begin = Micros::new(1_700_000_040_000_000);
        let state = step(&quota, &State::default(), begin, Ask::cost(5)).state;
        let (ask, near) = (Ask::cost(25).wait_up_to(Duration::from_secs(90)), Duration::from_secs(90));
        assert_eq!(step(&quota, &state, begin, ask).verdict, Verdict::Deny { retry: Some(near) });
        assert_eq!(step(&quota, &state, begin + near, ask).verdict, Verdict::Reserve { wait: near });
        let ask = Ask::cost(25).wait_up_to(MINUTE);
        assert_eq!(step(&quota, &state, begin, ask).verdict, Verdict::Deny { retry: None });
    }

    #[test]
    fn a_cost_that_fits_only_after_the_last_instant_has_no_retry_time() {
        let century = Quota::MAX_PERIOD;
        for quota in [Quota::token_bucket(1, century), Quota::fixed_window(1, century).start(Duration::ZERO)] {
            // This debt would be repaid in the year 2423 (bucket) or 2370 (window).
            let owed = State { spent: 4.0, at: NOW, stamp: quota.stamp(), ..State::default() };
            for spent in [1e9, MAX_SPENT as f64] {
                assert_eq!(when(&quota, &State { spent, ..owed }, NOW, 0.0), None, "{quota:?}");
            }
            assert_eq!(step(&quota, &owed, NOW, Ask::cost(1)).verdict, Verdict::Deny { retry: None }, "{quota:?}");
            let owed = State { spent: 2.0, ..owed };
            assert!(
                matches!(step(&quota, &owed, NOW, Ask::cost(1)).verdict, Verdict::Deny { retry: Some(_) }),
                "{quota:?}"
            );
        }
        let window = Quota::sliding_window(1, century);
        let full = step(&window, &State::default(), Micros::new(Micros::MAX.get() - 1), Ask::cost(1)).state;
        let denied = step(&window, &full, Micros::new(Micros::MAX.get() - 1), Ask::cost(1));
        assert_eq!(denied.verdict, Verdict::Deny { retry: None });
    }

    #[test]
    fn a_wait_is_rounded_up_to_whole_microseconds() {
        let ask = Ask::cost(1).wait_up_to(Duration::from_nanos(1500));
        assert_eq!((Ask::cost(1).max_wait(), ask.max_wait()), (None, Some(Duration::from_micros(2))));
        assert_eq!(ask.reserve().max_wait(), Some(Duration::from_micros(u64::MAX - 1)));
        assert_eq!(
            format!("{:?}, {ask:?}", Ask::cost(7)),
            "Ask { cost: 7, max_wait: None }, Ask { cost: 1, max_wait: Some(2µs) }"
        );
        #[cfg(feature = "redis")]
        assert_eq!((Ask::cost(1).max_wait_micros(), ask.max_wait_micros()), (None, Some(2)));
    }
}
