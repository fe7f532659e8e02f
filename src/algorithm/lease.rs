//! Leases: tokens that a process takes from a row in advance and spends later without asking the backend.
//!
//! A leased token counts as spent. It is also *outstanding* until its holder reports it as spent or returns it unused,
//! or until the lease ends. Spent tokens are repaid as usual, but their number never drops below the number of
//! outstanding tokens. Because of this *floor*, the quota's bound holds no matter how many processes hold leases, and
//! no matter which requests and reports are delayed or lost.
//!
//! To see why, let `C` be the capacity, `S` the spent tokens and `O` the outstanding tokens. Without a refill, requests
//! can still use two kinds of tokens: the `C - S` available tokens, and up to `O` leased tokens that have not been
//! used. Granting a lease or returning unused tokens only moves tokens from one kind to the other. Reporting tokens as
//! spent adds to neither. When a lease ends, its tokens stay spent. Only a refill increases the sum, at the quota's
//! rate. Because `S` is at least `O`, the sum never exceeds `C`.
//!
//! A row does not list its leases. A *generation* consists of the leases granted within one period of [`LEASE_LIFE`]. A
//! row stores the outstanding tokens of the current generation and of the previous one. All leases of a generation end
//! two periods after it began, so a lease lasts for one to two periods.
//!
//! Windows have the same floor. In a sliding window, outstanding tokens always count toward the current window.

use std::time::Duration;

use super::{Algorithm, Micros, Quota, State};
#[cfg(any(feature = "redis", test))]
use super::{Ask, Step, Verdict, fixed_window, step};
use super::{available, cleared, roll, token_bucket};

/// The length of the period in which a generation's leases are granted. A lease lasts for one to two such periods.
pub const LEASE_LIFE: Duration = Duration::from_secs(2);

const LIFE: u64 = LEASE_LIFE.as_micros() as u64;

/// The smallest lease, in tokens. A smaller lease would not save a call to the backend.
pub(crate) const MIN_LEASE: u64 = 2;

/// The outstanding tokens of a row. The default means that there are none. See [`lease`] for an example.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs)] // A new field would change the layout of rows.
pub struct Outstanding {
    /// The instant of the first lease, which distinguishes the row from an earlier row that was reset or lost.
    pub since: Micros,
    /// The instant at which the previous generation ends and the current generation becomes the previous one.
    pub turn: Micros,
    /// The outstanding tokens of the current generation.
    pub current: u64,
    /// The outstanding tokens of the previous generation.
    pub last: u64,
}

impl Outstanding {
    /// Returns the outstanding tokens of both generations.
    pub const fn tokens(&self) -> u64 {
        self.current.saturating_add(self.last)
    }

    fn turned(&self) -> Outstanding {
        Outstanding { current: 0, last: self.current, turn: self.turn.plus(LIFE), ..*self }.or_none()
    }

    fn or_none(self) -> Outstanding {
        if self.tokens() == 0 { Outstanding::default() } else { self }
    }

    fn generation(&mut self, id: LeaseId) -> Option<&mut u64> {
        match () {
            () if id.since != self.since => None,
            () if id.turn == self.turn => Some(&mut self.current),
            () if id.turn.plus(LIFE) == self.turn => Some(&mut self.last),
            () => None,
        }
    }
}

/// Identifies the generation of a lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs)] // A new field would change the contract of backends.
pub struct LeaseId {
    /// The instant of the row's first lease.
    pub since: Micros,
    /// The instant from which no more leases of the generation are granted.
    pub turn: Micros,
}

/// What a holder has done with the tokens of a lease since its last report. A report must be sent at most once. If it
/// is lost, its tokens stay outstanding until the lease ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs)] // A new field would change the contract of backends.
pub struct LeaseReport {
    /// The generation of the lease. Reports for a generation that has ended are ignored.
    pub id: LeaseId,
    /// The number of tokens that were spent.
    pub spent: u64,
    /// The number of tokens that are returned unused.
    pub unused: u64,
}

