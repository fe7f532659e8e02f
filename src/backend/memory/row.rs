//! A row and its key, in 40 bytes.

use crate::algorithm::{Ask, Micros, Quota, State, when};
use crate::backend::RowId;
use crate::policy::{Digest, Placement, PolicyName};

/// What a backend keeps of one key under one policy, or the carry of such a row.
///
/// [`State::carry`] is rarely used, so it has a row of its own, the **carry row**, in the same shard: its `spent` is the
/// carry, and it is worth something until its `clear`.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C, packed(4))]
pub(super) struct Row {
    pub(super) spent: f64,
    /// From the highest bit: `at` (53), whether the row is senior (1), whether it has a carry row (1), and the part of
    /// its time up to `clear` for which it denies something (8).
    word: u64,
    pub(super) stamp: u32,
    /// The policy's [number](Keys::number).
    pub(super) policy: u32,
    /// Seconds; `u32::MAX` = never.
    clear: u32,
}

const AT: u32 = 11;
const SENIOR: u64 = 1 << 10;
const CARRY: u64 = 1 << 9;
const DENIES: u64 = 0xff;

impl Row {
    /// A row of the policy with this [number](Keys::number).
    pub(super) fn new(state: &State, policy: u32) -> Row {
        let word = state.at.get() << AT;
        Row { spent: state.spent, word, stamp: state.stamp, policy, clear: state.clear.to_seconds() }
    }

    /// The row without its carry, as of `now`. A row that is clear may be dropped at any time, so it reads as none.
    #[inline]
    pub(super) fn state(&self, now: Micros) -> State {
        if self.is_clear(now) {
            return State::default();
        }
        self.stored()
    }

    #[inline]
    fn stored(&self) -> State {
        State { spent: self.spent, at: self.at(), carry: 0.0, stamp: self.stamp, clear: self.clear() }
    }

    /// Stores what a charge or a settlement under `quota` left.
    #[inline]
    pub(super) fn write(&mut self, quota: &Quota, state: &State) {
        let level = quota.limit().saturating_sub(1);
        if self.word & DENIES != 0 || state.spent > level as f64 {
            return self.write_denying(quota, state, level);
        }
        self.store(state, 0);
    }

    /// The same of a row that denies a cost of 1 from now on, or was known to deny something.
    fn write_denying(&mut self, quota: &Quota, state: &State, level: u64) {
        let before = self.denies_until();
        self.store(state, 0);
        self.deny_until(before.max(denies_until(quota, state, level)));
    }

    fn store(&mut self, state: &State, denies: u64) {
        self.spent = state.spent;
        self.word = state.at.get() << AT | self.word & (SENIOR | CARRY) | denies;
        self.stamp = state.stamp;
        self.clear = state.clear.to_seconds();
    }

    /// Remembers that a charge was denied. The row stays as it is; it is only held on to, when others need its place,
    /// until the charge would fit.
    #[inline]
    pub(super) fn denied(&mut self, quota: &Quota, ask: Ask) {
        let level = quota.limit().checked_sub(ask.tokens());
        if let Some(level) = level.filter(|_| self.word & DENIES != DENIES) {
            let until = denies_until(quota, &self.stored(), level);
            if until > self.denies_until() {
                self.deny_until(until);
            }
        }
    }

    fn deny_until(&mut self, until: Micros) {
        let (part, whole) = (until.micros_since(self.at()), self.clear().micros_since(self.at()));
        // Rounded up: an early instant would let a denied key be forgotten.
        let denies = (u128::from(part) * u128::from(DENIES)).div_ceil(u128::from(whole.max(1)));
        self.word = self.word & !DENIES | (denies as u64).min(DENIES);
    }

    /// The instant up to which the row denies its key something that was asked for.
    fn denies_until(&self) -> Micros {
        let whole = self.clear().micros_since(self.at());
        match self.word & DENIES {
            0 => Micros::EPOCH,
            denies => self.at().plus((u128::from(whole) * u128::from(denies) / u128::from(DENIES)) as u64),
        }
    }

