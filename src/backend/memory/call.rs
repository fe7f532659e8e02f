//! The rows of a call while it is decided: their shards locked, what they hold loaded, and stored again.

use std::borrow::{Borrow, BorrowMut};

use smallvec::SmallVec;

use super::ledger::Shared;
use super::row::{Row, RowKey};
use super::table::{Shard, Table};
use crate::algorithm::{Line, Micros, Quota, State, Step, Steps, carry_until, roll, step_all};
use crate::backend::{RowId, Take};

/// The shards of a call, locked in ascending order.
pub(super) struct Call<'a> {
    table: &'a Table,
    shards: SmallVec<[Shard<'a>; 1]>,
    /// The rows that the call names, in the order of its takes, and those that make room for them: none of them may be
    /// dropped for the sake of another.
    busy: SmallVec<[RowKey; 2]>,
}

/// A row of a call.
pub(super) struct Loaded<'a> {
    key: RowKey,
    id: &'a RowId<'a>,
    pub(super) state: State,
    pub(super) place: Place,
    has_carry: bool,
}

impl Borrow<State> for Loaded<'_> {
    fn borrow(&self) -> &State {
        &self.state
    }
}

impl BorrowMut<State> for Loaded<'_> {
    fn borrow_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

/// Where a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Found,
    /// It is not in the table, and has room there: a free place, or that of another row.
    New(Option<RowKey>),
    /// It is not in the table, and has no room: it shares this row with others.
    Overflow(Shared),
}

impl Place {
    fn is_overflow(self) -> bool {
        matches!(self, Place::Overflow(_))
    }
}

