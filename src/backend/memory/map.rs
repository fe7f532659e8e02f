//! The rows in a [`DashMap`]: everything that depends on its `raw-api`.
//!
//! A call holds the locks of all its shards, and room is made by looking at a few rows of a shard: the map's own methods
//! offer neither. DashMap 7 has another raw interface; only this file will change.

use dashmap::{DashMap, RwLockWriteGuard, SharedValue};
use hashbrown::raw::RawTable;

use super::row::{Row, RowKey};

/// Rows are looked up by their place. DashMap's own hasher is never used.
pub(super) struct Map(DashMap<RowKey, Row>);

/// The rows of one shard, locked.
pub(super) struct Rows<'a>(RwLockWriteGuard<'a, RawTable<(RowKey, SharedValue<Row>)>>);

impl Map {
    /// With so many shards, a power of two from 2 to [`RowKey::MAX_SHARDS`].
    pub(super) fn new(shards: usize) -> Map {
        Map(DashMap::with_shard_amount(shards))
    }

    #[inline]
    pub(super) fn shard_of(&self, key: RowKey) -> usize {
        self.0.determine_shard(key.place() as usize)
    }

    /// Locks a shard. A caller that locks several takes them in ascending order.
    #[inline]
    pub(super) fn lock(&self, shard: usize) -> Rows<'_> {
        Rows(self.0.shards()[shard].write())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
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
        self.0.get(key.place(), |(other, _)| *other == key).map(|(_, row)| *row.get())
    }

    #[inline]
    pub(super) fn get_mut(&mut self, key: RowKey) -> Option<&mut Row> {
        self.0.get_mut(key.place(), |(other, _)| *other == key).map(|(_, row)| row.get_mut())
    }

    /// Adds a row that is not there yet.
    pub(super) fn add(&mut self, key: RowKey, row: Row) {
        self.0.insert(key.place(), (key, SharedValue::new(row)), |(key, _)| key.place());
    }

    pub(super) fn remove(&mut self, key: RowKey) -> Option<Row> {
        self.0.remove_entry(key.place(), |(other, _)| *other == key).map(|(_, row)| *row.get())
    }

    /// Passes a few rows to `see`, others at every call: `hand` remembers where the next one begins. They are a quarter
    /// of the rows in a group of 16 slots, so four times as many calls as there are groups see all rows, some of them
    /// twice.
    pub(super) fn sample(&self, hand: &mut u32, mut see: impl FnMut(RowKey, Row)) {
        let groups = (self.0.buckets() / GROUP).max(1) as u32;
        *hand = (*hand + 1) % (groups * QUARTERS);
        let (group, quarter) = (*hand / QUARTERS, *hand % QUARTERS);
        // A lookup compares the rows of a group whose seven-bit tag is that of the hash. So a lookup by each tag, which
        // finds nothing, sees them all.
        for tag in quarter * TAGS / QUARTERS..(quarter + 1) * TAGS / QUARTERS {
            let hash = (u64::from(tag) << 59) + u64::from(group) * GROUP as u64;
            self.0.get(hash, |(key, row)| {
                see(*key, *row.get());
                false
            });
        }
    }
}

/// Slots that hashbrown compares at once, at most.
const GROUP: usize = 16;
/// Of the tags, a [`RowKey`] uses every fourth.
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
            let (mut seen, mut most, mut hand) = (HashSet::new(), 0, 7);
            for _ in 0..(shard.0.buckets() / GROUP).max(1) * QUARTERS as usize {
                let mut here = 0;
                shard.sample(&mut hand, |key, _| {
                    here += 1;
                    seen.insert(key);
                });
                most = most.max(here);
            }
            assert_eq!(seen, keys);
            assert!(most < 64, "{most} rows at once");
        }
    }

    #[test]
    fn what_was_added_to_a_shard_is_found_there() {
        let map = Map::new(16);
        for i in 0..1000_u64 {
            let key = RowKey::new(i.wrapping_mul(0x9e37_79b9_7f4a_7c15), i as u32);
            map.lock(map.shard_of(key)).add(key, Row::new(&State::default(), i as u32));
            assert!(map.lock(map.shard_of(key)).get(key).is_some());
        }
        assert_eq!(map.len(), 1000);
    }

    #[test]
    fn a_row_with_its_key_takes_40_bytes() {
        assert_eq!(size_of::<(RowKey, SharedValue<Row>)>(), 40);
    }
}
