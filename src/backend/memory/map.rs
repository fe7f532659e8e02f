//! The map of rows. Only this module uses [`DashMap`]'s `raw-api` feature.

use dashmap::{DashMap, RwLockWriteGuard, SharedValue};
use hashbrown::raw::RawTable;

use super::row::{Row, RowKey};

/// A map that uses [`RowKey::hash`] instead of DashMap's hasher.
pub(super) struct Map(DashMap<RowKey, Row>);

pub(super) struct Rows<'a>(RwLockWriteGuard<'a, RawTable<(RowKey, SharedValue<Row>)>>);

impl Map {
    /// `shards` must be a power of two from 2 to [`RowKey::MAX_SHARDS`].
    pub(super) fn new(shards: usize) -> Map {
        Map(DashMap::with_shard_amount(shards))
    }

    #[inline]
    pub(super) fn shard_of(&self, key: RowKey) -> usize {
        self.0.determine_shard(key.hash() as usize)
    }

    #[inline]
    pub(super) fn lock(&self, shard: usize) -> Rows<'_> {
        Rows(self.0.shards()[shard].write())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns copies of all rows. Locks one shard at a time.
    pub(super) fn rows(&self) -> Vec<(RowKey, Row)> {
        let mut rows = Vec::with_capacity(self.len());
        rows.extend(self.0.iter().map(|row| (*row.key(), *row.value())));
        rows
    }
}

impl Rows<'_> {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.0.buckets()
    }

    pub(super) fn get(&self, key: RowKey) -> Option<Row> {
        self.0.get(key.hash(), |(other, _)| *other == key).map(|(_, row)| *row.get())
    }

    #[inline]
    pub(super) fn get_mut(&mut self, key: RowKey) -> Option<&mut Row> {
        self.0.get_mut(key.hash(), |(other, _)| *other == key).map(|(_, row)| row.get_mut())
    }

    pub(super) fn add(&mut self, key: RowKey, row: Row) {
        self.0.insert(key.hash(), (key, SharedValue::new(row)), |(key, _)| key.hash());
    }

    pub(super) fn remove(&mut self, key: RowKey) -> Option<Row> {
        self.0.remove_entry(key.hash(), |(other, _)| *other == key).map(|(_, row)| *row.get())
    }

    /// Passes about a quarter of the rows in a group of slots to `see`. Four calls per group visit every row, and some
    /// rows twice.
    pub(super) fn sample(&self, cursor: &mut u32, mut see: impl FnMut(RowKey, Row)) {
        let groups = (self.0.buckets() / GROUP).max(1) as u32;
        *cursor = (*cursor + 1) % (groups * QUARTERS);
        let (group, quarter) = (*cursor / QUARTERS, *cursor % QUARTERS);
        // A lookup examines the rows of the group that have the hash's tag. If the group has no empty slot, it also
        // examines the next groups. Together, the tags cover every row.
        for tag in quarter * TAGS / QUARTERS..(quarter + 1) * TAGS / QUARTERS {
            let hash = (u64::from(tag) << 59) + u64::from(group) * GROUP as u64;
            self.0.get(hash, |(key, row)| {
                see(*key, *row.get());
                false
            });
        }
    }
}

/// The maximum number of slots that hashbrown compares at once.
const GROUP: usize = 16;
/// The number of tags that a [`RowKey`] can have: a quarter of hashbrown's 128.
const TAGS: u32 = 32;
const QUARTERS: u32 = 4;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::algorithm::State;

    #[test]
    fn a_round_of_samples_sees_every_row() {
        for rows in [0, 1, 3, 13, 100, 3000] {
            let map = Map::new(2);
            let mut shard = map.lock(0);
            let keys: HashSet<RowKey> =
                (0..rows).map(|i: u64| RowKey::new(i.wrapping_mul(0x9e37_79b9_7f4a_7c15), 0)).collect();
            keys.iter().for_each(|key| shard.add(*key, Row::new(&State::default(), 1)));
            let (mut seen, mut most, mut cursor) = (HashSet::new(), 0, 7);
            for _ in 0..(shard.0.buckets() / GROUP).max(1) * QUARTERS as usize {
                let mut here = 0;
                shard.sample(&mut cursor, |key, _| {
                    here += 1;
                    seen.insert(key);
                });
                most = most.max(here);
            }
            assert_eq!(seen, keys);
            assert!(most < 64, "one sample contained {most} rows");
        }
    }

    #[test]
    fn an_added_row_is_found_in_its_shard() {
        let map = Map::new(16);
        for i in 0..1000_u64 {
            let key = RowKey::new(i.wrapping_mul(0x9e37_79b9_7f4a_7c15), i as u32);
            map.lock(map.shard_of(key)).add(key, Row::new(&State::default(), i as u32));
            assert!(map.lock(map.shard_of(key)).get(key).is_some());
        }
        assert_eq!(map.len(), 1000);
    }

    #[test]
    fn a_row_and_its_key_take_40_bytes() {
        assert_eq!(size_of::<(RowKey, SharedValue<Row>)>(), 40);
    }
}
