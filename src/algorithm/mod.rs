//! The arithmetic: what a quota says to a row of state, at an instant, about a cost.
//!
//! Pure functions of numbers: no clock, no heap, no waiting. Every backend does this arithmetic and no other, so that
//! each decides alike; anyone may use it to project a limit without a backend.
//!
//! A key's state is how much is **spent** and the instant **at** which that was so. What is spent is paid back as time
//! goes by, each algorithm in its own way; what is left of the capacity is available. A key that was never seen has
//! spent nothing.
//!
//! ```
//! use std::time::Duration;
//! use tollgate::algorithm::{step, Ask, Micros, State, Verdict};
//! use tollgate::{Quota, MINUTE};
//!
//! let quota = Quota::token_bucket(10, MINUTE);
//! let now = Micros::new(1_700_000_000_000_000);
//!
//! let first = step(&quota, &State::default(), now, Ask::cost(10));
//! assert_eq!(first.verdict, Verdict::Allow);
//!
//! let next = step(&quota, &first.state, now, Ask::cost(1));
//! assert_eq!(next.verdict, Verdict::Deny { retry: Some(Duration::from_secs(6)) });
//! assert!(step(&quota, &first.state, now + Duration::from_secs(6), Ask::cost(1)).is_allowed());
//! ```

mod changed;
mod error;
mod fixed_window;
mod give_back;
mod list;
mod micros;
mod quota;
mod sliding_window;
mod step;
mod token_bucket;
mod words;

use std::fmt;
use std::time::Duration;

pub(crate) use changed::{is_foreign, writer};
pub use error::QuotaError;
pub(crate) use give_back::carry_until;
pub use give_back::{ChargeRecord, settle, takes_effect};
pub(crate) use list::List;
pub use micros::Micros;
pub(crate) use micros::whole_micros;
pub(crate) use quota::MOST_SPENT;
pub use quota::{Algorithm, DAY, HOUR, MINUTE, Quota, SECOND, WEEK};
pub use step::{Line, Steps, step, step_all};
use step::{granted, retry_own};
pub(crate) use words::Words;

/// What a backend remembers of one key under one policy. The default is a key never seen.
///
/// ```
/// use tollgate::algorithm::{step, Ask, Micros, State};
/// use tollgate::{Quota, MINUTE};
///
/// let quota = Quota::token_bucket(10, MINUTE);
/// let now = Micros::new(1_767_225_600_000_000);
/// let row = step(&quota, &State::default(), now, Ask::cost(3)).state;
/// assert_eq!((row.spent, row.at, row.carry), (3.0, now, 0.0));
/// assert_eq!(row.stamp, tollgate::algorithm::stamp(&quota));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct State {
    /// Tokens spent and, at [`at`](State::at), not yet paid back. More than the capacity while reservations are due.
    pub spent: f64,
    /// The instant from which `spent` is paid back: for windows the last boundary that has been counted.
    pub at: Micros,
    /// Sliding window: the count of the window before. Other algorithms: tokens given back so far, which late
    /// give-backs need to know. Mostly 0.
    pub carry: f64,
    /// The [stamp](crate::algorithm::stamp) of the quota under which the row was written.
    pub stamp: u32,
    /// An instant, in whole seconds, from which nothing of `spent` stands any more under the quota that wrote the
    /// row: never too early, and not much too late. A backend may store a later one, except of a sliding window,
    /// where it is `at` and two periods, rounded up; [`Micros::MAX`] means never. To other quotas the row counts
    /// nothing from then on.
    pub clear: Micros,
}

impl State {
    /// The row, or none if nothing of it stands.
    pub(crate) fn or_none(self) -> State {
        if self.spent == 0.0 && self.carry == 0.0 { State::default() } else { self }
    }
}

/// What is asked of a key: so many tokens, at once or within a time.
///
/// A cost may be any `u64`; one that is more than the quota ever has is denied without a retry time. Times are whole
/// microseconds, rounded up.
///
/// ```
/// use std::time::Duration;
/// use tollgate::algorithm::Ask;
/// use tollgate::SECOND;
///
/// assert_eq!(Ask::cost(3).max_wait(), None);
/// assert_eq!(Ask::cost(3).wait_up_to(5 * SECOND).max_wait(), Some(5 * SECOND));
/// assert_eq!(Ask::cost(3).reserve().for_cost(7).tokens(), 7);
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    cost: u64,
    /// Microseconds, or `NOT_AT_ALL`: two words, which are handed on in registers.
    max_wait: u64,
}

