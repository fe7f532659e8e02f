//! Rows and their keys. Together, a row and its key take 40 bytes.

use crate::algorithm::{Ask, Micros, Quota, State, when};
use crate::backend::RowId;
use crate::backend::bytes::ByteReader;
use crate::policy::{Digest, MAX_WINDOWS, Placement, PolicyName, Secret};

/// The stored state of one key under one policy, or its carry.
///
/// [`State::carry`] is rarely used, so it is stored as the `spent` of a separate **carry row** in the same shard.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C, packed(4))]
pub(super) struct Row {
    pub(super) spent: f64,
    /// From the highest bit down: `at` (53 bits), whether the row is senior (1), whether it has a carry row (1), an
    /// unused bit, and the fraction of the time from `at` to `expires` during which the row denies charges (8).
    packed: u64,
    pub(super) stamp: u32,
    pub(super) policy: u32,
    /// The second at which the row expires; `u32::MAX` means never.
    expires: u32,
}

const AT_SHIFT: u32 = 11;
const SENIOR_BIT: u64 = 1 << 10;
const CARRY_BIT: u64 = 1 << 9;
const DENIAL_MASK: u64 = 0xff;

impl Row {
    pub(super) fn new(state: &State, policy: u32) -> Row {
        let packed = state.at.get() << AT_SHIFT;
        Row { spent: state.spent, packed, stamp: state.stamp, policy, expires: state.clear.to_seconds() }
    }

    /// Returns the row's state without its carry. An expired row counts as missing.
    #[inline]
    pub(super) fn state(&self, now: Micros) -> State {
        if self.is_expired(now) {
            return State::default();
        }
        self.stored()
    }

    #[inline]
    fn stored(&self) -> State {
        State { spent: self.spent, at: self.at(), carry: 0.0, stamp: self.stamp, clear: self.expires() }
    }

    #[inline]
    pub(super) fn write(&mut self, quota: &Quota, state: &State) {
        let level = quota.get_capacity().saturating_sub(1);
        if self.packed & DENIAL_MASK != 0 || state.spent > level as f64 {
            return self.write_denying(quota, state, level);
        }
        self.store(state, 0);
    }

    fn write_denying(&mut self, quota: &Quota, state: &State, level: u64) {
        let before = self.denies_until();
        self.store(state, 0);
        self.deny_until(before.max(denies_until(quota, state, level)));
    }

    fn store(&mut self, state: &State, denies: u64) {
        self.spent = state.spent;
        self.packed = state.at.get() << AT_SHIFT | self.packed & (SENIOR_BIT | CARRY_BIT) | denies;
        self.stamp = state.stamp;
        self.expires = state.clear.to_seconds();
    }

    /// Records that a charge was denied. Until the charge would fit, other rows are evicted first.
    #[inline]
    pub(super) fn record_denial(&mut self, quota: &Quota, ask: Ask) {
        let level = quota.get_capacity().checked_sub(ask.tokens());
        if let Some(level) = level.filter(|_| self.packed & DENIAL_MASK != DENIAL_MASK) {
            let until = denies_until(quota, &self.stored(), level);
            if until > self.denies_until() {
                self.deny_until(until);
            }
        }
    }

    fn deny_until(&mut self, until: Micros) {
        let (part, whole) = (until.micros_since(self.at()), self.expires().micros_since(self.at()));
        // Round up, so that a denied key is not evicted too early.
        let denies = (u128::from(part) * u128::from(DENIAL_MASK)).div_ceil(u128::from(whole.max(1)));
        self.packed = self.packed & !DENIAL_MASK | (denies as u64).min(DENIAL_MASK);
    }

    fn denies_until(&self) -> Micros {
        let whole = self.expires().micros_since(self.at());
        match self.packed & DENIAL_MASK {
            0 => Micros::EPOCH,
            denies => self.at().plus((u128::from(whole) * u128::from(denies) / u128::from(DENIAL_MASK)) as u64),
        }
    }

    pub(super) fn denies(&self, now: Micros) -> bool {
        self.denies_until() > now
    }

    pub(super) fn is_expired(&self, now: Micros) -> bool {
        self.expires() <= now
    }

    pub(super) fn expires(&self) -> Micros {
        Micros::from_seconds(self.expires)
    }

    #[inline]
    pub(super) fn at(&self) -> Micros {
        Micros::new(self.packed >> AT_SHIFT)
    }

    pub(super) fn is_senior(&self) -> bool {
        self.packed & SENIOR_BIT != 0
    }

    pub(super) fn set_senior(&mut self) {
        self.packed |= SENIOR_BIT;
    }

    #[inline]
    pub(super) fn has_carry(&self) -> bool {
        self.packed & CARRY_BIT != 0
    }

    pub(super) fn set_carry(&mut self, has: bool) {
        self.packed = if has { self.packed | CARRY_BIT } else { self.packed & !CARRY_BIT };
    }
}

/// The saved form omits the senior bit, which depends on the table that loads the row.
impl Row {
    pub(super) const BYTES: usize = 28;

