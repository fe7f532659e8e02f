//! The two functions that make decisions: one for a single row, and one for all rows of a call together.

use std::borrow::BorrowMut;
use std::time::Duration;

use smallvec::SmallVec;

use super::{Algorithm, Ask, List, Micros, Quota, State, Step, Verdict};
use super::{changed, cleared, fixed_window, is_foreign, roll, when_own, within_own};

/// Decides `ask` under `quota` at the instant `now`, for a key whose row is `state`. Store the returned row unless the
/// verdict is a denial. If the window boundaries of `quota` are not set, they are aligned to UTC; see
/// [`seeded`](super::seeded).
///
/// - Decisions agree with exact arithmetic, except within 10^-6 tokens of the limit. For a rate of more than 2^32
///   tokens in lowest terms, the margin is relative instead: 2^-52, the precision of an `f64`.
/// - If the clock steps back, nothing is repaid until the clock has caught up. A row is dropped if it is ahead of `now`
///   by more than both the time to refill the capacity and the time to repay the row's own debt.
/// - A row that was written under another quota (with another stamp) counts as unspent from its [`clear`](State::clear)
///   onward. If both quotas are token buckets, the row is repaid at the faster of the two rates, so a downgrade denies
///   a caller for no longer than the old quota would take to repay the debt.
#[inline]
pub fn step(quota: &Quota, state: &State, now: Micros, ask: Ask) -> Step {
    let foreign = is_foreign(quota, state, now);
    let row = roll(quota, state, now);
    match granted(quota, &row, now, ask) {
        // No tokens are spent or reserved, so the row keeps the other quota's stamp.
        Some(Verdict::Allow) if foreign && ask.cost == 0 => Step { verdict: Verdict::Allow, state: *state, now },
        Some(verdict) => Step { verdict, state: charged(quota, &row, ask.cost), now },
        None => denied(quota, if foreign { *state } else { row }, now, ask),
    }
}

/// One charge of a call. See [`step_all`] for an example.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_structs)] // A new field would change the contract.
pub struct Line<'a> {
    /// The index of the row among the call's rows.
    pub row: usize,
    /// The quota that applies to the charge.
    pub quota: &'a Quota,
    /// The cost, and the longest wait that the caller accepts.
    pub ask: Ask,
}

/// The answers to a call, in the order of the call's lines. A single answer is stored without an allocation.
#[derive(Clone, Debug, Default)]
pub struct Steps(List<Step>);

