//! Settlement of charges that are canceled, or whose actual cost differs from the charged cost.
//!
//! Refunds need care. Suppose that a row is charged `n` tokens, and that `r` of them are refunded later. If only
//! `n - r` tokens had been charged, the row might have been fully repaid earlier, and a full bucket gains no more
//! tokens. Refunding all `r` tokens could therefore exceed the quota's bound. Three rules ensure that the bound holds:
//!
//! 1. **A refund is at most the part of the charge that is still outstanding.** Charges are repaid in the order in
//!    which they were made. The outstanding part is therefore at most the tokens that were outstanding just after the
//!    charge, minus everything repaid since then and all refunds of earlier charges. [`State::carry`] counts the
//!    refunds of other charges. Without this count, two refunds with a refill in between could allow the same burst
//!    twice.
//! 2. **A reservation that is not due yet can be refunded only in full, and only if it is the last charge.** Otherwise,
//!    a new reservation could get the due time of a reservation that is still pending.
//! 3. **While reservations are pending, all other refunds are forfeited**, for the same reason.
//!
//! If fewer tokens are outstanding than these rules imply, the row has been reset or evicted, and nothing is refunded.

use super::{Algorithm, MAX_SPENT, Micros, Quota, State, Step, Verdict};
use super::{changed, cleared, is_foreign, roll, sliding_window, spent, when};

/// The data needed to settle a charge later: its cost, its due time, and the row just after the charge.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChargeRecord {
    /// The number of tokens charged.
    pub cost: u64,
    /// The row just after the charge.
    pub state: State,
    /// The instant at which the charge is due: the instant of the decision or, for a reservation, a later one.
    pub due: Micros,
}

impl ChargeRecord {
    /// Creates the record of a credit, which returns tokens to a row independently of any charge. To credit the row,
    /// [settle](settle()) this record with an actual cost of 0.
    ///
    /// A credit never returns more tokens than are spent. Unlike a refund, it takes effect even if the tokens were
    /// charged under another quota; the row is then converted to the quota of the credit. It also takes effect while
    /// reservations are pending; their due times do not change. Credited tokens increase how much the quota can admit,
    /// even in later intervals, because a charge can still be refunded after its tokens have been credited.
    pub fn credit(tokens: u64) -> ChargeRecord {
        ChargeRecord { cost: tokens.min(MAX_SPENT), state: State::default(), due: Micros::EPOCH }
    }

    /// Returns whether this is the record of a credit. In the record of a charge, `state.spent` is at least the cost.
    /// A charge of 0 tokens can be mistaken for a credit. This is harmless, because there is nothing to refund.
    fn is_credit(&self) -> bool {
        self.state.spent == 0.0
    }

    /// Creates a record for a charge of `cost` tokens granted by `step`. Returns `None` if `step` is a denial.
    pub fn new(cost: u64, step: &Step) -> Option<ChargeRecord> {
        let due = match step.verdict {
            Verdict::Allow => step.now,
            Verdict::Reserve { wait } => step.now + wait,
            Verdict::Deny { .. } => return None,
        };
        Some(ChargeRecord { cost, state: step.state, due })
    }
}