const NOT_AT_ALL: u64 = u64::MAX;
const HOWEVER_LONG: u64 = NOT_AT_ALL - 1;

impl Ask {
    /// `cost` tokens at once. 0 asks whether the key is out of debt.
    pub const fn cost(cost: u64) -> Ask {
        Ask { cost, max_wait: NOT_AT_ALL }
    }

    /// The caller may be told to wait for its turn, up to `wait` (rounded up to whole microseconds), where the quota
    /// allows reservations; else this changes nothing.
    #[must_use]
    pub fn wait_up_to(mut self, wait: Duration) -> Ask {
        self.max_wait = whole_micros(wait).min(HOWEVER_LONG);
        self
    }

    /// The caller may be told to wait for its turn, however long, where the quota allows reservations; else this
    /// changes nothing.
    #[must_use]
    pub const fn reserve(mut self) -> Ask {
        self.max_wait = HOWEVER_LONG;
        self
    }

    /// The same for another cost.
    #[must_use]
    pub const fn for_cost(mut self, cost: u64) -> Ask {
        self.cost = cost;
        self
    }

    /// The tokens asked for.
    pub const fn tokens(&self) -> u64 {
        self.cost
    }

    pub(crate) const fn max_wait_micros(&self) -> Option<u64> {
        if self.max_wait == NOT_AT_ALL { None } else { Some(self.max_wait) }
    }

    /// How long the caller may be told to wait: `None` = not at all.
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

/// The answer to an [`Ask`].
///
/// ```
/// use tollgate::algorithm::{step, Ask, Micros, State, Verdict};
/// use tollgate::{Quota, SECOND};
///
/// let quota = Quota::token_bucket(1, SECOND).max_reserved(1);
/// let now = Micros::new(1_767_225_600_000_000);
/// let decide = |state: &State, ask: Ask| step(&quota, state, now, ask);
///
/// let first = decide(&State::default(), Ask::cost(1));
/// assert_eq!(first.verdict, Verdict::Allow);
/// assert_eq!(decide(&first.state, Ask::cost(1).reserve()).verdict, Verdict::Reserve { wait: SECOND });
/// assert_eq!(decide(&first.state, Ask::cost(1)).verdict, Verdict::Deny { retry: Some(SECOND) });
/// assert_eq!(decide(&first.state, Ask::cost(3)).verdict, Verdict::Deny { retry: None });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums)] // There is nothing else to say.
pub enum Verdict {
    /// Go ahead now.
    Allow,
    /// Go ahead after `wait`: the tokens are spent already, and this turn is the caller's.
    Reserve {
        /// Until the caller's turn, whole microseconds, more than zero.
        wait: Duration,
    },
    /// No. Nothing was spent.
    Deny {
        /// The shortest wait after which the same ask succeeds if nobody else spends, in whole microseconds; `None` if
        /// it can never succeed.
        retry: Option<Duration>,
    },
}

/// A verdict, and the row that it leaves.
///
/// ```
/// use tollgate::algorithm::{step, Ask, Micros, State};
/// use tollgate::{Quota, MINUTE};
///
/// let now = Micros::new(1_767_225_600_000_000);
/// let step = step(&Quota::token_bucket(10, MINUTE), &State::default(), now, Ask::cost(11));
/// assert!(!step.is_allowed());
/// assert_eq!((step.state.spent, step.now), (0.0, now)); // a denial spends nothing
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// The answer.
    pub verdict: Verdict,
    /// The row after it. After a denial: the row as it stands, unchanged but for what has been paid back; the row of
    /// another quota is unchanged altogether.
    pub state: State,
    /// The instant at which it was decided.
    pub now: Micros,
}

impl Step {
    /// Whether the tokens were spent, now or for a later turn.
    pub const fn is_allowed(&self) -> bool {
        !matches!(self.verdict, Verdict::Deny { .. })
    }
}

/// The row with the instant from which nothing of it stands any more.
fn cleared(quota: &Quota, row: State) -> State {
    let clear = match quota.algorithm() {
        Algorithm::TokenBucket => token_bucket::clear(quota, row.spent, row.at),
        Algorithm::FixedWindow => fixed_window::clear(quota, &row),
        Algorithm::SlidingWindow => row.at.plus(2 * quota.period_micros()).to_whole_second(),
    };
    State { clear, ..row }
}