/// The answer to a request for a lease. See [`lease`] for an example.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(clippy::exhaustive_structs)] // A new field would change the contract of backends.
pub struct Lease {
    /// The number of tokens, which is 0 if no lease was granted.
    pub tokens: u64,
    /// The generation of the lease.
    pub id: LeaseId,
    /// The time until the lease ends. The holder measures this time from when it sent the request.
    pub life: Duration,
    /// The row after the request.
    pub state: State,
    /// The outstanding tokens after the request.
    pub outstanding: Outstanding,
    /// The instant of the request.
    pub now: Micros,
}

/// Applies `reports`, and then grants a lease of at most `tokens` tokens.
///
/// All leases together hold at most half of the capacity. A new lease takes at most half of the tokens that can still
/// be leased under this limit, and at most half of the available tokens, so that the first process leaves tokens for
/// the others. Leases of fewer than two tokens are not granted.
///
/// ```
/// use tollgate::{algorithm::{lease, LeaseReport, Micros, Outstanding, State}, Quota, MINUTE};
/// let (quota, now) = (Quota::token_bucket(100, MINUTE), Micros::new(1_767_225_600_000_000));
/// let first = lease(&quota, &State::default(), &Outstanding::default(), now, &[], 20);
/// assert_eq!((first.tokens, first.state.spent, first.outstanding.tokens()), (20, 20.0, 20));
///
/// let report = LeaseReport { id: first.id, spent: 15, unused: 5 };
/// let none = lease(&quota, &first.state, &first.outstanding, now, &[report], 0);
/// assert_eq!((none.tokens, none.state.spent, none.outstanding.tokens()), (0, 15.0, 0));
/// ```
pub fn lease(
    quota: &Quota,
    state: &State,
    outstanding: &Outstanding,
    now: Micros,
    reports: &[LeaseReport],
    tokens: u64,
) -> Lease {
    let had_leases = *outstanding != Outstanding::default();
    let (mut state, mut outstanding) = settle_leases(quota, state, outstanding, now);
    for report in reports {
        let Some(left) = outstanding.generation(report.id) else { continue };
        let unused = report.unused.min(left.saturating_sub(report.spent));
        *left = left.saturating_sub(report.spent.saturating_add(unused));
        if unused > 0 {
            state = roll(quota, &state, now);
            state = cleared(quota, State { spent: (state.spent - unused as f64).max(0.0), ..state });
        }
    }
    outstanding = outstanding.or_none();
    // If the clock was set back, rolling may have dropped a row that was too far ahead. The floor still applies.
    state = floored(quota, &state, outstanding.tokens(), now);
    let row = roll(quota, &state, now);
    let room = (quota.get_capacity() / 2).saturating_sub(outstanding.tokens());
    let mut granted = tokens.min(available(quota, &row, now) / 2).min(room / 2);
    if granted < MIN_LEASE {
        granted = 0;
    }
    if granted > 0 {
        state = cleared(quota, State { spent: row.spent + granted as f64, ..row });
        if outstanding.tokens() == 0 {
            outstanding = Outstanding { since: now, turn: now.plus(LIFE), ..outstanding };
        }
        outstanding.current += granted;
    }
    if had_leases && state.stamp == quota.stamp() {
        state = cleared(quota, state);
    }
    let id = LeaseId { since: outstanding.since, turn: outstanding.turn };
    let life = Duration::from_micros(outstanding.turn.plus(LIFE).micros_since(now));
    Lease { tokens: granted, id, life, state: state.or_none(), outstanding, now }
}

/// Removes the leases that have ended by `now`, and raises the spent tokens to at least the outstanding tokens.
/// Backends call this before [`step`](super::step) and [`settle`](super::settle()) if a row has outstanding tokens.
pub fn settle_leases(quota: &Quota, state: &State, outstanding: &Outstanding, now: Micros) -> (State, Outstanding) {
    let (mut state, mut left) = (*state, *outstanding);
    if left.tokens() == 0 {
        return (state, Outstanding::default());
    }
    if left.turn > now.plus(LIFE) {
        // The clock was set back. Neither generation may end much later than planned.
        left.turn = now.plus(LIFE);
    }
    // Until a generation ends, tokens are repaid only down to the old floor. The row is therefore first rolled to the
    // end of the generation. `clear` is recomputed there, so that other quotas count the tokens that are still spent.
    while left.turn <= now && left.tokens() > 0 {
        state = cleared(quota, rolled_to_floor(quota, &state, left.tokens(), left.turn));
        left = left.turned();
    }
    (floored(quota, &state, left.tokens(), now), left)
}