impl<'a> Call<'a> {
    pub(super) fn new<'r>(table: &'a Table, rows: impl Iterator<Item = &'r RowId<'r>>) -> Call<'a> {
        let (mut busy, mut numbers) = (SmallVec::<[RowKey; 2]>::new(), SmallVec::<[usize; 4]>::new());
        for row in rows {
            let key = table.keys().key(row);
            busy.push(key);
            numbers.push(table.shard_of(key));
        }
        numbers.sort_unstable();
        numbers.dedup();
        let mut shards = SmallVec::new();
        for number in numbers {
            shards.push(table.lock(number));
        }
        Call { table, shards, busy }
    }

    /// Decides all takes at `now`. If all are granted and `store` is set, stores the rows.
    pub(super) fn decide(&mut self, takes: &[Take<'_>], now: Micros, store: bool) -> Steps {
        // Each row once.
        let mut rows = SmallVec::<[Loaded<'_>; 2]>::new();
        let mut lines = SmallVec::<[Line<'_>; 2]>::new();
        for (i, take) in takes.iter().enumerate() {
            let key = self.busy[i];
            let known = rows.iter().position(|row| row.key == key);
            let row = known.unwrap_or_else(|| {
                rows.push(self.load(key, &take.row, &take.quota, now));
                self.one_overflow(&mut rows)
            });
            lines.push(Line { row, quota: &take.quota, ask: take.ask });
        }
        if rows.iter().any(|row| row.place.is_overflow()) {
            return self.decide_overflow(takes, &mut rows, &lines, now, store);
        }
        self.decide_lines(&mut rows, &lines, now, store)
    }

    fn decide_lines(&mut self, rows: &mut [Loaded<'_>], lines: &[Line<'_>], now: Micros, store: bool) -> Steps {
        let steps = step_all(rows, lines, now);
        if store && steps.all_granted() {
            for (place, row) in rows.iter().enumerate() {
                // Tiers of one policy share a row: the last quota that charged it wrote it. A charge of cost 0 does not
                // change another quota's row.
                let wrote = |line: &&Line<'_>| line.row == place && [line.quota.stamp(), 0].contains(&row.state.stamp);
                if let Some(last) = lines.iter().rev().find(wrote) {
                    self.store(row, last.quota, now);
                }
            }
        } else if store {
            self.denied(rows, lines, &steps);
        }
        steps
    }

    /// Overflow rows are shared by newcomers and have window boundaries of their own: with each key's boundaries, the shared
    /// row would be repaid at all of them. The returned steps have the boundaries of the key.
    #[cold]
    fn decide_overflow(
        &mut self,
        takes: &[Take<'_>],
        rows: &mut [Loaded<'_>],
        lines: &[Line<'_>],
        now: Micros,
        store: bool,
    ) -> Steps {
        let quotas: Vec<Quota> = lines.iter().map(|line| self.quota_of(&rows[line.row], line.quota)).collect();
        let shared: Vec<Line<'_>> = lines.iter().zip(&quotas).map(|(line, quota)| Line { quota, ..*line }).collect();
        let mut steps = self.decide_lines(rows, &shared, now, store);
        for (step, (line, take)) in steps.iter_mut().zip(lines.iter().zip(takes)) {
            if rows[line.row].place.is_overflow() && step.state.stamp == take.quota.stamp() {
                step.state = roll(&take.quota, &State { at: now, ..step.state }, now);
            }
        }
        steps
    }

    /// Marks the rows that denied a charge.
    #[cold]
    fn denied(&mut self, rows: &[Loaded<'_>], lines: &[Line<'_>], steps: &[Step]) {
        for (line, _) in lines.iter().zip(steps).filter(|(_, step)| !step.is_allowed()) {
            let key = rows[line.row].key;
            if let Some(found) = self.shard(key).rows.get_mut(key) {
                found.denied(line.quota, line.ask);
            }
        }
        for row in rows.iter().filter(|row| row.place.is_overflow()) {
            self.shard(row.key).ledger().overflowed += 1;
        }
    }

    /// The index of the row that was loaded last. If the call has loaded the same overflow row before, the earlier index.
    fn one_overflow(&self, rows: &mut SmallVec<[Loaded<'_>; 2]>) -> usize {
        let last = rows.len() - 1;
        let place = |row: &Loaded<'_>| (row.place, self.table.shard_of(row.key));
        if rows[last].place.is_overflow() {
            if let Some(same) = rows[..last].iter().position(|row| place(row) == place(&rows[last])) {
                rows.truncate(last);
                return same;
            }
        }
        last
    }

    /// The quota by which a charge on this row is decided.
    pub(super) fn quota_of(&self, row: &Loaded<'_>, quota: &Quota) -> Quota {
        match row.place {
            Place::Overflow((_, index)) => {
                let policy = self.table.keys().number(row.id.policy);
                quota.seeded(u64::from(policy) << 8 | u64::from(index))
            }
            _ => *quota,
        }
    }

    /// Loads a row, and finds room for it if it is not there.
    pub(super) fn load<'r>(&mut self, key: RowKey, id: &'r RowId<'r>, quota: &Quota, now: Micros) -> Loaded<'r> {
        let Call { table, shards, busy } = self;
        let shard = find(shards, table.shard_of(key));
        let mut loaded = Loaded { key, id, state: State::default(), place: Place::Found, has_carry: false };
        let found = shard.rows.get(key);
        match found {
            Some(found) => loaded.state = found.state(now),
            None => loaded.place = shard.place(key, id, busy, now),
        }
        if let Place::Overflow(shared) = loaded.place {
            loaded.state = shard.ledger().overflow(shared);
            return loaded;
        }
        // The carry row of a bucket outlives its row, since late give-backs need it. That of a window does not.
        let has_carry = found.is_none_or(|found| found.has_carry());
        if let Some(carry) = has_carry.then(|| shard.rows.get(key.carry())).flatten() {
            loaded.has_carry = true;
            let owner = if quota.algorithm().carries_a_count() { found } else { Some(carry) };
            if owner.is_some_and(|owner| !owner.is_clear(now)) {
                (loaded.state.carry, loaded.state.stamp) = (carry.spent, carry.stamp);
            }
        }
        loaded
    }

    /// Stores what a charge or a settlement under `quota` left of a row.
    pub(super) fn store(&mut self, row: &Loaded<'_>, quota: &Quota, now: Micros) {
        let Loaded { key, ref state, .. } = *row;
        let Call { table, shards, busy } = self;
        let shard = find(shards, table.shard_of(key));
        match row.place {
            Place::Overflow(shared) => {
                shard.ledger().overflowed += 1;
                return shard.ledger().set_overflow(shared, *state);
            }
            // Usually the row exists and has no carry. A row of another quota with an overrun keeps its carry.
            Place::Found if !row.has_carry && state.carry == 0.0 && state.stamp != 0 || is_others(state, quota) => {
                return shard.rows.get_mut(key).into_iter().for_each(|found| found.write(quota, state));
            }
            Place::Found if state.stamp == 0 => {
                shard.remove(key);
                shard.remove(key.carry());
                return;
            }
            Place::New(_) if state.stamp == 0 && !row.has_carry => return,
            Place::New(Some(victim)) => shard.evict(victim),
            Place::New(None) => shard.coming -= 1,
            Place::Found => {}
        }
        let policy = table.keys().number(row.id.policy);
        if row.place != Place::Found {
            // The carry of another row of the call may have taken the room. Losing a row forgives; passing the cap does not.
            if shard.is_full() && !shard.make_room(policy, busy, now) {
                return;
            }
            shard.add(key, Row::new(state, policy), row.id.policy);
        }
        let has_carry = state.carry > 0.0 && (row.has_carry || shard.make_room(policy, busy, now));
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
        find(&mut self.shards, self.table.shard_of(key))
    }
}

/// Whether the row still has another quota's stamp.
fn is_others(state: &State, quota: &Quota) -> bool {
    state.stamp != quota.stamp() && state.stamp != 0
}

fn find<'s, 'a>(shards: &'s mut [Shard<'a>], number: usize) -> &'s mut Shard<'a> {
    match shards.iter_mut().find(|shard| shard.number == number) {
        Some(shard) => shard,
        None => unreachable!("every shard of the call was locked"),
    }
}
