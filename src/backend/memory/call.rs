//! The rows of a call while it is decided: their shards locked, what they hold loaded, and stored again.

use smallvec::SmallVec;

use super::ledger::Shared;
use super::row::{Row, RowKey};
use super::table::{Room, Shard, Table};
use crate::algorithm::{Algorithm, Micros, Quota, State, Step, roll, step, when};
use crate::backend::{RowId, Steps, Take, verdict_of_all};

/// The shards of a call, locked in ascending order.
pub(super) struct Call<'a> {
    table: &'a Table,
    shards: SmallVec<[(usize, Shard<'a>); 2]>,
    /// The rows that the call names, in the order of its takes, and those that make room for them: none of them may be
    /// dropped for the sake of another.
    busy: SmallVec<[RowKey; 4]>,
}

/// A row of a call.
pub(super) struct Loaded<'a> {
    pub(super) key: RowKey,
    row: &'a RowId<'a>,
    /// The number of its policy.
    policy: u32,
    pub(super) state: State,
    /// The row before the first take of the call that was granted.
    before: Option<State>,
    pub(super) place: Place,
    has_carry: bool,
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

impl Loaded<'_> {
    /// The quota by which a charge on this row is decided.
    pub(super) fn quota(&self, quota: &Quota) -> Quota {
        match self.place {
            // Window boundaries that differ from newcomer to newcomer would pay the shared row back at each.
            Place::Overflow((_, index)) => quota.seeded(u64::from(self.policy) << 8 | u64::from(index)),
            _ => *quota,
        }
    }

    /// Decides a take, and does to the loaded row what it would do.
    fn step(&mut self, take: &Take<'_>, now: Micros) -> Step {
        let step = step(&self.quota(&take.quota), &self.state, now, take.ask);
        if step.is_allowed() {
            self.before = Some(self.before.unwrap_or(self.state));
            self.state = step.state;
        }
        step
    }
}

