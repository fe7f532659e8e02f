//! Each shard's ledger counts rows by policy, holds the overflow rows, and chooses rows to evict.

use std::collections::HashMap;

use super::row::{Row, RowKey};
use crate::algorithm::{Micros, State};

#[derive(Default)]
pub(super) struct Ledger {
    sizes: HashMap<u32, u32>,
    overflow: HashMap<OverflowId, State>,
    overflow_policies: Vec<u32>,
    /// The position at which the next search for a slot starts sampling rows.
    pub(super) cursor: u32,
    pub(super) evicted: u64,
    pub(super) overflowed: u64,
}

/// The policy's number (0 for rows that several policies share), an index below [`OVERFLOW_ROWS`], and the window.
pub(super) type OverflowId = (u32, u8, u8);

impl Ledger {
    pub(super) fn size(&self, policy: u32) -> u32 {
        self.sizes.get(&policy).copied().unwrap_or(0)
    }

    pub(super) fn sizes(&self) -> impl Iterator<Item = (u32, u32)> {
        self.sizes.iter().map(|(policy, size)| (*policy, *size))
    }

    /// Counts an added row. Returns whether it is the first row of its policy in this shard.
    pub(super) fn add(&mut self, policy: u32) -> bool {
        let size = self.sizes.entry(policy).or_default();
        *size += 1;
        *size == 1
    }

    pub(super) fn subtract(&mut self, policy: u32) {
        if let Some(size) = self.sizes.get_mut(&policy) {
            *size -= 1;
            if *size == 0 {
                self.sizes.remove(&policy);
                if self.sizes.capacity() > 4 * self.sizes.len() + 64 {
                    self.sizes.shrink_to_fit();
                }
            }
        }
    }

    pub(super) fn overflow_id(&mut self, policy: u32, key: RowKey, now: Micros) -> OverflowId {
        let index = (key.hash() % u64::from(OVERFLOW_ROWS)) as u8;
        if !self.overflow_policies.contains(&policy) {
            if self.overflow_policies.len() >= MAX_OVERFLOW_POLICIES {
                self.overflow.retain(|_, state| state.clear > now);
                let overflow = &self.overflow;
                self.overflow_policies.retain(|policy| overflow.keys().any(|(owner, ..)| owner == policy));
            }
            if self.overflow_policies.len() >= MAX_OVERFLOW_POLICIES {
                return (0, index, key.window_index());
            }
            self.overflow_policies.push(policy);
        }
        (policy, index, key.window_index())
    }

    pub(super) fn overflow(&self, id: OverflowId) -> State {
        self.overflow.get(&id).copied().unwrap_or_default()
    }

    #[cfg(test)]
    pub(super) fn overflow_rows(&self) -> usize {
        self.overflow.len()
    }

    pub(super) fn set_overflow(&mut self, id: OverflowId, state: State) {
        self.overflow.insert(id, state);
    }

    /// Returns whether a new row of this policy would be senior.
    pub(super) fn is_senior(&self, policy: u32, capacity: usize) -> bool {
        (self.size(policy) as usize) < capacity / SENIOR_SHARE
    }
}

/// Chooses which row of a sample to evict in favor of a new row.
///
/// Prefers rows of policies with significantly more rows than the new row's policy. If there are none, chooses a row
/// that denies nothing and whose policy has at least as many rows as the new row's policy. A row is *senior* if its
/// policy had few rows when the row was added. Senior rows are evicted last, and never while they deny something and
/// their policy has many rows.
pub(super) struct Victim<'a> {
    ledger: &'a Ledger,
    policy: u32,
    size: u32,
    /// A policy's new rows are senior while the policy has fewer rows than this.
    small: u32,
    now: Micros,
    from_larger: Option<(Rank, RowKey)>,
    from_equal: Option<(Rank, RowKey)>,
}

/// The sort key for eviction: whether the row is senior, the number of rows of its policy (largest first), whether it
/// denies something, when it expires, and its spent tokens.
type Rank = (bool, u32, bool, Micros, u64);

impl<'a> Victim<'a> {
    pub(super) fn new(ledger: &'a Ledger, policy: u32, capacity: usize, now: Micros) -> Victim<'a> {
        let small = (capacity / SENIOR_SHARE) as u32;
        Victim { ledger, policy, size: ledger.size(policy), small, now, from_larger: None, from_equal: None }
    }

    pub(super) fn consider(&mut self, key: RowKey, row: &Row) {
        let size = if row.policy == self.policy { self.size } else { self.ledger.size(row.policy) };
        let denies = row.denies(self.now);
        let rank = (row.is_senior(), u32::MAX - size, denies, row.expires(), row.spent.to_bits());
        // Rows from before a flood are kept as long as they deny callers. Rows added by the flood can be evicted
        // instead.
        let stays = row.is_senior() && denies && size > self.small;
        if size > self.size + self.size / 8 + 8 && !stays {
            least(&mut self.from_larger, rank, key);
        }
        if !denies && size >= self.size && (self.size <= self.small || !row.is_senior()) {
            least(&mut self.from_equal, (rank.0, 0, rank.2, rank.3, rank.4), key);
        }
    }

    /// Returns `true` if further samples are unlikely to contain a better choice.
    pub(super) fn is_best_found(&self) -> bool {
        self.from_larger.is_some_and(|((is_senior, ..), _)| !is_senior)
    }

    pub(super) fn key(&self) -> Option<RowKey> {
        self.from_larger.or(self.from_equal).map(|(_, key)| key)
    }
}

fn least(best: &mut Option<(Rank, RowKey)>, rank: Rank, key: RowKey) {
    if best.is_none_or(|(other, _)| rank < other) {
        *best = Some((rank, key));
    }
}

/// New rows of a policy are senior while the policy's rows take up less than `1 / SENIOR_SHARE` of a shard.
const SENIOR_SHARE: usize = 16;
/// The number of overflow rows per shard, policy and window.
const OVERFLOW_ROWS: u8 = 16;
/// The maximum number of policies per shard that have their own overflow rows.
const MAX_OVERFLOW_POLICIES: usize = 16;