/// Adjusts the charge of `receipt.cost` tokens to its `actual` cost, and returns the resulting row.
///
/// If the actual cost is higher, the difference is charged in full, even if this puts the key in debt. If it is lower,
/// the difference is refunded as far as the quota's bound and the due times of other reservations allow, and the rest
/// is forfeited. Settle a charge at most once.
///
/// If the row was written under another quota and has not [expired](State::clear), refunds are forfeited. An
/// additional charge is added to the row, which keeps its stamp. Unless the row belongs to a sliding
/// window, its expiry is postponed in proportion to the debt.
///
/// ```
/// use tollgate::{algorithm::{settle, step, takes_effect, Ask, Micros, ChargeRecord, State}, Quota, MINUTE};
/// let (quota, now) = (Quota::token_bucket(100_000, MINUTE), Micros::new(1_700_000_000_000_000));
/// let estimated = step(&quota, &State::default(), now, Ask::cost(1000));
/// let receipt = ChargeRecord::new(1000, &estimated).expect("allowed");
/// assert!(takes_effect(&quota, &estimated.state, &receipt, now, 300));
/// assert_eq!(settle(&quota, &estimated.state, &receipt, now, 300).spent, 300.0);
/// assert_eq!(settle(&quota, &estimated.state, &receipt, now, 1700).spent, 1700.0);
/// assert_eq!(settle(&quota, &estimated.state, &ChargeRecord::credit(400), now, 0).spent, 600.0);
/// ```
pub fn settle(quota: &Quota, state: &State, receipt: &ChargeRecord, now: Micros, actual: u64) -> State {
    if receipt.is_credit() && actual < receipt.cost {
        return credited(quota, state, receipt.cost - actual, now);
    }
    if state.stamp != quota.stamp() {
        if actual <= receipt.cost {
            // This quota cannot refund tokens that were spent under another quota.
            return *state;
        }
        if is_foreign(quota, state, now) {
            return changed::overrun(state, actual - receipt.cost);
        }
    }
    let settled = settle_own(quota, &roll(quota, state, now), receipt, now, actual);
    cleared(quota, settled)
}

/// Returns whether [`settle`] takes effect with the same arguments. It has no effect if the entire refund is forfeited.
/// A settlement at exactly the charged cost counts as taking effect, although the row does not change.
pub fn takes_effect(quota: &Quota, state: &State, receipt: &ChargeRecord, now: Micros, actual: u64) -> bool {
    let settled = |actual| settle(quota, state, receipt, now, actual);
    if receipt.is_credit() && actual < receipt.cost {
        return settled(actual) != credited(quota, state, 0, now);
    }
    actual == receipt.cost || settled(actual) != settled(receipt.cost)
}

/// Returns the first instant at which the `carry` of a row written under `quota` is no longer needed.
pub(crate) fn carry_until(quota: &Quota, state: &State, now: Micros) -> Micros {
    if quota.algorithm().carries_a_count() {
        // Until the row expires, other quotas count both of its windows.
        return state.clear;
    }
    // The carry is needed until the last charge is fully repaid. Just after a charge, at most `ceiling` tokens are
    // outstanding.
    let most = (state.spent + state.carry).min(quota.ceiling() as f64);
    let owed = State { spent: most, at: now, stamp: quota.stamp(), ..State::default() };
    when(quota, &owed, now, 0.0).unwrap_or(Micros::MAX)
}

/// Returns the row with up to `tokens` of its spent tokens removed.
fn credited(quota: &Quota, state: &State, tokens: u64, now: Micros) -> State {
    let (row, tokens) = (roll(quota, state, now), tokens as f64);
    let now = now.max(row.at);
    let credited = match quota.algorithm() {
        Algorithm::SlidingWindow => sliding_window::credited(quota, &row, now, tokens),
        _ => reduced_by(row, tokens, spent(quota, &row, now), now),
    };
    cleared(quota, credited)
}

fn settle_own(quota: &Quota, row: &State, receipt: &ChargeRecord, now: Micros, actual: u64) -> State {
    let row = *row;
    // If the clock stepped back, use `at`, because the row has already been repaid up to that instant.
    let now = now.max(row.at);
    if actual >= receipt.cost {
        let more = row.spent + (actual - receipt.cost) as f64;
        return State { spent: more.min(MAX_SPENT as f64), ..row };
    }
    let refund = (receipt.cost - actual) as f64;
    if quota.stamp() != receipt.state.stamp {
        // The quota has changed since the charge, so the charge might already have been repaid under the other quota.
        return row;
    }
    if quota.algorithm() == Algorithm::SlidingWindow {
        return settle_window(quota, &row, receipt, now, refund);
    }

    let outstanding = spent(quota, &row, now);
    // The tokens that would be outstanding if there had been no later charges or refunds.
    let own = spent(quota, &roll(quota, &receipt.state, now), now);
    if receipt.due > now {
        let last = (outstanding - own).abs() <= ROUNDING;
        return if actual == 0 && last { reduced_by(row, refund.min(own), outstanding, now) } else { row };
    }
    if quota.reserves() && outstanding > quota.get_capacity() as f64 {
        return row;
    }
    if row.carry < receipt.state.carry {
        return row;
    }
    // Refunds of earlier charges cannot exceed the tokens spent before this charge. Any further refunds were of later
    // charges.
    let before = receipt.state.spent - receipt.cost as f64;
    let left = own - (row.carry - receipt.state.carry).min(before);
    if outstanding < left - ROUNDING {
        return row;
    }
    let given = refund.min(left);
    if given <= 0.0 {
        return row;
    }
    // A refund of the last charge need not be counted in `carry`, because earlier charges are repaid first anyway.
    let last = outstanding - left <= ROUNDING;
    if !last && row.carry + given > MAX_SPENT as f64 {
        // `carry` could not count this refund exactly, and uncounted tokens could be refunded twice.
        return row;
    }
    let reduced = reduced_by(row, given, outstanding, now);
    if last || reduced == row { reduced } else { State { carry: row.carry + given, ..reduced } }
}