impl<'a> Call<'a> {
    pub(super) fn new(table: &'a Table, keys: SmallVec<[RowKey; 4]>) -> Call<'a> {
        let mut numbers: SmallVec<[usize; 4]> = keys.iter().map(|key| table.shard_of(*key)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        Call { table, shards: numbers.into_iter().map(|number| (number, table.lock(number))).collect(), busy: keys }
    }

    /// Decides all takes at `now`, and stores them if all are granted.
    pub(super) fn decide(&mut self, takes: &[Take<'_>], now: Micros, store: bool) -> Steps {
        let mut loaded: SmallVec<[Loaded<'_>; 4]> = SmallVec::new();
        let mut steps: SmallVec<[(usize, Step); 4]> = SmallVec::new();
        for (i, take) in takes.iter().enumerate() {
            let key = self.busy[i];
            let index = loaded.iter().position(|row| row.key == key).unwrap_or_else(|| {
                let row = self.load(key, &take.row, &take.quota, now);
                // Newcomers share overflow rows within a call, too.
                let is_shared = matches!(row.place, Place::Overflow(_));
                let shard = |key: RowKey| self.table.shard_of(key);
                let same = loaded
                    .iter()
                    .position(|other| is_shared && other.place == row.place && shard(other.key) == shard(row.key));
                same.unwrap_or_else(|| {
                    loaded.push(row);
                    loaded.len() - 1
                })
            });
            let step = loaded[index].step(take, now);
            steps.push((index, step));
        }

        if !steps.iter().all(|(_, step)| step.is_allowed()) {
            self.deny(takes, &loaded, &mut steps, now, store);
        } else if store {
            for (index, row) in loaded.iter().enumerate() {
                // Tiers of one policy share a row, so the last quota is the one that wrote it. A charge of nothing leaves
                // the row of another quota as it is.
                let wrote = |i: &usize| steps[*i].0 == index && takes[*i].quota.stamp() == row.state.stamp;
                if let Some(last) = (0..takes.len()).rev().find(wrote) {
                    self.store(row, &takes[last].quota, now);
                }
            }
        }
        let shown = steps.into_iter().zip(takes).map(|((index, step), take)| match loaded[index].place {
            // A shared row has boundaries of its own; in the answer they are the key's.
            Place::Overflow(_) if step.state.stamp == take.quota.stamp() => {
                Step { state: roll(&take.quota, &State { at: now, ..step.state }, now), ..step }
            }
            _ => step,
        });
        shown.collect()
    }

    /// Nothing is spent: what fitted leaves its row as it was, and rows that denied a charge remember that they did.
    fn deny(
        &mut self,
        takes: &[Take<'_>],
        loaded: &[Loaded<'_>],
        steps: &mut [(usize, Step)],
        now: Micros,
        store: bool,
    ) {
        for i in 0..steps.len() {
            let (index, step) = steps[i];
            let row = &loaded[index];
            let before = row.before.unwrap_or(row.state);
            if !step.is_allowed() {
                let same = (0..takes.len()).filter(|other| steps[*other].0 == index);
                if same.clone().count() > 1 {
                    let asked = same.map(|other| (row.quota(&takes[other].quota), takes[other].ask));
                    steps[i].1.verdict = verdict_of_all(&before, now, asked).unwrap_or(step.verdict);
                }
                if let Some(found) = self.shard(row.key).rows.get_mut(row.key).filter(|_| store) {
                    found.denied(&takes[i].quota, takes[i].ask);
                }
            }
            if row.before.is_some() {
                steps[i].1.state = before;
            }
        }
        if store {
            for row in loaded.iter().filter(|row| matches!(row.place, Place::Overflow(_))) {
                self.shard(row.key).ledger.overflowed += 1;
            }
        }
    }

    /// Loads a row, and finds room for it if it is not there.
    pub(super) fn load<'r>(&mut self, key: RowKey, row: &'r RowId<'r>, quota: &Quota, now: Micros) -> Loaded<'r> {
        let Call { table, shards, busy } = self;
        let policy = table.keys().number(row.policy);
        let mut loaded =
            Loaded { key, row, policy, state: State::default(), before: None, place: Place::Found, has_carry: false };
        let shard = find(shards, table.shard_of(key));
        let found = shard.rows.get(key);
        if let Some(found) = found {
            loaded.state = found.state(now);
        } else {
            match shard.room(policy, busy, now) {
                Room::Free => {
                    shard.coming += 1;
                    loaded.place = Place::New(None);
                }
                Room::InPlaceOf(victim) => {
                    busy.push(victim.row());
                    loaded.place = Place::New(Some(victim));
                }
                Room::None => {
                    let shared = shard.ledger.shared(policy, key, now);
                    loaded.state = shard.ledger.overflow(shared);
                    loaded.place = Place::Overflow(shared);
                    return loaded;
                }
            }
        }
        // The carry row of a bucket outlives its row, since late give-backs need it. That of a window does not.
        let sliding = quota.algorithm() == Algorithm::SlidingWindow;
        let has_carry = found.is_none_or(|found| found.has_carry());
        if let Some(carry) = has_carry.then(|| shard.rows.get(key.carry())).flatten() {
            loaded.has_carry = true;
            if if sliding { found.is_some_and(|found| !found.is_clear(now)) } else { !carry.is_clear(now) } {
                (loaded.state.carry, loaded.state.stamp) = (carry.spent, carry.stamp);
            }
        }
        loaded
    }

    /// Stores what a charge or a settlement under `quota` left of a row.
    pub(super) fn store(&mut self, row: &Loaded<'_>, quota: &Quota, now: Micros) {
        let Loaded { key, ref state, policy, .. } = *row;
        let Call { table, shards, busy } = self;
        let shard = find(shards, table.shard_of(key));
        match row.place {
            Place::Overflow(shared) => {
                shard.ledger.overflowed += 1;
                return shard.ledger.set_overflow(shared, *state);
            }
            // The row of another quota, with an overrun: its carry stays as it is.
            Place::Found if state.stamp != quota.stamp() => {
                return shard.rows.get_mut(key).into_iter().for_each(|found| found.write(quota, state));
            }
            Place::New(_) if state.spent == 0.0 && state.carry == 0.0 && !row.has_carry => return,
            Place::New(Some(victim)) => shard.evict(victim),
            Place::New(None) => shard.coming -= 1,
            Place::Found => {}
        }
        if row.place != Place::Found {
            // The carry of another row of the call may have taken the room. Losing a row forgives; passing the cap does not.
            if shard.is_full() && !shard.make_room(policy, busy, now) {
                return;
            }
            shard.add(key, Row::new(state, policy), row.row.policy);
        }
        let has_carry = state.carry > 0.0 && (row.has_carry || shard.make_room(policy, busy, now));
        if row.has_carry {
            shard.remove(key.carry());
        }
        if has_carry {
            let carry = State { spent: state.carry, clear: carry_until(quota, state, now), carry: 0.0, ..*state };
            shard.add(key.carry(), Row::new(&carry, policy), row.row.policy);
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

fn find<'s, 'a>(shards: &'s mut [(usize, Shard<'a>)], number: usize) -> &'s mut Shard<'a> {
    match shards.iter_mut().find(|(other, _)| *other == number) {
        Some((_, shard)) => shard,
        None => unreachable!("every shard of the call was locked"),
    }
}

/// The instant from which a carry means nothing any more.
fn carry_until(quota: &Quota, state: &State, now: Micros) -> Micros {
    match quota.algorithm() {
        // To another quota both windows count until then.
        Algorithm::SlidingWindow => state.clear,
        // As long as any receipt made before now could be worth anything: none stood above the ceiling.
        _ => {
            let most = (state.spent + state.carry).min(quota.ceiling() as f64);
            let owed = State { spent: most, at: now, stamp: quota.stamp(), ..State::default() };
            when(quota, &owed, now, 0.0).unwrap_or(Micros::MAX)
        }
    }
}