    pub(super) fn denies(&self, now: Micros) -> bool {
        self.denies_until() > now
    }

    /// Whether nothing of the row stands any more.
    pub(super) fn is_clear(&self, now: Micros) -> bool {
        self.clear() <= now
    }

    pub(super) fn clear(&self) -> Micros {
        Micros::from_seconds(self.clear)
    }

    #[inline]
    pub(super) fn at(&self) -> Micros {
        Micros::new(self.word >> AT)
    }

    pub(super) fn is_senior(&self) -> bool {
        self.word & SENIOR != 0
    }

    pub(super) fn set_senior(&mut self) {
        self.word |= SENIOR;
    }

    #[inline]
    pub(super) fn has_carry(&self) -> bool {
        self.word & CARRY != 0
    }

    pub(super) fn set_carry(&mut self, has: bool) {
        self.word = if has { self.word | CARRY } else { self.word & !CARRY };
    }
}

/// When a row has come down to `level`.
fn denies_until(quota: &Quota, state: &State, level: u64) -> Micros {
    when(quota, state, state.at, level as f64).unwrap_or(Micros::MAX)
}

/// Which row: 95 bits of the key's digest mixed with the policy's name, and one that marks a carry row.
///
/// The first word is the row's [place](RowKey::place), whose shard is chosen by the key alone: the rows of one caller
/// are in one shard, and a call that charges several of them takes one lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C, packed(4))]
pub(super) struct RowKey {
    place: u64,
    tail: u32,
}

/// Two of the seven bits of hashbrown's tag are not used: a newcomer that looks at a few rows asks for each tag.
const UNUSED_TAG: u64 = 3 << 57;

impl RowKey {
    /// The bits of a place that DashMap chooses a shard by are these, the highest first.
    pub(super) const MAX_SHARDS: usize = 4096;

    pub(super) fn new(place: u64, tail: u32) -> RowKey {
        RowKey { place: place & !UNUSED_TAG, tail: tail & !1 }
    }

    /// The hash by which the map finds the row.
    #[inline]
    pub(super) fn place(self) -> u64 {
        self.place
    }

    /// The key of the row's carry row.
    pub(super) fn carry(self) -> RowKey {
        RowKey { tail: self.tail | 1, ..self }
    }

    /// The key of the row, of a carry row.
    pub(super) fn row(self) -> RowKey {
        RowKey { tail: self.tail & !1, ..self }
    }

    pub(super) fn is_carry(self) -> bool {
        self.tail & 1 == 1
    }
}

#[cfg(tollgate_models)]
impl RowKey {
    pub(super) fn to_bits(self) -> u128 {
        u128::from(self.place) << 32 | u128::from(self.tail)
    }

    pub(super) fn from_bits(bits: u128) -> RowKey {
        RowKey { place: (bits >> 32) as u64, tail: bits as u32 }
    }
}

/// Makes the keys of rows, under numbers that only this table knows.
pub(super) struct Keys {
    digests: Placement,
    policies: Placement,
}

/// The seven bits of hashbrown's tag come first.
const SHARD: u64 = (RowKey::MAX_SHARDS as u64 - 1) << 45;

impl Keys {
    pub(super) fn random() -> Keys {
        Keys { digests: Placement::random(), policies: Placement::random() }
    }

    #[inline]
    pub(super) fn key(&self, row: &RowId<'_>) -> RowKey {
        let policy = self.policy(row.policy);
        let place = self.digests.place(row.key) ^ policy & !SHARD;
        RowKey::new(place, (row.key.to_bits() >> 96) as u32 ^ policy as u32)
    }

    /// A number that stands for a policy where rows are counted; never 0.
    pub(super) fn number(&self, policy: &PolicyName) -> u32 {
        (self.policy(policy) >> 32) as u32 | 1
    }

    #[inline]
    fn policy(&self, policy: &PolicyName) -> u64 {
        self.policies.place(Digest::from_bits(policy.bits()))
    }
}