/// Settles a charge under a sliding window. As time passes, the counts change only at boundaries, so the whole charge
/// is counted in the current window or in the previous one, or has already been dropped.
fn settle_window(quota: &Quota, row: &State, receipt: &ChargeRecord, now: Micros, refund: f64) -> State {
    let then = sliding_window::roll(quota, &State { spent: refund, carry: 0.0, ..receipt.state }, now);
    if row.spent < then.spent || row.carry < then.carry {
        return *row; // The row has been reset or evicted since the charge.
    }
    State { spent: (row.spent - then.spent).max(0.0), carry: (row.carry - then.carry).max(0.0), ..*row }
}

/// Subtracts `given` tokens from the `outstanding` tokens of a row. `given` is fractional if the charge has been partly
/// repaid. The difference is rounded up, because rows store whole tokens.
fn reduced_by(row: State, given: f64, outstanding: f64, now: Micros) -> State {
    if given.fract() == 0.0 && given < outstanding {
        return State { spent: row.spent - given, ..row };
    }
    let rest = (outstanding - given).max(0.0);
    let whole = if (rest - rest.round()).abs() <= ROUNDING { rest.round() } else { rest.ceil() };
    // The rounded difference can exceed `outstanding`, but a refund must never charge tokens.
    if whole >= outstanding { row } else { State { spent: whole, at: row.at.max(now), ..row } }
}

/// The largest difference that rounding can cause between two sums that are equal in exact arithmetic.
const ROUNDING: f64 = 1e-6;

#[cfg(test)]
mod tests {
    use super::super::{Ask, MINUTE, SECOND, step};
    use super::*;
    use std::time::Duration;

    const NOW: Micros = Micros::new(1_700_000_000_000_000);

    fn charge(quota: &Quota, state: &mut State, now: Micros, ask: Ask) -> ChargeRecord {
        let step = step(quota, state, now, ask);
        *state = step.state;
        ChargeRecord::new(ask.tokens(), &step).expect("granted")
    }

    #[test]
    fn a_late_refund_does_not_increase_the_burst() {
        let quota = Quota::token_bucket(10, MINUTE);
        let mut state = State::default();
        let receipt = charge(&quota, &mut state, NOW, Ask::cost(10));
        let later = NOW + MINUTE;
        charge(&quota, &mut state, later, Ask::cost(10));
        assert_eq!(settle(&quota, &state, &receipt, later, 0).spent, 10.0);
    }

    #[test]
    fn a_refund_returns_only_the_part_of_the_charge_that_is_not_yet_repaid() {
        let quota = Quota::token_bucket(5, MINUTE);
        let mut state = State::default();
        let receipt = charge(&quota, &mut state, NOW, Ask::cost(1));
        let later = NOW + Duration::from_millis(30);
        let settled = settle(&quota, &state, &receipt, later, 0);
        assert_eq!((settled.spent, settled.at), (0.0, later));
        charge(&quota, &mut state, later, Ask::cost(3));
        let settled = settle(&quota, &state, &receipt, later, 0);
        assert_eq!((settled.spent, settled.at), (3.0, later));
    }

