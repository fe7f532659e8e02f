//! The rows of a shard: slot and row side by side in one array, two of them on a cache line.
//!
//! A row lies at its slot's home, or as soon after it as there was a place (linear probing), so that a lookup in a table
//! that is larger than the caches waits for memory once. What is removed leaves no mark: those behind it move up. The array
//! grows by a quarter, so that it is never less than five eighths full once it is large.

use super::row::{Row, Slot};

#[derive(Default)]
pub(super) struct Shard {
    places: Box<[Place]>,
    rows: usize,
    /// Where the last newcomer stopped looking for worthless rows.
    pub(super) hand: usize,
}

/// Never across the end of a cache line.
#[derive(Clone, Copy)]
#[repr(align(32))]
struct Place {
    slot: Slot,
    row: Row,
}

impl Shard {
    /// Rows, twins among them.
    pub(super) fn len(&self) -> usize {
        self.rows
    }

    /// Places for rows, taken or not.
    pub(super) fn places(&self) -> usize {
        self.places.len()
    }

    /// What lies at a place.
    pub(super) fn at_place(&self, place: usize) -> Option<(Slot, Row)> {
        self.places.get(place).filter(|place| place.slot != Slot::NONE).map(|place| (place.slot, place.row))
    }

    pub(super) fn find(&self, slot: Slot) -> Option<Row> {
        self.search(slot).ok().map(|place| self.places[place].row)
    }

    #[inline(always)]
    pub(super) fn find_mut(&mut self, slot: Slot) -> Option<&mut Row> {
        let place = self.search(slot).ok()?;
        Some(&mut self.places[place].row)
    }

    pub(super) fn put(&mut self, slot: Slot, row: Row) {
        match self.search(slot) {
            Ok(place) => self.places[place].row = row,
            Err(free) => {
                let is_room = self.rows < most_rows(self.places.len());
                let free = if is_room { free } else { self.grow(slot) };
                self.places[free] = Place { slot, row };
                self.rows += 1;
            }
        }
    }

    pub(super) fn remove(&mut self, slot: Slot) {
        let Ok(mut hole) = self.search(slot) else { return };
        let mut place = hole;
        loop {
            place = self.after(place);
            let candidate = self.places[place].slot;
            if candidate == Slot::NONE {
                break;
            }
            // It may move up to the hole unless its home lies behind that.
            let home = candidate.home(self.places.len());
            let (to_hole, to_place) = (self.distance(home, hole), self.distance(home, place));
            if to_hole < to_place {
                self.places[hole] = self.places[place];
                hole = place;
            }
        }
        self.places[hole] = Place::EMPTY;
        self.rows -= 1;
    }

    /// The place where a slot lies, or the free one where it would.
    #[inline(always)]
    fn search(&self, slot: Slot) -> Result<usize, usize> {
        let mut place = slot.home(self.places.len());
        // One at least is free, so this ends; unless there are none, which is when there is nothing to get.
        while let Some(found) = self.places.get(place) {
            if found.slot == slot {
                return Ok(place);
            }
            if found.slot == Slot::NONE {
                return Err(place);
            }
            place = self.after(place);
        }
        Err(0)
    }

    /// Makes room; the free place for a slot that is still to come.
    #[cold]
    fn grow(&mut self, coming: Slot) -> usize {
        let places = self.places.len();
        let more = if places < FINE { places.max(FEWEST) } else { places / 4 };
        let grown = vec![Place::EMPTY; places + more].into_boxed_slice();
        for place in std::mem::replace(&mut self.places, grown) {
            if place.slot != Slot::NONE {
                if let Err(free) = self.search(place.slot) {
                    self.places[free] = place;
                }
            }
        }
        self.search(coming).unwrap_or_else(|free| free)
    }

    fn after(&self, place: usize) -> usize {
        if place + 1 < self.places.len() { place + 1 } else { 0 }
    }

    /// Places from one to the other, onwards.
    fn distance(&self, from: usize, to: usize) -> usize {
        if to >= from { to - from } else { to + self.places.len() - from }
    }
}

impl Place {
    const EMPTY: Place = Place { slot: Slot::NONE, row: Row::EMPTY };
}

/// Searches get longer the fuller it is: at thirteen sixteenths a lookup looks at three places, and a newcomer at fourteen.
fn most_rows(places: usize) -> usize {
    places * 13 / 16
}

