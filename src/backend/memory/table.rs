//! The table of rows: shards with a lock each, and room made for newcomers as they come.

use super::lock::{Guard, Lock};
use super::row::{Row, Slot};
use super::shard::Shard;
use super::worth::Worth;
use crate::algorithm::Micros;

pub(super) struct Table {
    /// A power of two.
    shards: Box<[Lock<Shard>]>,
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
        let shards = (max_rows / ROWS_PER_SHARD).next_power_of_two().clamp(FEWEST_SHARDS, Slot::MOST_SHARDS);
        Table {
            shards: (0..shards).map(|_| Lock::new(Shard::default())).collect(),
            rows_per_shard: (max_rows / shards).max(1),
            worth: Worth::new(),
        }
    }

    /// The number of the shard in which a slot lies.
    #[inline(always)]
    pub(super) fn shard_of(&self, slot: Slot) -> usize {
        slot.shard(self.shards.len())
    }

    /// Locks a shard. Whoever locks several does it in the order of their numbers.
    #[inline(always)]
    pub(super) fn lock(&self, shard: usize) -> Guard<'_, Shard> {
        self.shards[shard].lock()
    }

    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
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
    pub(super) fn room(&self, shard: &mut Shard, coming: usize, busy: &[Slot], now: Micros) -> Room {
        let places = shard.places();
        let mut place = if shard.hand < places { shard.hand } else { 0 };
        let (mut looked, mut seen) = (0, 0);
        let mut least: Option<(f64, Slot)> = None;
        while looked < places && (looked < LOOK_AT || (seen < COMPARE && looked < LOOK_FURTHEST)) {
            let here = place;
            looked += 1;
            place = if place + 1 < places { place + 1 } else { 0 };
            let Some((slot, row)) = shard.at_place(here) else { continue };
            if busy.contains(&slot.without_twin()) {
                continue;
            }
            if self.is_worthless(slot, &row, now) {
                shard.remove(slot);
                place = here; // Another may have moved up to here.
                continue;
            }
            seen += 1;
            if slot.is_twin() {
                // It goes with its row. Of a row that is gone, it is worth less than any.
                if shard.find(slot.without_twin()).is_none() {
                    least = Some((0.0, slot));
                }
                continue;
            }
            let mut spent = row.spent();
            if row.has_twin() && self.worth.twins_spend(&row) {
                spent += shard.find(slot.twin()).map_or(0.0, |twin| twin.spent());
            }
            if let Some(share) = self.worth.share(&row, spent, now) {
                if least.is_none_or(|(other, _)| share < other) {
                    least = Some((share, slot));
                }
            }
        }
        shard.hand = place;
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

/// Small shards keep each growth short: a thousand rows are moved in some ten microseconds.
const ROWS_PER_SHARD: usize = 4096;
const FEWEST_SHARDS: usize = 4;
/// Places that every newcomer looks at.
const LOOK_AT: usize = 8;
/// Rows to compare before one of them has to go.
const COMPARE: usize = 5;
/// Places after which a newcomer gives up looking for that many.
const LOOK_FURTHEST: usize = 64;
