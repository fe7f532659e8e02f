//! The ledger of a shard: how many rows each policy has, and the rows shared by newcomers without one of their own.

use std::collections::HashMap;

use super::row::{Row, RowKey};
use crate::algorithm::{Micros, State};

/// The ledger of one shard.
#[derive(Default)]
pub(super) struct Ledger {
    /// Rows by the policy's number.
    sizes: HashMap<u32, u32>,
    /// The rows shared by newcomers without a row of their own.
    overflow: HashMap<(u32, u8), State>,
    /// The policies that have overflow rows of their own.
    groups: Vec<u32>,
    /// Where the next newcomer looks for rows that are clear.
    pub(super) hand: u32,
    /// Rows that were dropped before they were clear.
    pub(super) evicted: u64,
    /// Charges of newcomers that were decided on an overflow row.
    pub(super) overflowed: u64,
}

/// An overflow row: a policy's number, or 0 for the policies without a group; and one of [`OVERFLOW_ROWS`].
pub(super) type Shared = (u32, u8);

impl Ledger {
    /// The rows of a policy.
    pub(super) fn size(&self, policy: u32) -> u32 {
        self.sizes.get(&policy).copied().unwrap_or(0)
    }

    pub(super) fn sizes(&self) -> impl Iterator<Item = (u32, u32)> {
        self.sizes.iter().map(|(policy, size)| (*policy, *size))
    }

    /// Counts a row that was added; whether it is the policy's first one here.
    pub(super) fn add(&mut self, policy: u32) -> bool {
        let size = self.sizes.entry(policy).or_default();
        *size += 1;
        *size == 1
    }

    /// Counts a row that was removed.
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

    /// Which overflow row a newcomer of a policy shares.
    pub(super) fn shared(&mut self, policy: u32, key: RowKey, now: Micros) -> Shared {
        let index = (key.place() % u64::from(OVERFLOW_ROWS)) as u8;
        if !self.groups.contains(&policy) {
            if self.groups.len() >= GROUPS {
                self.overflow.retain(|_, state| state.clear > now);
                let overflow = &self.overflow;
                self.groups.retain(|group| (0..OVERFLOW_ROWS).any(|index| overflow.contains_key(&(*group, index))));
            }
            if self.groups.len() >= GROUPS {
                return (0, index);
            }
            self.groups.push(policy);
        }
        (policy, index)
    }

    pub(super) fn overflow(&self, shared: Shared) -> State {
        self.overflow.get(&shared).copied().unwrap_or_default()
    }

    #[cfg(test)]
    pub(super) fn overflow_rows(&self) -> usize {
        self.overflow.len()
    }

    pub(super) fn set_overflow(&mut self, shared: Shared, state: State) {
        self.overflow.insert(shared, state);
    }

    /// Whether a row of this policy that is added now is among the last to go.
    pub(super) fn is_senior(&self, policy: u32, full: usize) -> bool {
        (self.size(policy) as usize) < full / SENIOR_SHARE
    }
}

/// The row that has to make room for a newcomer, of those that were looked at.
///
/// The policy that fills the table bears the cost: a clearly larger policy gives a row up, whatever that row denies; else
/// the newcomer's own policy, or one that is not smaller, gives up a row that denies nothing. Rows that came while their
/// policy was small are the last to go, and those of them that deny something stay while their policy is large.
pub(super) struct Victim<'a> {
    ledger: &'a Ledger,
    policy: u32,
    size: u32,
    /// The size up to which a policy's rows are senior.
    small: u32,
    now: Micros,
    of_larger: Option<(Rank, RowKey)>,
    of_equal: Option<(Rank, RowKey)>,
}

/// The order of eviction: juniors, rows of the largest policy, rows that deny nothing, rows that will be clear soonest, and of
/// those the least spent.
type Rank = (bool, u32, bool, Micros, u64);

impl<'a> Victim<'a> {
    pub(super) fn new(ledger: &'a Ledger, policy: u32, full: usize, now: Micros) -> Victim<'a> {
        let small = (full / SENIOR_SHARE) as u32;
        Victim { ledger, policy, size: ledger.size(policy), small, now, of_larger: None, of_equal: None }
    }

    pub(super) fn consider(&mut self, key: RowKey, row: &Row) {
        let size = if row.policy == self.policy { self.size } else { self.ledger.size(row.policy) };
        let denies = row.denies(self.now);
        let rank = (row.is_senior(), u32::MAX - size, denies, row.clear(), row.spent.to_bits());
        // A flooded policy has juniors to give up: its first callers who are denied stay so.
        let stays = row.is_senior() && denies && size > self.small;
        if size > self.size + self.size / 8 + 8 && !stays {
            least(&mut self.of_larger, rank, key);
        }
        if !denies && size >= self.size && (self.size <= self.small || !row.is_senior()) {
            // Among equals the largest policy has no part.
            least(&mut self.of_equal, (rank.0, 0, rank.2, rank.3, rank.4), key);
        }
    }

    /// Whether a row was found that no other row can be preferred to.
    pub(super) fn is_found(&self) -> bool {
        self.of_larger.is_some_and(|((is_senior, ..), _)| !is_senior)
    }

    pub(super) fn key(&self) -> Option<RowKey> {
        self.of_larger.or(self.of_equal).map(|(_, key)| key)
    }
}

fn least(best: &mut Option<(Rank, RowKey)>, rank: Rank, key: RowKey) {
    if best.is_none_or(|(other, _)| rank < other) {
        *best = Some((rank, key));
    }
}

/// A policy's rows are senior while it has less than this part of a shard.
const SENIOR_SHARE: usize = 16;
/// Overflow rows of a policy in each shard.
const OVERFLOW_ROWS: u8 = 16;
/// Policies that have overflow rows of their own in each shard.
const GROUPS: usize = 16;