/// The row brought to `now`: what has been paid back is off it. One of another quota becomes an own row that stands
/// at as much; see [`changed`].
pub(crate) fn roll(quota: &Quota, state: &State, now: Micros) -> State {
    if state.stamp == quota.stamp() { roll_own(quota, state, now) } else { changed::roll(quota, state, now) }
}

/// The row at `now`, as it may be kept: an own row is rolled, a foreign one stays as it is, since its `clear`
/// matters.
pub(crate) fn roll_if_own(quota: &Quota, state: &State, now: Micros) -> State {
    if is_foreign(quota, state, now) { *state } else { roll(quota, state, now) }
}

fn roll_own(quota: &Quota, state: &State, now: Micros) -> State {
    let mut row = *state;
    if quota.algorithm() == Algorithm::SlidingWindow && !sliding_window::aligned(quota, &row) {
        row = State { spent: 0.0, carry: 0.0, ..row };
    }
    if is_forgiven(quota, &row, now) {
        row = State { spent: 0.0, at: now, ..row };
        if quota.algorithm() == Algorithm::SlidingWindow {
            row.carry = 0.0;
        }
    }
    roll_within(quota, &row, now)
}

/// Whether the clock was far ahead when the row was written.
fn is_forgiven(quota: &Quota, row: &State, now: Micros) -> bool {
    if row.at <= now || row.at.micros_since(now) <= quota.fill_micros() {
        return false;
    }
    // A denial stores nothing, so the row must not begin to be paid back at `now`: it would begin anew at each try.
    // It is forgiven, unless it owes so much (turns are promised) that it would not be paid back by `at` even if it
    // had been written now.
    let begun = State { at: now, ..*row };
    when_own(quota, &begun, now, 0.0).is_some_and(|clear| clear < row.at)
}

/// What the algorithm pays back of an own row by `now`.
fn roll_within(quota: &Quota, row: &State, now: Micros) -> State {
    match quota.algorithm() {
        Algorithm::TokenBucket => token_bucket::roll(quota, row, now),
        Algorithm::FixedWindow => fixed_window::roll(quota, row, now),
        Algorithm::SlidingWindow => sliding_window::roll(quota, row, now),
    }
}

/// What stands as spent at `now`, of an own row that was rolled there.
fn spent(quota: &Quota, row: &State, now: Micros) -> f64 {
    match quota.algorithm() {
        Algorithm::TokenBucket => token_bucket::spent(quota, row, now),
        Algorithm::FixedWindow => row.spent,
        Algorithm::SlidingWindow => sliding_window::spent(quota, row, now),
    }
}

/// The row itself if it is the quota's own, and was rolled; else what it stands at, as an own row.
fn own(quota: &Quota, row: &State, now: Micros) -> State {
    if row.stamp == quota.stamp() { *row } else { roll(quota, row, now) }
}

/// Whole tokens that could be spent at once at `now`, of a row that was [rolled if own](roll_if_own).
pub(crate) fn available(quota: &Quota, row: &State, now: Micros) -> u64 {
    let (limit, row) = (quota.limit(), &own(quota, row, now));
    // Whatever `step` would allow, and not one more: so let its own test have the last word.
    let guess = (limit as f64 - spent(quota, row, now) + 1e-6).clamp(0.0, limit as f64) as u64;
    if guess > 0 && !within_own(quota, row, now, (limit - guess) as f64) { guess - 1 } else { guess }
}

/// The first instant from `now` on at which no more than `level` stands as spent, if nobody spends meanwhile, of a row
/// that was [rolled if own](roll_if_own).
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