    #[test]
    fn a_refund_of_a_partly_repaid_charge_does_not_reduce_other_charges() {
        let quota = Quota::token_bucket(7, Duration::from_micros(3_333_331)).capacity(20);
        for micros in (1..470_000).step_by(997) {
            let mut state = State::default();
            let receipt = charge(&quota, &mut state, NOW, Ask::cost(2));
            let later = NOW.plus(micros);
            charge(&quota, &mut state, later, Ask::cost(7));
            let settled = settle(&quota, &state, &receipt, later, 0);
            assert_eq!((settled.spent, settled.at), (7.0, later), "{micros} us later");
        }
    }

    #[test]
    fn a_refund_of_whole_tokens_does_not_restart_the_current_grain() {
        let quota = Quota::token_bucket(10, MINUTE);
        let mut state = State::default();
        charge(&quota, &mut state, NOW, Ask::cost(5));
        let later = NOW + Duration::from_secs(3);
        let receipt = charge(&quota, &mut state, later, Ask::cost(4));
        let settled = settle(&quota, &state, &receipt, later, 1);
        assert_eq!((settled.spent, settled.at), (6.0, NOW));
    }

    #[test]
    fn a_charge_of_the_whole_capacity_can_be_refunded() {
        let quota = Quota::token_bucket(10, MINUTE).max_reserved(50);
        let mut state = State::default();
        let receipt = charge(&quota, &mut state, NOW, Ask::cost(10));
        assert_eq!(settle(&quota, &state, &receipt, NOW, 4).spent, 4.0);
        let debt = settle(&quota, &state, &receipt, NOW, 13);
        assert_eq!((debt.spent, debt.at), (13.0, NOW));
    }

    #[test]
    fn a_refund_never_charges_tokens() {
        // The last refund must not raise the outstanding tokens from 2.4 to 3.
        let quota = Quota::token_bucket(2, SECOND).capacity(4);
        let mut state = State::default();
        let at = |ms| NOW + Duration::from_millis(ms);
        let first = charge(&quota, &mut state, at(700), Ask::cost(1));
        let second = charge(&quota, &mut state, at(700), Ask::cost(2));
        state = settle(&quota, &state, &first, at(800), 0);
        let third = charge(&quota, &mut state, at(800), Ask::cost(1));
        charge(&quota, &mut state, at(1600), Ask::cost(2));
        state = settle(&quota, &state, &third, at(1600), 0);
        let outstanding = |state: &State| spent(&quota, &roll(&quota, state, at(1600)), at(1600));
        let before = outstanding(&state);
        state = settle(&quota, &state, &second, at(1600), 1);
        assert!(outstanding(&state) <= before, "{before} became {}", outstanding(&state));
    }

    #[test]
    fn settling_the_newest_charge_first_loses_no_tokens() {
        let quota = Quota::token_bucket(100_000, MINUTE);
        let mut state = State::default();
        let first = charge(&quota, &mut state, NOW, Ask::cost(1000));
        let second = charge(&quota, &mut state, NOW, Ask::cost(1000));
        state = settle(&quota, &state, &second, NOW, 300);
        assert_eq!(settle(&quota, &state, &first, NOW, 300).spent, 600.0);
    }

    #[test]
    fn a_refund_accounts_for_earlier_refunds() {
        let quota = Quota::token_bucket(10, MINUTE);
        let mut state = State::default();
        let first = charge(&quota, &mut state, NOW, Ask::cost(5));
        let second = charge(&quota, &mut state, NOW, Ask::cost(5));
        state = settle(&quota, &state, &first, NOW, 0);
        let later = NOW + Duration::from_secs(30);
        charge(&quota, &mut state, later, Ask::cost(10));
        assert_eq!(settle(&quota, &state, &second, later, 0).spent, 10.0);
    }