/// Returns the row with at least `floor` tokens spent at `now`.
pub(crate) fn floored(quota: &Quota, state: &State, floor: u64, now: Micros) -> State {
    if floor == 0 || spent_in_window(quota, &roll(quota, state, now), now) >= floor as f64 {
        return *state;
    }
    cleared(quota, rolled_to_floor(quota, state, floor, now))
}

fn rolled_to_floor(quota: &Quota, state: &State, floor: u64, now: Micros) -> State {
    let (row, floor) = (roll(quota, state, now), floor as f64);
    if spent_in_window(quota, &row, now) >= floor {
        return row;
    }
    match quota.algorithm() {
        Algorithm::TokenBucket => State { spent: floor, at: row.at.max(now), ..row },
        Algorithm::FixedWindow => State { spent: floor, ..row },
        // The outstanding tokens of the previous window now count in the current window.
        Algorithm::SlidingWindow => State { spent: floor, carry: (row.carry - (floor - row.spent)).max(0.0), ..row },
    }
}

/// Returns the spent tokens of a rolled row. For a sliding window, these are only the tokens of the current window.
fn spent_in_window(quota: &Quota, row: &State, now: Micros) -> f64 {
    if quota.algorithm() == Algorithm::TokenBucket { token_bucket::spent(quota, row, now) } else { row.spent }
}

/// Returns the verdict on an `ask` that is denied at `now`. The retry time accounts for the end of the leases.
#[cfg(any(feature = "redis", test))]
pub(crate) fn denied_by_leases(
    quota: &Quota,
    state: &State,
    outstanding: &Outstanding,
    now: Micros,
    ask: Ask,
) -> Verdict {
    let (mut state, mut left) = settle_leases(quota, state, outstanding, now);
    let most = if ask.max_wait().is_some() { quota.ceiling() } else { quota.get_capacity() };
    let (mut at, level) = (now, most.saturating_sub(ask.tokens()));
    let is_sliding = quota.algorithm() == Algorithm::SlidingWindow;
    let mut boundaries = 0;
    loop {
        let verdict = step(quota, &state, at, ask).verdict;
        let Verdict::Deny { retry } = verdict else { return Verdict::Deny { retry: Some(at.since(now)) } };
        // At each boundary, outstanding tokens of a sliding window count in full again. After a few boundaries, no
        // other spent tokens are left in the row.
        boundaries += 1;
        let end = if is_sliding && boundaries < 4 {
            left.turn.min(fixed_window::boundary(quota, fixed_window::index(quota, at) + 1))
        } else {
            left.turn
        };
        // If the cost fits in addition to the outstanding tokens, the floor does not delay the ask. For a sliding
        // window, this is true only until the next boundary.
        let is_exact = match retry {
            Some(retry) if is_sliding => at + retry <= end,
            Some(_) => left.tokens() <= level,
            None => true,
        };
        if left.tokens() == 0 || is_exact {
            return Verdict::Deny { retry: retry.map(|retry| (at + retry).since(now)) };
        }
        at = end;
        boundaries = if end == left.turn { 0 } else { boundaries };
        (state, left) = settle_leases(quota, &state, &left, at);
    }
}

/// Returns `step`, with the verdict of [`denied_by_leases`] if `step` is a denial.
#[cfg(any(feature = "redis", test))]
pub(crate) fn with_leases(quota: &Quota, step: Step, outstanding: &Outstanding, ask: Ask) -> Step {
    if step.is_allowed() || outstanding.tokens() == 0 {
        return step;
    }
    Step { verdict: denied_by_leases(quota, &step.state, outstanding, step.now, ask), ..step }
}

#[cfg(test)]
mod tests;