/// The end of the window in which `now` lies, or the instant from which a foreign row counts nothing if that is
/// earlier; for a token bucket the next whole token, `now` if none is owed. Of a row that was [rolled if
/// own](roll_if_own).
pub(crate) fn next_change(quota: &Quota, row: &State, now: Micros) -> Option<Micros> {
    if quota.algorithm() == Algorithm::TokenBucket {
        let stands = spent(quota, &own(quota, row, now), now);
        return when(quota, row, now, (stands.ceil() - 1.0).max(0.0));
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

/// 32 bits that identify a quota: its rows carry them ([`State::stamp`]). Never 0. For authors of backends.
///
/// ```
/// use tollgate::algorithm::stamp;
/// use tollgate::{Quota, MINUTE};
///
/// let quota = Quota::token_bucket(10, MINUTE);
/// assert_eq!(stamp(&quota), stamp(&"10/min".parse()?));
/// assert_ne!(stamp(&quota), stamp(&quota.capacity(20)));
/// # Ok::<(), tollgate::policy::ParseQuotaError>(())
/// ```
pub const fn stamp(quota: &Quota) -> u32 {
    quota.stamp()
}

/// The quota with its boundaries fixed: at its `start`, else (a fixed window) where `seed`, a part of the key's digest, puts
/// them. The stamp stays the same. For authors of backends; a [`Take`](crate::backend::Take) has it already.
///
/// ```
/// use std::time::Duration;
/// use tollgate::algorithm::seeded;
/// use tollgate::{Quota, MINUTE};
///
/// let window = Quota::fixed_window(10, MINUTE);
/// assert_eq!(window.phase(), None);
/// assert_eq!(seeded(window, 90_000_000).phase(), Some(Duration::from_secs(30))); // microseconds, modulo the period
/// assert_eq!(seeded(window.start(Duration::ZERO), 90_000_000), window.start(Duration::ZERO));
/// ```
#[must_use]
pub const fn seeded(quota: Quota, seed: u64) -> Quota {
    quota.seeded(seed)
}

/// Checks what only a finished quota shows: a capacity of 0 needs reservations. A policy does so itself.
///
/// ```
/// use tollgate::algorithm::validate;
/// use tollgate::{Quota, SECOND};
///
/// let turns = Quota::token_bucket(10, SECOND).capacity(0);
/// assert!(validate(&turns).is_err());
/// assert!(validate(&turns.max_reserved(50)).is_ok());
/// ```
///
/// # Errors
/// If the quota would refuse everything.
pub const fn validate(quota: &Quota) -> Result<(), QuotaError> {
    quota.validate()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Micros = Micros::new(1_700_000_000_000_000);

    #[test]
    fn a_denial_leaves_the_row_alone() {
        let quota = Quota::fixed_window(10, MINUTE).start(Duration::ZERO);
        let state = step(&quota, &State::default(), NOW, Ask::cost(8)).state;
        let denied = step(&quota, &state, NOW, Ask::cost(3));
        assert!(!denied.is_allowed());
        assert_eq!(denied.state, state);
    }

    #[test]
    fn what_never_fits_has_no_retry_time() {
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
    fn a_capacity_of_zero_spaces_turns_evenly() {
        let quota = Quota::token_bucket(10, MINUTE).capacity(0).unlimited_reservations();
        let mut state = State::default();
        for turn in 1..=10 {
            let step = step(&quota, &state, NOW, Ask::cost(1).reserve());
            assert_eq!(step.verdict, Verdict::Reserve { wait: Duration::from_secs(6 * turn) });
            state = step.state;
        }
    }

    #[test]
    fn a_wait_too_long_is_told_when_to_come_back() {
        let quota = Quota::token_bucket(1, SECOND).unlimited_reservations();
        let state = step(&quota, &State::default(), NOW, Ask::cost(10).reserve()).state;
        let ask = Ask::cost(1).wait_up_to(Duration::from_secs(4));
        let Verdict::Deny { retry: Some(retry) } = step(&quota, &state, NOW, ask).verdict else { panic!() };
        assert_eq!(retry, Duration::from_secs(6));
        assert!(!step(&quota, &state, NOW + (retry - Duration::from_micros(1)), ask).is_allowed());
        assert!(step(&quota, &state, NOW + retry, ask).is_allowed());
    }

    #[test]
    fn a_row_far_ahead_of_the_clock_is_forgiven() {
        let quota = Quota::token_bucket(10, MINUTE);
        let century = NOW + Duration::from_secs(100 * 365 * 86_400);
        let state = step(&quota, &State::default(), century, Ask::cost(10)).state;
        assert!(step(&quota, &state, NOW, Ask::cost(10)).is_allowed());
        // Nearer than a refill, it is not.
        let state = step(&quota, &State::default(), NOW + MINUTE, Ask::cost(10)).state;
        let denied = step(&quota, &state, NOW, Ask::cost(1));
        assert_eq!(denied.verdict, Verdict::Deny { retry: Some(Duration::from_secs(66)) });
    }

    #[test]
    fn a_row_is_forgiven_one_microsecond_beyond_a_refill_and_beyond_what_it_owes() {
        let (quota, micro) = (Quota::token_bucket(10, MINUTE), Duration::from_micros(1));
        let stands = |spent: f64, at: Micros| {
            let row = roll(&quota, &State { spent, at, stamp: quota.stamp(), ..State::default() }, NOW);
            (row.spent, row.at.max(NOW) == at)
        };
        assert_eq!(stands(5.0, NOW + MINUTE), (5.0, true));
        assert_eq!(stands(5.0, NOW + MINUTE + micro), (0.0, false));
        // Turns are promised for two minutes.
        assert_eq!(stands(20.0, NOW + 2 * MINUTE), (20.0, true));
        assert_eq!(stands(20.0, NOW + 2 * MINUTE + micro), (0.0, false));
    }

    #[test]
    fn what_is_no_number_is_told_without_one() {
        let error = Quota::sliding_window(10, MINUTE).try_unlimited_reservations().unwrap_err().to_string();
        assert!(error.starts_with("reservations are unlimited for a sliding window"), "{error}");
    }

    #[test]
    fn a_window_is_forgiven_beyond_a_refill() {
        // Two windows fill it.
        let quota = Quota::fixed_window(10, MINUTE).capacity(20).start(Duration::ZERO);
        let now = Micros::new(1_700_000_040_000_000);
        let spent = |windows: u32| {
            let row = State { spent: 5.0, at: now + windows * MINUTE, stamp: quota.stamp(), ..State::default() };
            roll(&quota, &row, now).spent
        };
        assert_eq!((spent(2), spent(3)), (5.0, 0.0));
    }

    #[test]
    fn part_of_a_token_may_be_all_that_is_owed() {
        // A token in six seconds; half of one is owed, as after a charge that cost less than it was taken for.
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
    fn a_window_far_ahead_of_the_clock_is_forgiven_with_the_one_before() {
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
    fn a_sliding_row_that_begins_within_a_window_counts_nothing() {
        let quota = Quota::sliding_window(10, MINUTE);
        let at = Micros::new(1_700_000_040_000_001);
        let row = roll(&quota, &State { spent: 3.0, at, carry: 7.0, stamp: quota.stamp(), ..State::default() }, at);
        assert_eq!((row.spent, row.carry), (0.0, 0.0));
    }

    #[test]
    fn what_is_available_is_what_a_step_allows() {
        // A microsecond pays back 10^-8 of a token: far less than the millionth that rounding is allowed.
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
    fn the_next_change_is_the_windows_end_or_the_next_whole_token() {
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
    fn a_turn_too_far_away_comes_nearer_as_its_window_passes() {
        // 5 are owed, and 25 are all that may ever be: so not before the next window. At its beginning their turn is two
        // windows away; half a window later it is near enough.
        let quota = Quota::fixed_window(10, MINUTE).max_reserved(15).start(Duration::ZERO);
        let begin = Micros::new(1_700_000_040_000_000);
        let state = step(&quota, &State::default(), begin, Ask::cost(5)).state;
        let (ask, near) = (Ask::cost(25).wait_up_to(Duration::from_secs(90)), Duration::from_secs(90));
        assert_eq!(step(&quota, &state, begin, ask).verdict, Verdict::Deny { retry: Some(near) });
        assert_eq!(step(&quota, &state, begin + near, ask).verdict, Verdict::Reserve { wait: near });
        // A wait of one window it never is.
        let ask = Ask::cost(25).wait_up_to(MINUTE);
        assert_eq!(step(&quota, &state, begin, ask).verdict, Verdict::Deny { retry: None });
    }

    #[test]
    fn what_fits_only_after_the_last_instant_has_no_retry_time() {
        let century = Quota::MAX_PERIOD;
        for quota in [Quota::token_bucket(1, century), Quota::fixed_window(1, century).start(Duration::ZERO)] {
            // It would be paid back in the year 2370.
            let owed = State { spent: 4.0, at: NOW, stamp: quota.stamp(), ..State::default() };
            for spent in [1e9, MOST_SPENT as f64] {
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
    fn a_wait_is_in_whole_microseconds_rounded_up() {
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