    #[test]
    fn a_charge_can_be_refunded_after_a_later_charge_was_refunded() {
        let quota = Quota::token_bucket(10, MINUTE).capacity(100);
        let mut state = State::default();
        let [first, middle, _last] = [5, 10, 1].map(|cost| charge(&quota, &mut state, NOW, Ask::cost(cost)));
        state = settle(&quota, &state, &middle, NOW, 0);
        assert_eq!((state.spent, state.carry), (6.0, 10.0));
        assert_eq!(settle(&quota, &state, &first, NOW, 0).spent, 1.0);
    }

    #[test]
    fn a_refund_of_the_last_charge_does_not_change_the_carry() {
        let quota = Quota::token_bucket(10, MINUTE).capacity(100);
        let mut state = State::default();
        let [_first, middle, last] = [5, 5, 5].map(|cost| charge(&quota, &mut state, NOW, Ask::cost(cost)));
        state = settle(&quota, &state, &last, NOW, 0);
        assert_eq!((state.spent, state.carry), (10.0, 0.0));
        assert_eq!(settle(&quota, &state, &middle, NOW + Duration::from_secs(30), 0).spent, 0.0);
    }

    #[test]
    fn refunds_before_a_charge_do_not_reduce_its_refund() {
        let quota = Quota::token_bucket(10, MINUTE).capacity(100);
        let mut state = State::default();
        let [early, _, _] = [5, 5, 1].map(|cost| charge(&quota, &mut state, NOW, Ask::cost(cost)));
        state = settle(&quota, &state, &early, NOW, 0);
        assert_eq!((state.spent, state.carry), (6.0, 5.0));
        let charged = charge(&quota, &mut state, NOW, Ask::cost(4));
        charge(&quota, &mut state, NOW, Ask::cost(1));
        assert_eq!(settle(&quota, &state, &charged, NOW + Duration::from_secs(36), 0).spent, 1.0);
    }

    #[test]
    fn a_refund_that_cannot_be_counted_exactly_is_forfeited() {
        // After about 10^16 refunded tokens, `carry` reaches 2^53, above which not all integers are exact in an `f64`.
        let quota = Quota::token_bucket(10, MINUTE).capacity(100);
        let mut state = State::default();
        let [first, _last] = [5, 5].map(|cost| charge(&quota, &mut state, NOW, Ask::cost(cost)));
        let most = MAX_SPENT as f64;
        for (carry, spent, then) in [(most - 5.0, 5.0, most), (most - 4.0, 10.0, most - 4.0), (most, 10.0, most)] {
            let settled = settle(
                &quota,
                &State { carry, ..state },
                &ChargeRecord { state: State { carry, ..first.state }, ..first },
                NOW,
                0,
            );
            assert_eq!((settled.spent, settled.carry), (spent, then), "{carry}");
        }
    }

    #[test]
    fn only_the_last_reservation_can_be_refunded() {
        let quota = Quota::token_bucket(1, SECOND).unlimited_reservations();
        let mut state = State::default();
        let reservations: Vec<_> = (0..20).map(|_| charge(&quota, &mut state, NOW, Ask::cost(1).reserve())).collect();
        let forfeited = settle(&quota, &state, &reservations[10], NOW, 0);
        assert_eq!(forfeited.spent, 20.0);
        for reservation in reservations[10..].iter().rev() {
            state = settle(&quota, &state, reservation, NOW, 0);
        }
        let next = charge(&quota, &mut state, NOW, Ask::cost(1).reserve());
        assert_eq!(next.due, reservations[10].due);
    }

    #[test]
    fn the_refund_of_an_immediate_charge_is_forfeited_while_reservations_are_pending() {
        let quota = Quota::token_bucket(10, SECOND).max_reserved(50);
        let mut state = State::default();
        let plain = charge(&quota, &mut state, NOW, Ask::cost(10));
        let pending = charge(&quota, &mut state, NOW, Ask::cost(10).reserve());
        state = settle(&quota, &state, &plain, NOW, 0);
        let next = charge(&quota, &mut state, NOW, Ask::cost(10).reserve());
        assert!(next.due > pending.due);
    }

