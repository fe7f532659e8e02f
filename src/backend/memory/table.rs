//! The table of rows, divided into shards with one lock each. Evicts rows when new rows need slots.

use std::collections::HashMap;

use smallvec::SmallVec;

use super::call::Location;
use super::ledger::{Ledger, Victim};
use super::map::{Map, Rows};
use super::row::{Row, RowHasher, RowKey};
use crate::algorithm::Micros;
use crate::backend::RowId;
use crate::policy::PolicyName;
use crate::sync::{Mutex, MutexGuard, PoisonError};

pub(super) struct Table {
    map: Map,
    /// One ledger per shard. A shard must be locked before its ledger.
    ledgers: Box<[Mutex<Ledger>]>,
    rows_per_shard: usize,
    hasher: RowHasher,
    /// The names of the first [`MAX_NAMES`] policies that had rows, by number. This lock is taken last.
    names: Mutex<HashMap<u32, PolicyName>>,
}

pub(super) struct Shard<'a> {
    table: &'a Table,
    pub(super) number: usize,
    pub(super) rows: Rows<'a>,
    /// Locked on first use. Calls whose rows all exist do not use it.
    ledger: Option<MutexGuard<'a, Ledger>>,
    /// The number of the call's new rows that have a free slot but have not been added yet.
    pub(super) incoming: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Vacancy {
    Free,
    Evict(RowKey),
    None,
}

impl Table {
    pub(super) fn new(max_rows: usize, hasher: RowHasher) -> Table {
        let shards = (max_rows / ROWS_PER_SHARD).next_power_of_two().clamp(MIN_SHARDS, RowKey::MAX_SHARDS);
        Table {
            map: Map::new(shards),
            ledgers: (0..shards).map(|_| Mutex::default()).collect(),
            rows_per_shard: (max_rows / shards).max(1),
            hasher,
            names: Mutex::default(),
        }
    }

    pub(super) fn hasher(&self) -> &RowHasher {
        &self.hasher
    }

    #[inline]
    pub(super) fn shard_of(&self, key: RowKey) -> usize {
        self.map.shard_of(key)
    }