    pub(super) fn to_bytes(self) -> [u8; Row::BYTES] {
        let mut bytes = [0; Row::BYTES];
        bytes[..8].copy_from_slice(&{ self.spent }.to_bits().to_le_bytes());
        bytes[8..16].copy_from_slice(&(self.packed & !SENIOR_BIT).to_le_bytes());
        bytes[16..20].copy_from_slice(&{ self.stamp }.to_le_bytes());
        bytes[20..24].copy_from_slice(&{ self.policy }.to_le_bytes());
        bytes[24..].copy_from_slice(&{ self.expires }.to_le_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: [u8; Row::BYTES]) -> Option<Row> {
        let mut reader = ByteReader::new(&bytes);
        let spent = f64::from_bits(reader.u64()?);
        let row =
            Row { spent, packed: reader.u64()?, stamp: reader.u32()?, policy: reader.u32()?, expires: reader.u32()? };
        let is_possible = (0.0..=f64::MAX).contains(&spent) && row.policy % 2 == 1;
        (is_possible && !row.is_senior()).then_some(row)
    }

    /// Returns the row with another state. The fraction of its lifetime during which it denies charges stays the same.
    pub(super) fn rewritten(mut self, state: &State, has_carry: bool) -> Row {
        self.store(state, self.packed & DENIAL_MASK);
        self.set_carry(has_carry);
        self
    }
}

/// Returns the first instant at which at most `level` tokens are still spent.
fn denies_until(quota: &Quota, state: &State, level: u64) -> Micros {
    when(quota, state, state.at, level as f64).unwrap_or(Micros::MAX)
}

/// A row's key: 90 bits of a hash of the caller's key and the policy, three for the window, and one to mark carry rows.
///
/// The shard bits depend only on the caller's key, so a call for several rows of one caller locks only one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C, packed(4))]
pub(super) struct RowKey {
    hash: u64,
    tail: u32,
}

/// Two of the seven bits of hashbrown's tag are not used, so that sampling has fewer tags to look up.
const UNUSED_TAG: u64 = 3 << 57;

const WINDOW_SHIFT: u32 = 1;
const WINDOW_MASK: u32 = (MAX_WINDOWS as u32 - 1) << WINDOW_SHIFT;

impl RowKey {
    pub(super) const MAX_SHARDS: usize = 4096;

    pub(super) fn new(hash: u64, tail: u32) -> RowKey {
        RowKey { hash: hash & !UNUSED_TAG, tail: tail & !(WINDOW_MASK | 1) }
    }

    #[inline]
    pub(super) fn hash(self) -> u64 {
        self.hash
    }

    #[inline]
    pub(super) fn window(self, window: u8) -> RowKey {
        RowKey { tail: self.tail & !WINDOW_MASK | u32::from(window) << WINDOW_SHIFT & WINDOW_MASK, ..self }
    }

    pub(super) fn window_index(self) -> u8 {
        ((self.tail & WINDOW_MASK) >> WINDOW_SHIFT) as u8
    }

    pub(super) fn carry(self) -> RowKey {
        RowKey { tail: self.tail | 1, ..self }
    }

    pub(super) fn row(self) -> RowKey {
        RowKey { tail: self.tail & !1, ..self }
    }

    pub(super) fn is_carry(self) -> bool {
        self.tail & 1 == 1
    }
}

impl RowKey {
    pub(super) const BYTES: usize = 12;

    pub(super) fn to_bytes(self) -> [u8; RowKey::BYTES] {
        let mut bytes = [0; RowKey::BYTES];
        bytes[..8].copy_from_slice(&{ self.hash }.to_le_bytes());
        bytes[8..].copy_from_slice(&{ self.tail }.to_le_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: [u8; RowKey::BYTES]) -> Option<RowKey> {
        let mut reader = ByteReader::new(&bytes);
        let (hash, tail) = (reader.u64()?, reader.u32()?);
        (hash & UNUSED_TAG == 0).then_some(RowKey { hash, tail })
    }
}

#[cfg(tollgate_models)]
impl RowKey {
    pub(super) fn to_bits(self) -> u128 {
        u128::from(self.hash) << 32 | u128::from(self.tail)
    }

    pub(super) fn from_bits(bits: u128) -> RowKey {
        RowKey { hash: (bits >> 32) as u64, tail: bits as u32 }
    }
}

/// Derives row keys, using random numbers or the backend's secret.
pub(super) struct RowHasher {
    digests: Placement,
    policies: Placement,
}

/// The bits by which DashMap chooses a shard. They sit directly below the seven bits of hashbrown's tag.
const SHARD_BITS: u64 = (RowKey::MAX_SHARDS as u64 - 1) << 45;

impl RowHasher {
    pub(super) fn random() -> RowHasher {
        RowHasher { digests: Placement::random(), policies: Placement::random() }
    }

    /// Creates the hasher for a secret. Its results must not change, because saved rows contain them.
    pub(super) fn of(secret: &Secret) -> RowHasher {
        let placement = |purpose| Placement::of(&secret.derive(purpose));
        RowHasher { digests: placement("keys of rows"), policies: placement("policies of rows") }
    }

    #[inline]
    pub(super) fn key(&self, row: &RowId<'_>) -> RowKey {
        let policy = self.policies.place(Digest::from_bits(row.policy.bits()).at_generation(row.generation()));
        let hash = self.digests.place(row.key) ^ policy & !SHARD_BITS;
        RowKey::new(hash, (row.key.to_bits() >> 96) as u32 ^ policy as u32)
    }

    pub(super) fn number(&self, policy: &PolicyName) -> u32 {
        (self.policies.place(Digest::from_bits(policy.bits())) >> 32) as u32 | 1
    }
}