    #[test]
    fn a_charge_cannot_be_refunded_after_a_reset() {
        let quota = Quota::token_bucket(10, MINUTE);
        let mut state = State::default();
        let receipt = charge(&quota, &mut state, NOW, Ask::cost(8));
        let mut state = State::default();
        charge(&quota, &mut state, NOW, Ask::cost(3));
        assert_eq!(settle(&quota, &state, &receipt, NOW, 0).spent, 3.0);
    }

    #[test]
    fn a_settlement_under_the_old_quota_does_not_cap_the_spent_tokens() {
        let (small, large) = (Quota::token_bucket(10, MINUTE), Quota::token_bucket(1000, MINUTE));
        let mut state = State::default();
        let receipt = charge(&small, &mut state, NOW, Ask::cost(5));
        charge(&large, &mut state, NOW, Ask::cost(500));
        for (actual, spent) in [(0, 505.0), (5, 505.0), (9, 509.0)] {
            let settled = settle(&small, &state, &receipt, NOW, actual);
            assert_eq!((settled.spent, settled.stamp), (spent, large.stamp()), "{actual}");
        }
    }

    #[test]
    fn a_settlement_takes_effect_unless_its_refund_is_forfeited() {
        let (quota, other) = (Quota::token_bucket(10, MINUTE), Quota::token_bucket(20, MINUTE));
        let mut state = State::default();
        let receipt = charge(&quota, &mut state, NOW, Ask::cost(4));
        let takes = |quota, state, receipt, actual| takes_effect(quota, state, receipt, NOW, actual);
        assert_eq!([3, 4, 5].map(|actual| takes(&quota, &state, &receipt, actual)), [true; 3]);
        let later = NOW + MINUTE;
        assert!(!takes_effect(&quota, &State::default(), &receipt, later, 3), "repaid");
        // Under another quota, a refund is forfeited, but a credit is not.
        assert_eq!([3, 4, 5].map(|actual| takes(&other, &state, &receipt, actual)), [false, true, true]);
        let credit = ChargeRecord::credit(2);
        assert_eq!([0, 2].map(|actual| takes(&quota, &state, &credit, actual)), [true; 2]);
        assert_eq!([0, 2].map(|actual| takes(&other, &state, &credit, actual)), [true; 2]);
        assert_eq!(settle(&other, &state, &credit, NOW, 2), state);
        assert!(!takes(&other, &State::default(), &credit, 0), "nothing was spent");
    }

    #[test]
    fn the_carry_is_needed_until_all_tokens_are_repaid() {
        let (bucket, window) = (Quota::token_bucket(10, MINUTE), Quota::sliding_window(10, MINUTE));
        let state = State { spent: 4.0, carry: 2.0, at: NOW, clear: NOW + 9 * SECOND, ..State::default() };
        assert_eq!(carry_until(&bucket, &state, NOW), NOW + 36 * SECOND);
        assert_eq!(carry_until(&bucket, &State { carry: 90.0, ..state }, NOW), NOW + MINUTE);
        assert_eq!(carry_until(&window, &state, NOW), NOW + 9 * SECOND);
    }

    #[test]
    fn a_settlement_does_not_change_the_stamp_of_a_foreign_row() {
        let (small, large) = (Quota::token_bucket(10, MINUTE), Quota::token_bucket(1000, MINUTE));
        let mut state = State::default();
        let receipt = charge(&small, &mut state, NOW, Ask::cost(5));
        charge(&large, &mut state, NOW, Ask::cost(5));
        for (actual, spent) in [(0, 10.0), (4, 10.0), (5, 10.0), (6, 11.0)] {
            let settled = settle(&small, &state, &receipt, NOW, actual);
            assert_eq!((settled.spent, settled.stamp, settled.at), (spent, large.stamp(), state.at), "{actual}");
            assert!(settled.clear >= state.clear, "{actual}");
        }
        let settled = settle(&small, &state, &receipt, state.clear, 6);
        assert_eq!((settled.spent, settled.stamp, settled.at), (1.0, small.stamp(), state.clear));
    }

