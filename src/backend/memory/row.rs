//! A row of the table, in sixteen bytes, and the place it has there.

use crate::algorithm::{Micros, State};
use crate::policy::Digest;

/// `spent`, and in one word `at` (53 bits), the stamp (10 bits) and whether there is a twin (1 bit).
///
/// A third number ([`State::carry`]) is rare; it lives in a row of its own, the **twin**, beside its row in the same shard. A
/// twin's `at` is the instant from which it means nothing any more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Row {
    spent: f64,
    word: u64,
}

const STAMP_BITS: u32 = 10;

impl Row {
    pub(super) fn new(state: &State, has_twin: bool) -> Row {
        let stamp = u64::from(state.stamp) & ((1 << STAMP_BITS) - 1);
        Row { spent: state.spent, word: state.at.get() << (STAMP_BITS + 1) | stamp << 1 | u64::from(has_twin) }
    }

    /// A twin that holds `carry` until `until`.
    pub(super) fn twin(carry: f64, until: Micros, stamp: u16) -> Row {
        Row::new(&State { spent: carry, at: until, carry: 0.0, stamp }, false)
    }

    pub(super) fn state(&self) -> State {
        State { spent: self.spent, at: self.at(), carry: 0.0, stamp: self.stamp() }
    }

    pub(super) fn spent(&self) -> f64 {
        self.spent
    }

    pub(super) fn at(&self) -> Micros {
        Micros::new(self.word >> (STAMP_BITS + 1))
    }

    pub(super) fn stamp(&self) -> u16 {
        ((self.word >> 1) & ((1 << STAMP_BITS) - 1)) as u16
    }

    pub(super) fn has_twin(&self) -> bool {
        self.word & 1 == 1
    }
}

/// Where a row lies in the table. The lowest bit of a digest tells a row (0) from its twin (1); the bits that choose the shard
/// and the place in it are others, so the two lie side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot(u128);

impl Slot {
    pub(super) fn of(digest: Digest) -> Slot {
        Slot(digest.to_bits() & !1)
    }

    pub(super) fn twin(self) -> Slot {
        Slot(self.0 | 1)
    }

    pub(super) fn without_twin(self) -> Slot {
        Slot(self.0 & !1)
    }

    pub(super) fn is_twin(self) -> bool {
        self.0 & 1 == 1
    }

    pub(super) fn hash(self) -> u64 {
        (self.0 >> 64) as u64
    }
}

impl std::hash::Hash for Slot {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        state.write_u64(Slot::hash(*self));
    }
}

/// Digests are random already: the table takes 64 of their bits as they are.
#[derive(Clone, Copy, Default)]
pub(super) struct AsIs(u64);

impl std::hash::BuildHasher for AsIs {
    type Hasher = AsIs;

    fn build_hasher(&self) -> AsIs {
        AsIs(0)
    }
}

impl std::hash::Hasher for AsIs {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.0 ^= u64::from_le_bytes(word);
        }
    }

    fn write_u64(&mut self, bits: u64) {
        self.0 = bits;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_sixteen_bytes_and_an_entry_thirty_two() {
        assert_eq!(size_of::<Row>(), 16);
        assert_eq!(size_of::<(Slot, Row)>(), 32);
    }

    #[test]
    fn nothing_is_lost_in_packing() {
        for at in [Micros::EPOCH, Micros::new(1_767_225_600_000_000), Micros::MAX] {
            for stamp in [0, 1, 0x3ff] {
                for has_twin in [false, true] {
                    let state = State { spent: 1234.5, at, carry: 0.0, stamp };
                    let row = Row::new(&state, has_twin);
                    assert_eq!((row.state(), row.has_twin()), (state, has_twin));
                }
            }
        }
    }
}
