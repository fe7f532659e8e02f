//! A sketch of the heaviest keys (those counted most often), with a fixed number of counters. The algorithm is
//! Space-Saving (Metwally, Agrawal and El Abbadi, "Efficient computation of frequent and top-k elements in data
//! streams", ICDT 2005).
//!
//! A key without a counter takes over the counter with the lowest count, and continues from this count. A count is
//! therefore never too low, and it is too high by at most the count that was taken over. Each shard has its own lock
//! and counters. Keys are assigned to shards at random, so that callers cannot choose keys that share a shard.

use hashbrown::HashTable;
use slab::Slab;

use crate::policy::{Digest, Placement};
use crate::sync::{Mutex, MutexGuard, PoisonError};

pub(super) struct Sketch {
    shards: Box<[Mutex<Shard>]>,
    placement: Placement,
}

/// A key of a sketch. The key was counted at least `count - error` times and at most `count` times.
pub(super) struct Counted {
    pub(super) key: Digest,
    pub(super) text: Option<Box<str>>,
    pub(super) count: u64,
    pub(super) error: u64,
}

/// The heaviest keys of a sketch, heaviest first.
pub(super) struct Heaviest {
    pub(super) keys: Vec<Counted>,
    pub(super) total: u64,
    /// The maximum number of times that a key without a counter can have been counted.
    pub(super) max_error: u64,
}

pub(super) const SHARDS: usize = 8;

impl Sketch {
    pub(super) fn new(counters: usize) -> Sketch {
        let of_shard = counters.div_ceil(SHARDS).max(1);
        let shards = (0..SHARDS).map(|_| Mutex::new(Shard::new(of_shard))).collect();
        Sketch { shards, placement: Placement::random() }
    }

    pub(super) fn count(&self, key: Digest) {
        self.shard(key).count(key, &self.placement);
    }

    /// Stores the text of a key that has a counter, unless its text is already stored.
    pub(super) fn name(&self, key: Digest, text: impl FnOnce() -> Box<str>) {
        let mut shard = self.shard(key);
        if let Some(counter) = shard.find(key, &self.placement) {
            shard.counters[counter as usize].text.get_or_insert_with(text);
        }
    }

    pub(super) fn heaviest(&self, max: usize) -> Heaviest {
        let mut heaviest = Heaviest { keys: Vec::new(), total: 0, max_error: 0 };
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            heaviest.keys.extend(shard.heaviest(max));
            heaviest.total = heaviest.total.saturating_add(shard.total);
            heaviest.max_error = heaviest.max_error.max(shard.max_error());
        }
        heaviest.keys.sort_by_key(|counted| (std::cmp::Reverse(counted.count), counted.error));
        heaviest.keys.truncate(max);
        heaviest
    }

    pub(super) fn clear(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            *shard = Shard::new(shard.max);
        }
    }

    fn shard(&self, key: Digest) -> MutexGuard<'_, Shard> {
        let shard = self.placement.place(key) as usize % SHARDS;
        self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The counters of a shard. They are sorted by their counts, so that incrementing a count takes constant time.
struct Shard {
    max: usize,
    total: u64,
    counters: Vec<Counter>,
    index: HashTable<u32>,
    /// The counters in order of their counts, highest first.
    order: Vec<u32>,
    /// The groups of counters with equal counts. The counters of a group are consecutive in `order`.
    groups: Slab<Group>,
}

struct Counter {
    key: Digest,
    text: Option<Box<str>>,
    error: u64,
    rank: u32,
    group: u32,
}

struct Group {
    count: u64,
    first: u32,
    len: u32,
}

impl Shard {
    fn new(max: usize) -> Shard {
        let (counters, order, groups) = (Vec::new(), Vec::new(), Slab::new());
        Shard { max, total: 0, counters, index: HashTable::new(), order, groups }
    }

    fn count(&mut self, key: Digest, placement: &Placement) {
        self.total = self.total.saturating_add(1);
        let counter = match self.find(key, placement) {
            Some(counter) => counter,
            None if self.counters.len() < self.max => self.add(key, placement),
            None => self.take_over(key, placement),
        };
        self.increment(counter);
    }

    fn find(&self, key: Digest, placement: &Placement) -> Option<u32> {
        let is_of_key = |counter: &u32| self.counters[*counter as usize].key == key;
        self.index.find(hash(key, placement), is_of_key).copied()
    }

    fn add(&mut self, key: Digest, placement: &Placement) -> u32 {
        let counter = self.counters.len() as u32;
        let group = self.groups.insert(Group { count: 0, first: counter, len: 1 }) as u32;
        self.counters.push(Counter { key, text: None, error: 0, rank: counter, group });
        self.order.push(counter);
        self.insert_in_index(counter, placement);
        counter
    }

    fn take_over(&mut self, key: Digest, placement: &Placement) -> u32 {
        let least = self.order[self.order.len() - 1];
        let old = hash(self.counters[least as usize].key, placement);
        if let Ok(entry) = self.index.find_entry(old, |counter| *counter == least) {
            entry.remove();
        }
        let error = self.max_error();
        let counter = &mut self.counters[least as usize];
        *counter = Counter { key, text: None, error, ..*counter };
        self.insert_in_index(least, placement);
        least
    }

    fn insert_in_index(&mut self, counter: u32, placement: &Placement) {
        let counters = &self.counters;
        let hash_of = |counter: &u32| hash(counters[*counter as usize].key, placement);
        self.index.insert_unique(hash_of(&counter), counter, hash_of);
    }

    /// Moves the counter to the front of its group, and from there into the group whose count is higher by 1.
    fn increment(&mut self, counter: u32) {
        let Counter { rank, group, .. } = self.counters[counter as usize];
        let Group { count, first, len } = self.groups[group as usize];
        let other = self.order[first as usize];
        self.order.swap(first as usize, rank as usize);
        self.counters[other as usize].rank = rank;
        self.counters[counter as usize].rank = first;
        if len == 1 {
            self.groups.remove(group as usize);
        } else {
            self.groups[group as usize] = Group { count, first: first + 1, len: len - 1 };
        }
        let above = first.checked_sub(1).map(|rank| self.counters[self.order[rank as usize] as usize].group);
        let next = match above.filter(|above| self.groups[*above as usize].count == count + 1) {
            Some(above) => {
                self.groups[above as usize].len += 1;
                above
            }
            None => self.groups.insert(Group { count: count + 1, first, len: 1 }) as u32,
        };
        self.counters[counter as usize].group = next;
    }

    fn heaviest(&self, max: usize) -> impl Iterator<Item = Counted> {
        self.order.iter().take(max).map(|counter| {
            let Counter { key, text, error, group, .. } = &self.counters[*counter as usize];
            Counted { key: *key, text: text.clone(), count: self.groups[*group as usize].count, error: *error }
        })
    }

    /// Returns the lowest count, or 0 while there are free counters.
    fn max_error(&self) -> u64 {
        match self.order.last() {
            Some(least) if self.counters.len() == self.max => {
                self.groups[self.counters[*least as usize].group as usize].count
            }
            _ => 0,
        }
    }
}

/// Returns a hash whose highest and lowest bits, which the table uses, do not depend on the shard.
fn hash(key: Digest, placement: &Placement) -> u64 {
    placement.place(key).rotate_left(32)
}

impl std::fmt::Debug for Sketch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sketch(..)")
    }
}
