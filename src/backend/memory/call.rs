//! Executes a call: locks the shards of its rows, loads the rows, decides, and stores the rows.

use std::borrow::{Borrow, BorrowMut};

use smallvec::SmallVec;

use super::ledger::OverflowId;
use super::row::{Row, RowKey};
use super::table::{Shard, Table};
use crate::algorithm::{Line, Micros, Quota, State, Step, Steps, carry_until, roll, step_all};
use crate::backend::{RowId, Take};

pub(super) struct LockedCall<'a> {
    table: &'a Table,
    shards: SmallVec<[Shard<'a>; 1]>,
    /// Rows that must not be chosen as victims: this call's rows, in the order of its takes, and any earlier victims.
    pinned: SmallVec<[RowKey; 2]>,
}

pub(super) struct LoadedRow<'a> {
    key: RowKey,
    id: &'a RowId<'a>,
    pub(super) state: State,
    pub(super) location: Location,
    has_carry: bool,
}

impl Borrow<State> for LoadedRow<'_> {
    fn borrow(&self) -> &State {
        &self.state
    }
}

impl BorrowMut<State> for LoadedRow<'_> {
    fn borrow_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Location {
    Existing,
    /// A new row, which gets a free slot (`None`) or replaces the given row.
    New(Option<RowKey>),
    /// The table is full, so the key shares this overflow row with other keys.
    Overflow(OverflowId),
}

impl Location {
    fn is_overflow(self) -> bool {
        matches!(self, Location::Overflow(_))
    }
}

