//! The map of rows in models: ordinary maps behind the model checker's locks instead of a DashMap.

use std::collections::BTreeMap;

use super::row::{Row, RowKey};
use crate::sync::{Mutex, MutexGuard, PoisonError};

pub(super) struct Map(Box<[Mutex<BTreeMap<u128, Row>>]>);

pub(super) struct Rows<'a>(MutexGuard<'a, BTreeMap<u128, Row>>);

impl Map {
    pub(super) fn new(shards: usize) -> Map {
        Map((0..shards).map(|_| Mutex::default()).collect())
    }

    pub(super) fn shard_of(&self, key: RowKey) -> usize {
        ((key.hash() << 7) >> (64 - self.0.len().trailing_zeros())) as usize
    }

    pub(super) fn lock(&self, shard: usize) -> Rows<'_> {
        Rows(self.0[shard].lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn len(&self) -> usize {
        (0..self.0.len()).map(|shard| self.lock(shard).len()).sum()
    }
}

impl Map {
    pub(super) fn rows(&self) -> Vec<(RowKey, Row)> {
        let copied = |shard| {
            let rows = self.lock(shard);
            rows.0.iter().map(|(bits, row)| (RowKey::from_bits(*bits), *row)).collect::<Vec<_>>()
        };
        (0..self.0.len()).flat_map(copied).collect()
    }
}

impl Rows<'_> {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn capacity(&self) -> usize {
        self.0.len()
    }

    pub(super) fn get(&self, key: RowKey) -> Option<Row> {
        self.0.get(&key.to_bits()).copied()
    }

    pub(super) fn get_mut(&mut self, key: RowKey) -> Option<&mut Row> {
        self.0.get_mut(&key.to_bits())
    }

    pub(super) fn add(&mut self, key: RowKey, row: Row) {
        self.0.insert(key.to_bits(), row);
    }

    pub(super) fn remove(&mut self, key: RowKey) -> Option<Row> {
        self.0.remove(&key.to_bits())
    }

    pub(super) fn sample(&self, _: &mut u32, mut see: impl FnMut(RowKey, Row)) {
        self.0.iter().for_each(|(bits, row)| see(RowKey::from_bits(*bits), *row));
    }
}
