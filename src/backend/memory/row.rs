//! A row of the table, in sixteen bytes, and the place it has there.

use crate::algorithm::Micros;
use crate::backend::RowId;

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
    /// Of a place where there is none.
    pub(super) const EMPTY: Row = Row { spent: 0.0, word: 0 };

    pub(super) fn new(spent: f64, at: Micros, quota: QuotaId, has_twin: bool) -> Row {
        Row { spent, word: at.get() << (QUOTA_BITS + 1) | u64::from(quota.0) << 1 | u64::from(has_twin) }
    }

    /// Of the same quota, and as much of a twin as before.
    #[inline(always)]
    pub(super) fn with(self, spent: f64, at: Micros) -> Row {
        Row { spent, word: at.get() << (QUOTA_BITS + 1) | self.word & ((1 << (QUOTA_BITS + 1)) - 1) }
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

/// Which row of the table: the key's digest under the policy. Its lower half chooses the shard and the place in it; of the
/// upper half one bit tells a row (0) from its twin (1), so the two lie side by side, and one a slot from none.
///
/// The shard is the key's, whatever the policy: of the several limits that one caller is under, all rows are under one
/// lock. Their places in the shard are apart, or they would crowd there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot(u128);

impl Slot {
    /// No digest's slot.
    pub(super) const NONE: Slot = Slot(0);

    /// Their locks and headers fill 256 KiB, a good part of a core's own cache.
    pub(super) const MOST_SHARDS: usize = 4096;

    #[inline(always)]
    pub(super) fn of(row: &RowId<'_>) -> Slot {
        // The shard's bits as they are, the others as in the row's digest.
        Slot::new(row.key.to_bits() ^ row.policy.scatter() & !SHARD)
    }

    #[inline(always)]
    pub(super) fn new(bits: u128) -> Slot {
        Slot(bits & !TWIN | SOME)
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

    /// One of `shards`, a power of two, at most [`Slot::MOST_SHARDS`].
    #[inline(always)]
    pub(super) fn shard(self, shards: usize) -> usize {
        (self.0 >> 32) as u32 as usize & (shards - 1)
    }

    /// One of `places`: where it lies in its shard if nothing lay there before.
    #[inline(always)]
    pub(super) fn home(self, places: usize) -> usize {
        // A share of the bits' range, not their remainder: of any number, and in the same order for every number.
        ((self.0 as u32 as u64 * places as u64) >> 32) as usize
    }
}

/// The bits that choose the shard.
const SHARD: u128 = (Slot::MOST_SHARDS as u128 - 1) << 32;
const TWIN: u128 = 1 << 64;
const SOME: u128 = 1 << 65;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_sixteen_bytes() {
        assert_eq!(size_of::<Row>(), 16);
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
