//! The table of rows: shards with a lock each, and room that is made for newcomers as they come.

use std::collections::HashMap;

use smallvec::SmallVec;

use super::call::Place;
use super::ledger::{Ledger, Victim};
use super::map::{Map, Rows};
use super::row::{Keys, Row, RowKey};
use crate::algorithm::Micros;
use crate::backend::RowId;
use crate::policy::PolicyName;
use crate::sync::{Mutex, MutexGuard, PoisonError};

pub(super) struct Table {
    map: Map,
    /// One for each shard, locked after it.
    ledgers: Box<[Mutex<Ledger>]>,
    rows_per_shard: usize,
    keys: Keys,
    /// The names of the first policies that had rows, by their numbers. Locked last.
    names: Mutex<HashMap<u32, PolicyName>>,
}

/// A shard, locked for a call.
pub(super) struct Shard<'a> {
    table: &'a Table,
    pub(super) number: usize,
    pub(super) rows: Rows<'a>,
    /// Locked on first use. Calls whose rows all exist never lock it.
    ledger: Option<MutexGuard<'a, Ledger>>,
    /// Rows of the call that have found room, and are not added yet.
    pub(super) coming: usize,
}

/// Whether there is room for a newcomer's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    Free,
    /// In exchange for this row.
    InPlaceOf(RowKey),
    None,
}

impl Table {
    pub(super) fn new(max_rows: usize) -> Table {
        let shards = (max_rows / ROWS_PER_SHARD).next_power_of_two().clamp(MIN_SHARDS, RowKey::MAX_SHARDS);
        Table {
            map: Map::new(shards),
            ledgers: (0..shards).map(|_| Mutex::default()).collect(),
            rows_per_shard: (max_rows / shards).max(1),
            keys: Keys::random(),
            names: Mutex::default(),
        }
    }

    pub(super) fn keys(&self) -> &Keys {
        &self.keys
    }

    #[inline]
    pub(super) fn shard_of(&self, key: RowKey) -> usize {
        self.map.shard_of(key)
    }

    /// Locks a shard. A caller that locks several takes them in ascending order.
    pub(super) fn lock(&self, shard: usize) -> Shard<'_> {
        Shard { table: self, number: shard, rows: self.map.lock(shard), ledger: None, coming: 0 }
    }

    #[cfg(test)]
    pub(super) fn shards(&self) -> usize {
        self.ledgers.len()
    }

    pub(super) fn len(&self) -> usize {
        self.map.len()
    }

    /// The rows of each policy, with those of policies beyond [`MAX_NAMES`] under one name.
    pub(super) fn sizes(&self) -> Vec<(PolicyName, usize)> {
        const OTHERS: PolicyName = PolicyName::new("(others)");
        let mut sizes: HashMap<u32, (PolicyName, usize)> =
            locked(&self.names).iter().map(|(number, name)| (*number, (name.clone(), 0))).collect();
        let mut others = 0;
        for ledger in &self.ledgers {
            for (number, size) in locked(ledger).sizes() {
                *sizes.get_mut(&number).map_or(&mut others, |(_, sum)| sum) += size as usize;
            }
        }
        sizes.into_values().chain((others > 0).then_some((OTHERS, others))).collect()
    }

    /// Rows that were dropped before they were clear, and charges that were decided on overflow rows.
    pub(super) fn pressure(&self) -> (u64, u64) {
        self.ledgers
            .iter()
            .map(locked)
            .fold((0, 0), |(evicted, overflowed), ledger| (evicted + ledger.evicted, overflowed + ledger.overflowed))
    }

    fn remember_name(&self, number: u32, policy: &PolicyName) {
        let mut names = locked(&self.names);
        if names.len() < MAX_NAMES {
            names.entry(number).or_insert_with(|| policy.clone());
        }
    }
}

impl<'a> Shard<'a> {
    pub(super) fn ledger(&mut self) -> &mut Ledger {
        let Shard { table, number, ledger, .. } = self;
        ledger.get_or_insert_with(|| locked(&table.ledgers[*number]))
    }