    /// Locks a shard. A caller that locks several shards must lock them in ascending order.
    pub(super) fn lock(&self, shard: usize) -> Shard<'_> {
        Shard { table: self, number: shard, rows: self.map.lock(shard), ledger: None, incoming: 0 }
    }

    #[cfg(test)]
    pub(super) fn shards(&self) -> usize {
        self.ledgers.len()
    }

    pub(super) fn len(&self) -> usize {
        self.map.len()
    }

    /// Policies beyond [`MAX_NAMES`] are combined under one name.
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

    /// Returns the number of rows evicted before they expired, and the number of charges to overflow rows.
    pub(super) fn pressure(&self) -> (u64, u64) {
        self.ledgers
            .iter()
            .map(locked)
            .fold((0, 0), |(evicted, overflowed), ledger| (evicted + ledger.evicted, overflowed + ledger.overflowed))
    }

    pub(super) fn rows(&self) -> Vec<(RowKey, Row)> {
        self.map.rows()
    }

    pub(super) fn names(&self) -> Vec<(u32, PolicyName)> {
        locked(&self.names).iter().map(|(number, name)| (*number, name.clone())).collect()
    }

    pub(super) fn remember_name(&self, number: u32, policy: &PolicyName) {
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

    pub(super) fn locate(
        &mut self,
        key: RowKey,
        row: &RowId<'_>,
        pinned: &mut SmallVec<[RowKey; 2]>,
        now: Micros,
    ) -> Location {
        let policy = self.table.hasher.number(row.policy);
        match self.find_slot(policy, pinned, now) {
            Vacancy::Free => {
                self.incoming += 1;
                Location::New(None)
            }
            Vacancy::Evict(victim) => {
                pinned.push(victim.row());
                Location::New(Some(victim))
            }
            Vacancy::None => Location::Overflow(self.ledger().overflow_id(policy, key, now)),
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.rows.len() >= self.table.rows_per_shard
    }

    pub(super) fn add(&mut self, key: RowKey, row: Row, policy: &PolicyName) {
        if self.add_unnamed(key, row) {
            self.table.remember_name(row.policy, policy);
        }
    }

    /// Adds a row, but not its policy's name. Returns whether the row is the first of its policy in this shard.
    pub(super) fn add_unnamed(&mut self, key: RowKey, mut row: Row) -> bool {
        let number = row.policy;
        let capacity = self.table.rows_per_shard;
        if self.ledger().is_senior(number, capacity) {
            row.set_senior();
        }
        self.rows.add(key, row);
        self.ledger().add(number)
    }

    pub(super) fn remove(&mut self, key: RowKey) -> bool {
        let row = self.rows.remove(key);
        if let Some(row) = &row {
            self.ledger().subtract(row.policy);
        }
        row.is_some()
    }

    pub(super) fn remove_with_carry(&mut self, key: RowKey) -> bool {
        self.remove(key.carry());
        self.remove(key)
    }

    pub(super) fn evict(&mut self, key: RowKey) {
        self.remove_with_carry(key);
        self.ledger().evicted += 1;
    }

    /// Evicts a row if a new row needs its slot. Returns whether there is a slot.
    pub(super) fn ensure_slot(&mut self, policy: u32, pinned: &[RowKey], now: Micros) -> bool {
        let vacancy = self.find_slot(policy, pinned, now);
        if let Vacancy::Evict(victim) = vacancy {
            self.evict(victim);
        }
        vacancy != Vacancy::None
    }

    /// Finds a slot for a new row. Samples a few rows, ignoring those in `pinned`, and drops the expired ones.
    pub(super) fn find_slot(&mut self, policy: u32, pinned: &[RowKey], now: Micros) -> Vacancy {
        let Shard { table, number, rows, ledger, incoming } = self;
        let (capacity, incoming) = (table.rows_per_shard, *incoming);
        let ledger = ledger.get_or_insert_with(|| locked(&table.ledgers[*number]));
        let mut cursor = ledger.cursor;
        let (mut expired, mut orphan): (SmallVec<[RowKey; 16]>, _) = (SmallVec::new(), None);
        let mut victim = Victim::new(ledger, policy, capacity, now);
        let mut sampled = 0;
        for sample in 0..4 * MAX_SAMPLES {
            if sample >= MAX_SAMPLES && sampled >= MIN_SAMPLED_ROWS {
                break;
            }
            rows.sample(&mut cursor, |key, row| {
                sampled += 1;
                if pinned.contains(&key.row()) || expired.contains(&key) {
                    return;
                }
                match key.is_carry() {
                    _ if row.is_expired(now) => expired.push(key),
                    false => victim.consider(key, &row),
                    // The row to which the carry row belongs was dropped.
                    true if rows.get(key.row()).is_none() => orphan = Some(key),
                    true => {}
                }
            });
            if rows.len() + incoming < capacity + expired.len() || orphan.is_some() || victim.is_best_found() {
                break;
            }
        }
        let victim = orphan.or(victim.key());
        ledger.cursor = cursor;
        expired.into_iter().for_each(|key| _ = self.remove(key));
        match victim {
            _ if self.rows.len() + incoming < capacity => Vacancy::Free,
            Some(key) => Vacancy::Evict(key),
            None => Vacancy::None,
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// When a shard grows, calls wait until all of its rows have been moved. Small shards keep this delay short.
const ROWS_PER_SHARD: usize = 4096;
const MIN_SHARDS: usize = 4;
const MAX_NAMES: usize = 1024;
/// The number of samples to take from a full shard. Each sample contains three or four rows.
const MAX_SAMPLES: u32 = 8;
/// The minimum number of rows to sample. In a small shard, a sample may consist of a single row that cannot be evicted.
const MIN_SAMPLED_ROWS: u32 = 8;