/// Decides all lines of a call at the instant `now`: either all of them are granted, or nothing is spent.
///
/// `rows` must contain each row of the call once. Each line is decided as if the granted lines before it had been
/// charged. If all lines are granted, `rows` is updated, and a fully refilled row becomes the default row, which need
/// not be stored. If any line is denied, `rows` is unchanged, and the states in the returned steps contain no charge.
/// If several lines share a row, a denied line's retry time accounts for all of them, because a retry repeats them all.
///
/// ```
/// use tollgate::{algorithm::{step_all, Ask, Line, Micros, State, Verdict}, Quota, MINUTE};
/// let (user, global) = (Quota::token_bucket(10, MINUTE), Quota::token_bucket(2, MINUTE));
/// let now = Micros::new(1_767_225_600_000_000);
/// let lines = [Line { row: 0, quota: &user, ask: Ask::cost(1) }, Line { row: 1, quota: &global, ask: Ask::cost(2) }];
///
/// let mut rows = [State::default(); 2];
/// assert!(step_all(&mut rows, &lines, now).all_granted());
/// let steps = step_all(&mut rows, &lines, now);
/// assert_eq!(steps[1].verdict, Verdict::Deny { retry: Some(MINUTE) });
/// assert_eq!((rows[0].spent, rows[1].spent), (1.0, 2.0));
/// ```
///
/// # Panics
/// Panics if a line's `row` is out of bounds.
#[inline]
pub fn step_all<R: BorrowMut<State>>(rows: &mut [R], lines: &[Line<'_>], now: Micros) -> Steps {
    let mut before = SmallVec::<[State; 4]>::new();
    let mut steps = Steps::default();
    for line in lines {
        let row = rows[line.row].borrow_mut();
        before.push(*row);
        let step = step(line.quota, row, now, line.ask);
        if step.is_allowed() {
            *row = step.state.or_none();
        }
        steps.0.push(step);
    }
    if !steps.all_granted() {
        undo(rows, &before, lines, &mut steps.0, now);
    }
    steps
}

/// Undoes the granted lines of a denied call. `before[i]` is the row of line `i` just before that line was decided.
#[cold]
fn undo<R: BorrowMut<State>>(rows: &mut [R], before: &[State], lines: &[Line<'_>], steps: &mut [Step], now: Micros) {
    let granted: SmallVec<[bool; 8]> = steps.iter().map(Step::is_allowed).collect();
    for (i, line) in lines.iter().enumerate() {
        let same = || (0..lines.len()).filter(|other| lines[*other].row == line.row);
        let before = before[same().next().unwrap_or(i)];
        *rows[line.row].borrow_mut() = before;
        if !granted[i] && same().count() > 1 {
            let verdict = shared_denial(&before, now, same().map(|other| &lines[other]));
            steps[i].verdict = verdict.unwrap_or(steps[i].verdict);
        }
        if same().any(|other| granted[other]) {
            steps[i].state = before;
        }
    }
}

/// Returns one denial for all denied lines on a row, if there are any. Each line is decided for its own tokens plus
/// those of the lines before it. The retry time is the longest retry time of the denied lines.
fn shared_denial<'a>(before: &State, now: Micros, lines: impl Iterator<Item = &'a Line<'a>>) -> Option<Verdict> {
    let mut tokens = 0u64;
    let mut denial: Option<Option<Duration>> = None;
    for line in lines {
        tokens = tokens.saturating_add(line.ask.tokens());
        if let Verdict::Deny { retry } = step(line.quota, before, now, line.ask.for_cost(tokens)).verdict {
            denial = Some(match denial {
                None => retry,
                Some(longest) => longest.zip(retry).map(|(a, b)| a.max(b)),
            });
        }
    }
    denial.map(|retry| Verdict::Deny { retry })
}

impl Steps {
    /// Returns whether every line was granted.
    pub fn all_granted(&self) -> bool {
        self.0.iter().all(Step::is_allowed)
    }
}

impl std::ops::Deref for Steps {
    type Target = [Step];

    fn deref(&self) -> &[Step] {
        &self.0
    }
}

impl std::ops::DerefMut for Steps {
    fn deref_mut(&mut self) -> &mut [Step] {
        &mut self.0
    }
}

impl From<Step> for Steps {
    fn from(step: Step) -> Steps {
        Steps(List::One(step))
    }
}

impl FromIterator<Step> for Steps {
    fn from_iter<I: IntoIterator<Item = Step>>(steps: I) -> Steps {
        Steps(steps.into_iter().collect())
    }
}

#[cold]
fn denied(quota: &Quota, state: State, now: Micros, ask: Ask) -> Step {
    let at = if is_foreign(quota, &state, now) {
        changed::retry_at(quota, &state, now, ask)
    } else {
        retry_own(quota, &state, now, ask)
    };
    Step { verdict: Verdict::Deny { retry: at.map(|at| at.since(now)) }, state, now }
}

/// Returns the verdict on `ask` for a rolled row of the same quota, or `None` if the ask is denied.
#[inline]
pub(super) fn granted(quota: &Quota, row: &State, now: Micros, ask: Ask) -> Option<Verdict> {
    let cost = ask.cost;
    if cost <= quota.get_capacity() && within_own(quota, row, now, (quota.get_capacity() - cost) as f64) {
        return Some(Verdict::Allow);
    }
    let max_wait = ask.max_wait_micros().filter(|_| quota.reserves())?;
    due_time(quota, row, now, cost, max_wait).map(|due| Verdict::Reserve { wait: due.since(now) })
}

/// Returns the instant at which `ask`, which is denied at `now`, would be granted. The row must have this quota's stamp
/// and must already be rolled.
pub(super) fn retry_own(quota: &Quota, row: &State, now: Micros, ask: Ask) -> Option<Micros> {
    match ask.max_wait_micros().filter(|_| quota.reserves()) {
        None => when_own(quota, row, now, quota.get_capacity().checked_sub(ask.cost)? as f64),
        Some(max_wait) => retry_reservation(quota, row, now, ask.cost, max_wait),
    }
}

fn charged(quota: &Quota, row: &State, cost: u64) -> State {
    cleared(quota, State { spent: row.spent + cost as f64, ..*row })
}

/// Returns when a reservation of `cost` tokens made at `now` is due, or `None` if it does not fit within `max_wait`.
fn due_time(quota: &Quota, row: &State, now: Micros, cost: u64, max_wait: u64) -> Option<Micros> {
    let level = quota.ceiling().checked_sub(cost)?;
    if !within_own(quota, row, now, level as f64) {
        return None;
    }
    let charged = State { spent: row.spent + cost as f64, ..*row };
    let due = when_own(quota, &charged, now, quota.get_capacity() as f64)?;
    (due.micros_since(now) <= max_wait).then_some(due)
}

/// Returns the first instant at which a reservation of `cost` tokens fits with a wait of at most `max_wait`.
fn retry_reservation(quota: &Quota, row: &State, now: Micros, cost: u64, max_wait: u64) -> Option<Micros> {
    let granted_at = |at: Micros| due_time(quota, &roll(quota, row, at), at, cost, max_wait).is_some();
    let fits = when_own(quota, row, now, quota.ceiling().checked_sub(cost)? as f64)?;
    let charged = State { spent: row.spent + cost as f64, ..*row };
    let due = when_own(quota, &charged, now, quota.get_capacity() as f64)?;
    let at = fits.max(due.minus(max_wait)).max(now);
    if granted_at(at) {
        return Some(at);
    }
    // By `at`, the whole debt is repaid, but the cost exceeds the capacity and the wait is still too long. For a
    // bucket, the wait no longer changes. For a window, the wait becomes shorter toward the end of the window.
    if quota.algorithm() != Algorithm::FixedWindow {
        return None;
    }
    let clear = when_own(quota, row, now, 0.0)?;
    let begin = fixed_window::boundary(quota, fixed_window::index(quota, clear));
    let charged = State { spent: cost as f64, at: begin, ..*row };
    let due = when_own(quota, &charged, clear, quota.get_capacity() as f64)?;
    let at = due.minus(max_wait).max(clear);
    if granted_at(at) {
        return Some(at);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::{MINUTE, SECOND};

    const NOW: Micros = Micros::new(1_700_000_000_000_000);

    #[test]
    fn steps_can_be_collected_and_modified() {
        let quota = Quota::token_bucket(10, SECOND);
        let [one, two] = [1, 2].map(|cost| step(&quota, &State::default(), NOW, Ask::cost(cost)));
        assert_eq!(Steps::from(one)[..], [one]);
        let mut steps: Steps = [one, two].into_iter().collect();
        assert_eq!(steps[..], [one, two]);
        steps[0] = two;
        assert_eq!(steps[..], [two, two]);
    }

    #[test]
    fn the_costs_of_two_lines_on_one_row_are_added() {
        let quota = Quota::token_bucket(1, SECOND).capacity(3);
        let before = State { spent: 2.0, at: NOW, stamp: quota.stamp(), ..State::default() };
        let mut states = [before];
        let line = Line { row: 0, quota: &quota, ask: Ask::cost(1) };
        let steps = step_all(&mut states, &[line, line], NOW);
        assert_eq!(steps[0].verdict, Verdict::Allow);
        assert_eq!(steps[1].verdict, Verdict::Deny { retry: Some(SECOND) });
        assert_eq!((states, steps[0].state, steps[1].state), ([before], before, before));
        assert!(step_all(&mut states, &[line], NOW).all_granted());
        assert_eq!(states[0].spent, 3.0);
    }

    #[test]
    fn either_all_lines_are_charged_or_none() {
        let (wide, narrow) = (Quota::token_bucket(10, SECOND), Quota::token_bucket(2, SECOND));
        let lines = |cost| {
            [(0, &wide, 3), (1, &narrow, cost)].map(|(row, quota, cost)| Line { row, quota, ask: Ask::cost(cost) })
        };
        let mut states = [State::default(); 2];
        assert!(step_all(&mut states, &lines(2), NOW).all_granted());
        let charged = states;
        assert_eq!((states[0].spent, states[1].spent), (3.0, 2.0));
        let steps = step_all(&mut states, &lines(1), NOW);
        assert_eq!(steps[0].verdict, Verdict::Allow);
        assert_eq!(steps[1].verdict, Verdict::Deny { retry: Some(SECOND / 2) });
        assert_eq!((states, [steps[0].state, steps[1].state]), (charged, charged));
        let steps = step_all(&mut states, &lines(1)[1..], NOW);
        assert_eq!((steps[0].verdict, states), (Verdict::Deny { retry: Some(SECOND / 2) }, charged));
    }

    #[test]
    fn a_charge_of_0_does_not_change_a_foreign_row() {
        let (old, new) = (Quota::token_bucket(10, MINUTE), Quota::token_bucket(20, MINUTE));
        let row = step(&old, &State::default(), NOW, Ask::cost(5)).state;
        let later = NOW + SECOND;
        let nothing = step(&new, &row, later, Ask::cost(0));
        assert_eq!((nothing.verdict, nothing.state), (Verdict::Allow, row));
        // A cost above 0 converts the row to the new quota. A cost of 0 changes only a row of the same quota.
        assert_eq!(step(&new, &row, later, Ask::cost(1)).state.stamp, new.stamp());
        let own = step(&old, &row, NOW + MINUTE, Ask::cost(0));
        assert_eq!((own.verdict, own.state.spent, own.state.at), (Verdict::Allow, 0.0, NOW + MINUTE));
    }

    #[test]
    fn lines_that_never_fit_together_have_no_retry_time() {
        let quota = Quota::token_bucket(1, SECOND).capacity(3);
        let mut states = [State { spent: 3.0, at: NOW, stamp: quota.stamp(), ..State::default() }];
        let line = |cost| Line { row: 0, quota: &quota, ask: Ask::cost(cost) };
        let steps = step_all(&mut states, &[line(2), line(2)], NOW);
        assert!(steps.iter().all(|step| step.verdict == Verdict::Deny { retry: None }), "{steps:?}");
        let steps = step_all(&mut states, &[line(2), line(1)], NOW);
        assert!(steps.iter().all(|step| step.verdict == Verdict::Deny { retry: Some(3 * SECOND) }), "{steps:?}");
    }

    #[test]
    fn a_fully_refilled_row_becomes_the_default_row() {
        let quota = Quota::token_bucket(10, MINUTE);
        let mut states = [State { spent: 1.0, at: NOW, stamp: quota.stamp(), ..State::default() }];
        let line = Line { row: 0, quota: &quota, ask: Ask::cost(0) };
        let steps = step_all(&mut states, &[line], NOW + MINUTE);
        assert_eq!((steps.all_granted(), states), (true, [State::default()]));
        assert_eq!(steps[0].state.stamp, quota.stamp());
    }
}
