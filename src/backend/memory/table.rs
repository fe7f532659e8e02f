//! The table of rows: shards with a lock each, and room that is made for newcomers as they come.

use std::collections::HashMap;

use dashmap::DashMap;
use smallvec::SmallVec;

use super::ledger::Ledger;
use super::map::{Map, Rows};
use super::row::{ByPlace, Keys, Row, RowKey};
use crate::algorithm::Micros;
use crate::policy::PolicyName;
use crate::sync::{Mutex, MutexGuard, PoisonError};

pub(super) struct Table {
    map: Map,
    /// One for each shard, locked after it.
    ledgers: Box<[Mutex<Ledger>]>,
    rows_per_shard: usize,
    keys: Keys,
    /// The names of the policies that have rows, by their numbers.
    names: DashMap<u32, PolicyName>,
}

/// A shard, locked for a call that may add rows to it.
pub(super) struct Shard<'a> {
    table: &'a Table,
    pub(super) rows: Rows<'a>,
    pub(super) ledger: MutexGuard<'a, Ledger>,
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
            names: DashMap::new(),
        }
    }

    pub(super) fn keys(&self) -> &Keys {
        &self.keys
    }

    #[inline]
    pub(super) fn shard_of(&self, key: RowKey) -> usize {
        self.map.shard_of(key)
    }

    /// Locks the rows of a shard, for a call that only needs one that is there.
    #[inline]
    pub(super) fn rows(&self, key: RowKey) -> Rows<'_> {
        self.map.lock(self.map.shard_of(key))
    }

    /// Locks a shard. A caller that locks several takes them in ascending order.
    pub(super) fn lock(&self, shard: usize) -> Shard<'_> {
        Shard { table: self, rows: self.map.lock(shard), ledger: locked(&self.ledgers[shard]) }
    }

    pub(super) fn len(&self) -> usize {
        self.map.len()
    }

    /// The rows of each policy, with those of policies beyond [`MAX_NAMES`] under one name.
    pub(super) fn sizes(&self) -> Vec<(PolicyName, usize)> {
        const OTHERS: PolicyName = PolicyName::new("(others)");
        let mut sizes: HashMap<u32, usize, ByPlace> = self.names.iter().map(|name| (*name.key(), 0)).collect();
        let mut others = 0;
        for ledger in &self.ledgers {
            for (number, size) in locked(ledger).sizes() {
                *sizes.get_mut(&number).unwrap_or(&mut others) += size as usize;
            }
        }
        let named = sizes.into_iter().filter_map(|(number, size)| Some((self.names.get(&number)?.clone(), size)));
        named.chain((others > 0).then_some((OTHERS, others))).collect()
    }

    /// Rows that were dropped before they were clear, and charges that were decided on overflow rows.
    pub(super) fn pressure(&self) -> (u64, u64) {
        self.ledgers.iter().map(locked).fold((0, 0), |(evicted, overflowed), ledger| {
            (evicted + ledger.evicted, overflowed + ledger.overflowed)
        })
    }

    fn remember_name(&self, number: u32, policy: &PolicyName) {
        if self.names.len() < MAX_NAMES && !self.names.contains_key(&number) {
            self.names.insert(number, policy.clone());
        }
    }
}

impl Shard<'_> {
    pub(super) fn is_full(&self) -> bool {
        self.rows.len() >= self.table.rows_per_shard
    }

    pub(super) fn add(&mut self, key: RowKey, mut row: Row, policy: &PolicyName) {
        let number = row.policy();
        if self.ledger.is_senior(number, self.table.rows_per_shard) {
            row.set_senior();
        }
        self.rows.add(key, row);
        if self.ledger.add(number) {
            self.table.remember_name(number, policy);
        }
    }

    pub(super) fn remove(&mut self, key: RowKey) {
        if let Some(row) = self.rows.remove(key) {
            self.ledger.subtract(row.policy());
        }
    }

    /// Drops a row that still counts, for the sake of another.
    pub(super) fn evict(&mut self, key: RowKey) {
        self.remove(key);
        self.remove(key.carry());
        self.ledger.evicted += 1;
    }

    /// Finds room for one more row of a policy beside `coming` others, without touching the rows in `busy`.
    ///
    /// Every newcomer looks at a few rows and drops those that are clear: so there is no timer, no sweep and no pause.
    pub(super) fn room(&mut self, policy: u32, coming: usize, busy: &[RowKey], now: Micros) -> Room {
        let full = self.table.rows_per_shard;
        let is_crowded = self.rows.len() + coming >= full - full / 8;
        let mut rows: SmallVec<[(RowKey, Row); 48]> = SmallVec::new();
        let quarters = if is_crowded { LOOKS_CROWDED } else { LOOKS };
        self.rows.sample(&mut self.ledger.hand, quarters, |key, row| {
            if !busy.contains(&key.row()) {
                rows.push((key, row));
            }
        });
        let mut orphan = None;
        rows.retain(|(key, row)| {
            if row.is_clear(now) {
                self.remove(*key);
                return false;
            }
            // A carry row goes with its row. One whose row is gone is worth less than any row.
            if key.is_carry() && self.rows.get(key.row()).is_none() {
                orphan = Some(*key);
            }
            !key.is_carry()
        });
        if self.rows.len() + coming < full {
            return Room::Free;
        }
        orphan.or_else(|| self.ledger.victim(policy, &rows, full, now)).map_or(Room::None, Room::InPlaceOf)
    }
}

fn locked(ledger: &Mutex<Ledger>) -> MutexGuard<'_, Ledger> {
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Small shards keep each growth short: it moves all rows of a shard.
const ROWS_PER_SHARD: usize = 4096;
const MIN_SHARDS: usize = 4;
/// Policies whose rows are counted by name.
const MAX_NAMES: usize = 1024;
/// Quarters of a group of 16 slots at which a newcomer looks, and once the shard is seven eighths full.
const LOOKS: u32 = 1;
const LOOKS_CROWDED: u32 = 12;
