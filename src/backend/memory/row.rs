//! A row of the table, in sixteen bytes, and the place it has there.

use crate::algorithm::Micros;
use crate::policy::Digest;

/// `spent`, and in one word `at` (53 bits), a short number for its quota's stamp (10 bits, see
/// [`Worth`](super::worth::Worth)) and whether there is a twin (1 bit).
///
/// A third number ([`State::carry`]) is rare; it lives in a row of its own, the **twin**, beside its row in the same
/// shard. A twin's `at` is the instant from which it means nothing any more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Row {
    spent: f64,
    word: u64,
}

// In models so few that quotas come to share numbers.
const QUOTA_BITS: u32 = if cfg!(tollgate_models) { 2 } else { 10 };

impl Row {
    pub(super) fn new(spent: f64, at: Micros, quota: QuotaId, has_twin: bool) -> Row {
        Row { spent, word: at.get() << (QUOTA_BITS + 1) | u64::from(quota.0) << 1 | u64::from(has_twin) }
    }

    pub(super) fn spent(&self) -> f64 {
        self.spent
    }

    pub(super) fn at(&self) -> Micros {
        Micros::new(self.word >> (QUOTA_BITS + 1))
    }

    pub(super) fn quota(&self) -> QuotaId {
        QuotaId(((self.word >> 1) & ((1 << QUOTA_BITS) - 1)) as u16)
    }

    pub(super) fn has_twin(&self) -> bool {
        self.word & 1 == 1
    }
}

/// A short number for a quota, less than [`QuotaId::COUNT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QuotaId(u16);

impl QuotaId {
    pub(super) const COUNT: usize = 1 << QUOTA_BITS;

    pub(super) fn new(number: usize) -> QuotaId {
        QuotaId((number % QuotaId::COUNT) as u16)
    }

    pub(super) fn number(self) -> usize {
        usize::from(self.0)
    }
}

/// Where a row lies in the table. One bit of the digest's upper half tells a row (0) from its twin (1); the lower half
/// chooses the shard and the place in it, so the two lie side by side. SipHash is done with the lower half first: the
/// shard is being locked while the upper half is still computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot(u128);

impl Slot {
    pub(super) fn of(digest: Digest) -> Slot {
        Slot(digest.to_bits() & !TWIN)
    }

    pub(super) fn twin(self) -> Slot {
        Slot(self.0 | TWIN)
    }

    pub(super) fn without_twin(self) -> Slot {
        Slot(self.0 & !TWIN)
    }

    pub(super) fn is_twin(self) -> bool {
        self.0 & TWIN != 0
    }

    pub(super) fn hash(self) -> u64 {
        self.0 as u64
    }
}

const TWIN: u128 = 1 << 64;

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
            for quota in [0, 1, QuotaId::COUNT - 1].map(QuotaId::new) {
                for has_twin in [false, true] {
                    let row = Row::new(1234.5, at, quota, has_twin);
                    assert_eq!((row.spent(), row.at(), row.quota(), row.has_twin()), (1234.5, at, quota, has_twin));
                }
            }
        }
    }
}
