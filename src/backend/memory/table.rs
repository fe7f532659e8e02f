//! The table of rows: a DashMap whose shards are locked by hand, with room made for newcomers as they come.

use dashmap::SharedValue;
use hashbrown::raw::RawTable;

use super::row::{AsIs, Row, Slot};
use super::worth::Worth;
use crate::algorithm::Micros;
use crate::sync::atomic::{AtomicUsize, Ordering};

#[cfg(tollgate_models)]
use super::stand_in::Map;
#[cfg(tollgate_models)]
pub(super) use crate::sync::RwLockWriteGuard;
#[cfg(not(tollgate_models))]
pub(super) use dashmap::RwLockWriteGuard;

#[cfg(not(tollgate_models))]
type Map = dashmap::DashMap<Slot, Row, AsIs>;

/// A shard's rows.
pub(super) type Shard = RawTable<(Slot, SharedValue<Row>)>;

pub(super) struct Table {
    map: Map,
    /// For each shard, where the last newcomer stopped looking for worthless rows.
    hands: Box<[AtomicUsize]>,
    rows_per_shard: usize,
    pub(super) worth: Worth,
}

/// Whether a newcomer has a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    Free,
    /// In exchange for this row, which is worth least of a few.
    InPlaceOf(Slot),
    /// All rows looked at are denying their keys, and stay.
    None,
}

impl Table {
    pub(super) fn new(max_rows: usize) -> Table {
        let shards = (max_rows / ROWS_PER_SHARD).next_power_of_two().clamp(FEWEST_SHARDS, MOST_SHARDS);
        Table {
            map: Map::with_hasher_and_shard_amount(AsIs::default(), shards),
            hands: (0..shards).map(|_| AtomicUsize::new(0)).collect(),
            rows_per_shard: (max_rows / shards).max(1),
            worth: Worth::new(),
        }
    }

    /// The number of the shard in which a slot lies.
    pub(super) fn shard_of(&self, slot: Slot) -> usize {
        self.map.determine_shard(slot.hash() as usize)
    }

    /// Locks a shard. Whoever locks several does it in the order of their numbers.
    pub(super) fn lock(&self, shard: usize) -> RwLockWriteGuard<'_, Shard> {
        self.map.shards()[shard].write()
    }

    pub(super) fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether a shard has all the rows that it may have.
    pub(super) fn is_full(&self, shard: &Shard) -> bool {
        shard.len() >= self.rows_per_shard
    }

    /// Finds a place for one more row beside `coming` others, none of those in `busy` to be touched.
    ///
    /// Every newcomer looks at a few rows beside the hand and drops the worthless ones among them: so there is no
    /// timer, no sweep and no pause, and a worthless row is found after at most as many newcomers as its shard has
    /// rows.
    pub(super) fn room(&self, shard: &mut Shard, number: usize, coming: usize, busy: &[Slot], now: Micros) -> Room {
        let places = shard.buckets();
        let hand = self.hands[number].load(Ordering::Relaxed) % places.max(1);
        let (mut looked, mut seen) = (0, 0);
        let mut least: Option<(f64, Slot)> = None;
        while looked < places && (looked < LOOK_AT || (seen < COMPARE && looked < LOOK_FURTHEST)) {
            let Some((slot, row)) = at_place(shard, (hand + looked) % places) else {
                looked += 1;
                continue;
            };
            looked += 1;
            if busy.contains(&slot.without_twin()) {
                continue;
            }
            if self.is_worthless(slot, &row, now) {
                remove(shard, slot);
                continue;
            }
            seen += 1;
            if slot.is_twin() {
                // It goes with its row. Of a row that is gone, it is worth less than any.
                if find(shard, slot.without_twin()).is_none() {
                    least = Some((0.0, slot));
                }
                continue;
            }
            let mut spent = row.spent();
            if row.has_twin() && self.worth.twins_spend(&row) {
                spent += find(shard, slot.twin()).map_or(0.0, |twin| twin.spent());
            }
            if let Some(share) = self.worth.share(&row, spent, now) {
                if least.is_none_or(|(other, _)| share < other) {
                    least = Some((share, slot));
                }
            }
        }
        self.hands[number].store(hand + looked, Ordering::Relaxed);
        match least {
            _ if shard.len() + coming < self.rows_per_shard => Room::Free,
            Some((_, slot)) => Room::InPlaceOf(slot),
            None => Room::None,
        }
    }

    fn is_worthless(&self, slot: Slot, row: &Row, now: Micros) -> bool {
        if slot.is_twin() { row.at() <= now } else { self.worth.is_worthless(row, now) }
    }
}

pub(super) fn find(shard: &Shard, slot: Slot) -> Option<Row> {
    shard.get(slot.hash(), |(other, _)| *other == slot).map(|(_, row)| *row.get())
}

pub(super) fn find_mut(shard: &mut Shard, slot: Slot) -> Option<&mut Row> {
    shard.get_mut(slot.hash(), |(other, _)| *other == slot).map(|(_, row)| row.get_mut())
}

pub(super) fn put(shard: &mut Shard, slot: Slot, row: Row) {
    if let Some(place) = find_mut(shard, slot) {
        *place = row;
    } else {
        shard.insert_entry(slot.hash(), (slot, SharedValue::new(row)), |(slot, _)| slot.hash());
    }
}

pub(super) fn remove(shard: &mut Shard, slot: Slot) {
    shard.remove_entry(slot.hash(), |(other, _)| *other == slot);
}

/// The row at a place of the shard, if there is one. A shard has no safe way to be walked from somewhere in its middle.
#[allow(unsafe_code)]
fn at_place(shard: &Shard, place: usize) -> Option<(Slot, Row)> {
    if place >= shard.buckets() || shard.is_empty() {
        return None;
    }
    // SAFETY: `place` is less than `buckets()`, and as the table is not empty it has been allocated. A full bucket
    // holds an initialised entry; it is copied out while the shard is borrowed, so nothing can change or free it
    // meanwhile.
    unsafe {
        if !shard.is_bucket_full(place) {
            return None;
        }
        let (slot, row) = shard.bucket(place).as_ref();
        Some((*slot, *row.get()))
    }
}

/// Small shards keep each growth short: a thousand rows are moved in some ten microseconds.
const ROWS_PER_SHARD: usize = 4096;
const FEWEST_SHARDS: usize = 4;
/// Their locks and headers fill 128 KiB, a good part of a core's own cache.
const MOST_SHARDS: usize = 1024;
/// Places that every newcomer looks at.
const LOOK_AT: usize = 8;
/// Rows to compare before one of them has to go.
const COMPARE: usize = 5;
/// Places after which a newcomer gives up looking for that many.
const LOOK_FURTHEST: usize = 64;