impl<'a> LockedCall<'a> {
    pub(super) fn new<'r>(table: &'a Table, windows: impl Iterator<Item = (&'r RowId<'r>, u8)>) -> LockedCall<'a> {
        let (mut pinned, mut numbers) = (SmallVec::<[RowKey; 2]>::new(), SmallVec::<[usize; 4]>::new());
        for (row, window) in windows {
            let key = table.hasher().key(row).window(window);
            pinned.push(key);
            numbers.push(table.shard_of(key));
        }
        numbers.sort_unstable();
        numbers.dedup();
        let mut shards = SmallVec::new();
        for number in numbers {
            shards.push(table.lock(number));
        }
        LockedCall { table, shards, pinned }
    }

    pub(super) fn decide(&mut self, takes: &[Take<'_>], now: Micros, store: bool) -> Steps {
        let mut rows = SmallVec::<[LoadedRow<'_>; 2]>::new();
        let mut lines = SmallVec::<[Line<'_>; 2]>::new();
        for (i, take) in takes.iter().enumerate() {
            let key = self.pinned[i];
            let known = rows.iter().position(|row| row.key == key);
            let row = known.unwrap_or_else(|| {
                rows.push(self.load(key, &take.row, &take.quota, now));
                self.merge_overflow(&mut rows)
            });
            lines.push(Line { row, quota: &take.quota, ask: take.ask });
        }
        if rows.iter().any(|row| row.location.is_overflow()) {
            return self.decide_overflow(takes, &mut rows, &lines, now, store);
        }
        self.decide_lines(&mut rows, &lines, now, store)
    }

    fn decide_lines(&mut self, rows: &mut [LoadedRow<'_>], lines: &[Line<'_>], now: Micros, store: bool) -> Steps {
        let steps = step_all(rows, lines, now);
        if store && steps.all_granted() {
            for (index, row) in rows.iter().enumerate() {
                // A policy's tiers share a row. Its stamp identifies the quota of the last charge with a nonzero cost.
                let wrote = |line: &&Line<'_>| line.row == index && [line.quota.stamp(), 0].contains(&row.state.stamp);
                if let Some(last) = lines.iter().rev().find(wrote) {
                    self.store(row, last.quota, now);
                }
            }
        } else if store {
            self.record_denials(rows, lines, &steps);
        }
        steps
    }

    /// Decides a call that charges overflow rows. An overflow row has its own window boundaries. If it used the
    /// boundaries of its keys, it would be reset once for each key. The returned steps use the keys' boundaries.
    #[cold]
    fn decide_overflow(
        &mut self,
        takes: &[Take<'_>],
        rows: &mut [LoadedRow<'_>],
        lines: &[Line<'_>],
        now: Micros,
        store: bool,
    ) -> Steps {
        let quotas: Vec<Quota> = lines.iter().map(|line| self.quota_for(&rows[line.row], line.quota)).collect();
        let overflow_lines: Vec<Line<'_>> =
            lines.iter().zip(&quotas).map(|(line, quota)| Line { quota, ..*line }).collect();
        let mut steps = self.decide_lines(rows, &overflow_lines, now, store);
        for (step, (line, take)) in steps.iter_mut().zip(lines.iter().zip(takes)) {
            if rows[line.row].location.is_overflow() && step.state.stamp == take.quota.stamp() {
                step.state = roll(&take.quota, &State { at: now, ..step.state }, now);
            }
        }
        steps
    }

    /// Marks the rows that denied a charge, so that other rows are evicted first.
    #[cold]
    fn record_denials(&mut self, rows: &[LoadedRow<'_>], lines: &[Line<'_>], steps: &[Step]) {
        for (line, _) in lines.iter().zip(steps).filter(|(_, step)| !step.is_allowed()) {
            let key = rows[line.row].key;
            if let Some(found) = self.shard(key).rows.get_mut(key) {
                found.record_denial(line.quota, line.ask);
            }
        }
        for row in rows.iter().filter(|row| row.location.is_overflow()) {
            self.shard(row.key).ledger().overflowed += 1;
        }
    }

    /// Returns the index of the last loaded row, or of an earlier entry for the same overflow row.
    fn merge_overflow(&self, rows: &mut SmallVec<[LoadedRow<'_>; 2]>) -> usize {
        let last = rows.len() - 1;
        let overflow_of = |row: &LoadedRow<'_>| (row.location, self.table.shard_of(row.key));
        if rows[last].location.is_overflow() {
            if let Some(same) = rows[..last].iter().position(|row| overflow_of(row) == overflow_of(&rows[last])) {
                rows.truncate(last);
                return same;
            }
        }
        last
    }

    /// Returns `quota`, with the row's own seed added if `row` is an overflow row.
    pub(super) fn quota_for(&self, row: &LoadedRow<'_>, quota: &Quota) -> Quota {
        match row.location {
            Location::Overflow((_, index, _)) => {
                let policy = self.table.hasher().number(row.id.policy);
                quota.seeded(u64::from(policy) << 8 | u64::from(index))
            }
            _ => *quota,
        }
    }

    pub(super) fn load<'r>(&mut self, key: RowKey, id: &'r RowId<'r>, quota: &Quota, now: Micros) -> LoadedRow<'r> {
        let LockedCall { table, shards, pinned } = self;
        let shard = shard_mut(shards, table.shard_of(key));
        let mut loaded = LoadedRow { key, id, state: State::default(), location: Location::Existing, has_carry: false };
        let found = shard.rows.get(key);
        match found {
            Some(found) => loaded.state = found.state(now),
            None => loaded.location = shard.locate(key, id, pinned, now),
        }
        if let Location::Overflow(overflow) = loaded.location {
            loaded.state = shard.ledger().overflow(overflow);
            return loaded;
        }
        // The carry row of a sliding window expires together with the main row. Other carry rows live longer, for late
        // refunds.
        let has_carry = found.is_none_or(|found| found.has_carry());
        if let Some(carry) = has_carry.then(|| shard.rows.get(key.carry())).flatten() {
            loaded.has_carry = true;
            let owner = if quota.algorithm().carries_a_count() { found } else { Some(carry) };
            if owner.is_some_and(|owner| !owner.is_expired(now)) {
                (loaded.state.carry, loaded.state.stamp) = (carry.spent, carry.stamp);
            }
        }
        loaded
    }

    pub(super) fn store(&mut self, row: &LoadedRow<'_>, quota: &Quota, now: Micros) {
        let LoadedRow { key, ref state, .. } = *row;
        let LockedCall { table, shards, pinned } = self;
        let shard = shard_mut(shards, table.shard_of(key));
        match row.location {
            Location::Overflow(id) => {
                shard.ledger().overflowed += 1;
                return shard.ledger().set_overflow(id, *state);
            }
            // In the common case, the row exists and has no carry. If another quota wrote the row, its carry is kept.
            Location::Existing
                if !row.has_carry && state.carry == 0.0 && state.stamp != 0 || has_other_stamp(state, quota) =>
            {
                return shard.rows.get_mut(key).into_iter().for_each(|found| found.write(quota, state));
            }
            Location::Existing if state.stamp == 0 => {
                shard.remove_with_carry(key);
                return;
            }
            Location::New(_) if state.stamp == 0 && !row.has_carry => return,
            Location::New(Some(victim)) => shard.evict(victim),
            Location::New(None) => shard.incoming -= 1,
            Location::Existing => {}
        }
        let policy = table.hasher().number(row.id.policy);
        if row.location != Location::Existing {
            // Another row's carry row may have taken the slot. Losing this row is better than exceeding the cap.
            if shard.is_full() && !shard.ensure_slot(policy, pinned, now) {
                return;
            }
            shard.add(key, Row::new(state, policy), row.id.policy);
        }
        let has_carry = state.carry > 0.0 && (row.has_carry || shard.ensure_slot(policy, pinned, now));
        if row.has_carry {
            shard.remove(key.carry());
        }
        if has_carry {
            let carry = State { spent: state.carry, clear: carry_until(quota, state, now), carry: 0.0, ..*state };
            shard.add(key.carry(), Row::new(&carry, policy), row.id.policy);
        }
        if let Some(found) = shard.rows.get_mut(key) {
            found.write(quota, state);
            found.set_carry(has_carry);
        }
    }

    fn shard(&mut self, key: RowKey) -> &mut Shard<'a> {
        shard_mut(&mut self.shards, self.table.shard_of(key))
    }
}

fn has_other_stamp(state: &State, quota: &Quota) -> bool {
    state.stamp != quota.stamp() && state.stamp != 0
}

fn shard_mut<'s, 'a>(shards: &'s mut [Shard<'a>], number: usize) -> &'s mut Shard<'a> {
    match shards.iter_mut().find(|shard| shard.number == number) {
        Some(shard) => shard,
        None => unreachable!("every shard of the call is locked"),
    }
}