    #[test]
    fn a_foreign_row_does_not_expire_before_an_overrun_is_repaid() {
        let reader = Quota::token_bucket(3, MINUTE);
        let writers = [
            Quota::token_bucket(60, MINUTE),
            Quota::token_bucket(7, MINUTE),
            Quota::fixed_window(10, MINUTE).start(Duration::ZERO),
            Quota::fixed_window(10, MINUTE).start(Duration::from_secs(7)).capacity(40),
        ];
        for writer in writers {
            for (spent, more) in [(1, 1), (5, 3), (7, 60), (6, 1), (7, 7)] {
                let mut state = State::default();
                let receipt = charge(&reader, &mut state, NOW, Ask::cost(1));
                let mut state = State::default();
                charge(&writer, &mut state, NOW, Ask::cost(spent));
                let settled = settle(&reader, &state, &receipt, NOW, 1 + more);
                assert_eq!((settled.spent, settled.stamp), ((spent + more) as f64, writer.stamp()));
                let needed = super::super::when(&writer, &settled, NOW, 0.0).expect("a finite repayment time");
                let early = if writer.algorithm() == Algorithm::FixedWindow { MINUTE } else { Duration::ZERO };
                assert!(settled.clear + early >= needed, "{writer:?} {spent} + {more}: {settled:?}, {needed:?}");
            }
        }
    }

    #[test]
    fn many_small_overruns_postpone_the_expiry_only_in_proportion_to_the_debt() {
        let (reader, writer) = (Quota::token_bucket(3, MINUTE), Quota::fixed_window(10, MINUTE).start(Duration::ZERO));
        let mut state = State::default();
        let receipt = charge(&reader, &mut state, NOW, Ask::cost(1));
        let mut state = State::default();
        charge(&writer, &mut state, NOW, Ask::cost(10));
        for _ in 0..50 {
            state = settle(&reader, &state, &receipt, NOW, 2);
        }
        assert_eq!(state.spent, 60.0);
        assert!(state.clear <= state.at + 8 * MINUTE, "{state:?}");
    }

    #[test]
    fn a_charge_in_a_sliding_window_cannot_be_refunded_after_a_reset() {
        let quota = Quota::sliding_window(10, MINUTE);
        let mut state = State::default();
        let receipt = charge(&quota, &mut state, NOW, Ask::cost(8));
        let mut state = State::default();
        charge(&quota, &mut state, NOW, Ask::cost(3));
        assert_eq!(settle(&quota, &state, &receipt, NOW, 0).spent, 3.0);
    }

    #[test]
    fn a_refund_changes_only_the_window_of_its_charge() {
        let quota = Quota::sliding_window(10, MINUTE);
        let begin = Micros::new(1_700_000_040_000_000);
        let mut state = State::default();
        let first = charge(&quota, &mut state, begin, Ask::cost(8));
        assert_eq!(settle(&quota, &state, &first, begin, 2).spent, 2.0);
        assert_eq!(settle(&quota, &state, &first, begin, 0).spent, 0.0);
        let later = begin + MINUTE + MINUTE / 2;
        let second = charge(&quota, &mut state, later, Ask::cost(3));
        let settled = settle(&quota, &state, &second, later, 1);
        assert_eq!((settled.spent, settled.carry), (1.0, 8.0));
        let settled = settle(&quota, &state, &first, later, 0);
        assert_eq!((settled.spent, settled.carry), (3.0, 0.0));
        let other = State { carry: 5.0, ..state };
        assert_eq!(settle(&quota, &other, &first, later, 0), other);
    }

    #[test]
    fn a_charge_in_the_previous_window_can_be_refunded() {
        let quota = Quota::sliding_window(10, MINUTE);
        let begin = Micros::new(1_700_000_040_000_000);
        let mut state = State::default();
        let receipt = charge(&quota, &mut state, begin, Ask::cost(8));
        let settled = settle(&quota, &state, &receipt, begin + MINUTE, 2);
        assert_eq!((settled.spent, settled.carry), (0.0, 2.0));
        let settled = settle(&quota, &state, &receipt, begin + 2 * MINUTE, 2);
        assert_eq!((settled.spent, settled.carry), (0.0, 0.0));
    }
}