/// Places of the first rows.
const FEWEST: usize = 4;
/// Fewer places than this are doubled.
const FINE: usize = 64;

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::super::row::QuotaId;
    use super::*;
    use crate::algorithm::Micros;
    use crate::policy::{Key, KeyHash};

    fn row(number: u64) -> Row {
        Row::new(number as f64, Micros::new(number), QuotaId::new(0), false)
    }

    /// Every slot lies where a search finds it, and nothing else does.
    fn check(shard: &Shard, model: &HashMap<u128, u64>, slots: &[(u128, Slot)]) {
        assert_eq!(shard.len(), model.len());
        assert!(shard.len() <= most_rows(shard.places()));
        for (id, slot) in slots {
            assert_eq!(shard.find(*slot), model.get(id).map(|number| row(*number)), "{id:x}");
        }
        let lying = (0..shard.places()).filter_map(|place| shard.at_place(place)).count();
        assert_eq!(lying, model.len());
    }

    #[test]
    fn it_is_a_map_whatever_is_put_and_removed() {
        // Few homes, so that rows crowd there, across the end of the array too.
        let mut dice = 7_u64;
        let mut roll = |sides: u64| {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (dice >> 33) % sides
        };
        for homes in [1, 3, 50, 1 << 31] {
            let slots: Vec<(u128, Slot)> = (0..200)
                .map(|i: u128| {
                    let home = u32::MAX - (roll(homes) * ((1 << 31) / homes)) as u32;
                    (i, Slot::new(i << 70 | u128::from(home)))
                })
                .collect();
            let (mut shard, mut model) = (Shard::default(), HashMap::new());
            check(&shard, &model, &slots);
            for step in 0..4000 {
                let (id, slot) = slots[roll(200) as usize];
                // More come than go at first, and then the other way round.
                if roll(10) < if step < 2000 { 7 } else { 3 } {
                    shard.put(slot, row(step));
                    model.insert(id, step);
                } else {
                    shard.remove(slot);
                    model.remove(&id);
                }
                if step % 16 == 0 {
                    check(&shard, &model, &slots);
                }
            }
        }
    }

    #[test]
    fn a_row_takes_from_39_to_51_bytes_in_a_large_array() {
        assert_eq!((size_of::<Place>(), align_of::<Place>()), (32, 32));
        let mut shard = Shard::default();
        for number in 1..100_000_u64 {
            let slot = Slot::new(u128::from(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
            shard.put(slot, row(number));
            let bytes = shard.places() * size_of::<Place>() / shard.len();
            assert!(shard.len() < 100 || (39..=51).contains(&bytes), "{} rows: {bytes}", shard.len());
        }
    }

    #[test]
    fn rows_of_keys_of_a_pattern_lie_as_near_their_homes_as_others() {
        let patterns: [fn(u64) -> Key; 3] = [Key::from, |i| Key::from(i << 40), |i| Key::from(format!("user-{i:06}"))];
        for pattern in patterns {
            let hash = KeyHash::own();
            let mut shards: [Shard; 16] = std::array::from_fn(|_| Shard::default());
            for number in 0..32_000 {
                let slot = Slot::new(hash.digest(&pattern(number)).to_bits());
                shards[slot.shard(16)].put(slot, row(number));
            }
            for shard in &shards {
                assert!((1500..2500).contains(&shard.len()), "{} of 2000", shard.len());
                let lying = (0..shard.places()).filter_map(|place| Some((place, shard.at_place(place)?.0)));
                let far = lying.map(|(place, slot)| shard.distance(slot.home(shard.places()), place)).sum::<usize>();
                // About two at thirteen sixteenths, in theory and for random numbers.
                assert!(far < 5 * shard.len(), "{far} places from home, of {} rows", shard.len());
            }
        }
    }

    #[test]
    fn twins_lie_in_the_shard_of_their_rows() {
        let slot = Slot::new(0x0123_4567_89ab_cdef_fedc_ba98_7654_3210);
        assert_ne!(slot, slot.twin());
        assert_eq!((slot.shard(64), slot.home(1000)), (slot.twin().shard(64), slot.twin().home(1000)));
        assert_ne!(Slot::new(0), Slot::NONE);
    }
}
