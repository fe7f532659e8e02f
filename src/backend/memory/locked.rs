//! The rows of a call while it is decided: their shards locked, what they hold loaded, and stored again.

use smallvec::SmallVec;

use super::lock::Guard;
use super::row::{Row, Slot};
use super::shard::Shard;
use super::table::{Room, Table};
use crate::algorithm::{Algorithm, Micros, Quota, State, when};
use crate::backend::Take;

/// The shards of a call, locked in the order of their numbers, and what is done to their rows.
pub(super) struct Locked<'a> {
    pub(super) table: &'a Table,
    pub(super) shards: SmallVec<[(usize, Guard<'a, Shard>); 4]>,
}

/// A row of a call.
pub(super) struct Loaded {
    pub(super) slot: Slot,
    pub(super) state: State,
    /// The row before the first take of the call that was granted.
    pub(super) before: Option<State>,
    pub(super) place: Place,
    pub(super) has_twin: bool,
    /// The overflow row that stands in for it.
    pub(super) shared: Option<u64>,
}

impl Loaded {
    /// The quota by which a take on this row is decided.
    pub(super) fn quota_of(&self, take: &Take<'_>) -> Quota {
        match self.shared {
            // Window boundaries that differ from newcomer to newcomer would pay the shared row back at each.
            Some(_) => take.quota.seeded(take.row.policy.id()),
            None => take.quota,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It is in the table.
    Found,
    /// It is not, and has room there.
    New(Room),
    /// It is not, and has no room.
    Overflow,
}

impl<'a> Locked<'a> {
    pub(super) fn new(table: &'a Table, slots: &[Slot]) -> Locked<'a> {
        let mut numbers: SmallVec<[usize; 4]> = slots.iter().map(|slot| table.shard_of(*slot)).collect();
        // Those of one caller are one shard's.
        numbers.dedup();
        numbers.sort_unstable();
        numbers.dedup();
        Locked { table, shards: numbers.into_iter().map(|number| (number, table.lock(number))).collect() }
    }

    pub(super) fn shard(&mut self, slot: Slot) -> (usize, &mut Shard) {
        let number = self.table.shard_of(slot);
        match self.shards.iter_mut().find(|(other, _)| *other == number) {
            Some((_, shard)) => (number, shard),
            None => unreachable!("every shard of the call was locked"),
        }
    }

    /// The row of a slot. `others` of the call are loaded already; none of `slots`, all that the call names, may be
    /// dropped for the sake of another.
    pub(super) fn load(&mut self, slot: Slot, quota: &Quota, now: Micros, others: &[Loaded], slots: &[Slot]) -> Loaded {
        let table = self.table;
        let (number, shard) = self.shard(slot);
        let mut row =
            Loaded { slot, state: State::default(), before: None, place: Place::Found, has_twin: false, shared: None };
        let found = shard.find(slot);
        if let Some(found) = found {
            row.state = table.worth.state_for(&found, quota);
        } else {
            let mut busy: SmallVec<[Slot; 8]> = slots.iter().copied().collect();
            let mut coming = 0;
            for other in others.iter().filter(|other| table.shard_of(other.slot) == number) {
                match other.place {
                    Place::New(Room::InPlaceOf(victim)) => busy.push(victim.without_twin()),
                    Place::New(_) => coming += 1,
                    _ => {}
                }
            }
            row.place = match table.room(shard, coming, &busy, now) {
                Room::None => Place::Overflow,
                room => Place::New(room),
            };
        }
        // A token bucket's twin outlives its row: late give-backs go by it. A window without its row means nothing.
        if found.is_none_or(|found| found.has_twin()) {
            let sliding = quota.algorithm() == Algorithm::SlidingWindow;
            if let Some(twin) = shard.find(slot.twin()) {
                row.has_twin = true;
                let holds = if sliding { found.is_some() } else { twin.at() > now };
                if holds && row.place != Place::Overflow {
                    row.state.carry = twin.spent();
                    row.state.stamp = table.worth.stamp(&twin);
                }
            }
        }
        row
    }

    pub(super) fn store(&mut self, row: &Loaded, quota: &Quota, now: Micros, slots: &[Slot]) {
        let table = self.table;
        let (_, shard) = self.shard(row.slot);
        let id = table.worth.learn(quota);
        if let Place::New(Room::InPlaceOf(victim)) = row.place {
            shard.remove(victim);
            shard.remove(victim.twin());
        }
        // Another row's twin may have come into the place that was found, or in place of the same victim.
        if row.place != Place::Found && table.is_full(shard) {
            match table.room(shard, 0, slots, now) {
                Room::Free => {}
                Room::InPlaceOf(victim) => {
                    shard.remove(victim);
                    shard.remove(victim.twin());
                }
                Room::None => return, // Losing a row forgives; passing the cap does not.
            }
        }
        let state = &row.state;
        let mut has_twin = false;
        if state.carry > 0.0 {
            let until = match quota.algorithm() {
                Algorithm::SlidingWindow => state.at.plus(quota.period_micros()),
                // As long as any receipt made before now could be worth anything: none stood above the ceiling.
                _ => {
                    let most = (state.spent + state.carry).min(quota.ceiling() as f64);
                    let owed = State { spent: most, at: now, stamp: quota.stamp(), ..State::default() };
                    when(quota, &owed, now, 0.0).unwrap_or(Micros::MAX)
                }
            };
            has_twin = row.has_twin
                || match table.room(shard, 1, slots, now) {
                    Room::Free => true,
                    Room::InPlaceOf(victim) => {
                        shard.remove(victim);
                        shard.remove(victim.twin());
                        true
                    }
                    Room::None => false,
                };
            if has_twin {
                shard.put(row.slot.twin(), Row::new(state.carry, until, id, false));
            }
        } else if row.has_twin {
            shard.remove(row.slot.twin());
        }
        shard.put(row.slot, Row::new(state.spent, state.at, id, has_twin));
    }
}