    /// Where to put a row that does not exist yet.
    pub(super) fn place(
        &mut self,
        key: RowKey,
        row: &RowId<'_>,
        busy: &mut SmallVec<[RowKey; 2]>,
        now: Micros,
    ) -> Place {
        let policy = self.table.keys.number(row.policy);
        match self.room(policy, busy, now) {
            Room::Free => {
                self.coming += 1;
                Place::New(None)
            }
            Room::InPlaceOf(victim) => {
                busy.push(victim.row());
                Place::New(Some(victim))
            }
            Room::None => Place::Overflow(self.ledger().shared(policy, key, now)),
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.rows.len() >= self.table.rows_per_shard
    }

    pub(super) fn add(&mut self, key: RowKey, mut row: Row, policy: &PolicyName) {
        let number = row.policy;
        let full = self.table.rows_per_shard;
        if self.ledger().is_senior(number, full) {
            row.set_senior();
        }
        self.rows.add(key, row);
        if self.ledger().add(number) {
            self.table.remember_name(number, policy);
        }
    }

    /// Removes a row, and returns whether it was there.
    pub(super) fn remove(&mut self, key: RowKey) -> bool {
        let row = self.rows.remove(key);
        if let Some(row) = &row {
            self.ledger().subtract(row.policy);
        }
        row.is_some()
    }

    /// Drops a row that still counts, for the sake of another.
    pub(super) fn evict(&mut self, key: RowKey) {
        self.remove(key);
        self.remove(key.carry());
        self.ledger().evicted += 1;
    }

    /// Makes room for one more row of a policy; `false` if there is none.
    pub(super) fn make_room(&mut self, policy: u32, busy: &[RowKey], now: Micros) -> bool {
        let room = self.room(policy, busy, now);
        if let Room::InPlaceOf(victim) = room {
            self.evict(victim);
        }
        room != Room::None
    }

    /// Finds room for one more row of a policy, without touching the rows in `busy`.
    ///
    /// Each newcomer looks at a few rows and drops those that are clear. No timer or sweep is needed.
    /// In a full shard it looks on until it finds a row that makes room, or has seen enough.
    pub(super) fn room(&mut self, policy: u32, busy: &[RowKey], now: Micros) -> Room {
        let Shard { table, number, rows, ledger, coming } = self;
        let (full, coming) = (table.rows_per_shard, *coming);
        let ledger = ledger.get_or_insert_with(|| locked(&table.ledgers[*number]));
        let mut hand = ledger.hand;
        let (mut clear, mut orphan): (SmallVec<[RowKey; 16]>, _) = (SmallVec::new(), None);
        let mut victim = Victim::new(ledger, policy, full, now);
        for _ in 0..MAX_LOOKS {
            rows.sample(&mut hand, |key, row| {
                if busy.contains(&key.row()) || clear.contains(&key) {
                    return;
                }
                match key.is_carry() {
                    _ if row.is_clear(now) => clear.push(key),
                    false => victim.consider(key, &row),
                    // A carry row whose row is gone.
                    true if rows.get(key.row()).is_none() => orphan = Some(key),
                    true => {}
                }
            });
            if rows.len() + coming < full + clear.len() || orphan.is_some() || victim.is_found() {
                break;
            }
        }
        let victim = orphan.or(victim.key());
        ledger.hand = hand;
        clear.into_iter().for_each(|key| _ = self.remove(key));
        match victim {
            _ if self.rows.len() + coming < full => Room::Free,
            Some(key) => Room::InPlaceOf(key),
            None => Room::None,
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Small shards keep each growth short: it moves all rows of a shard.
const ROWS_PER_SHARD: usize = 4096;
const MIN_SHARDS: usize = 4;
/// Policies whose rows are counted by name.
const MAX_NAMES: usize = 1024;
/// Samples of three or four rows each that a newcomer takes of a full shard.
const MAX_LOOKS: u32 = 8;
