//! A value for each policy, found without a lock.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::policy::PolicyName;

/// A value for each of the first 512 policies, and one for all others together.
pub(super) struct PerPolicy<T> {
    /// A policy's list is chosen by its name.
    lists: Box<[GrowingList<PolicyName, T>]>,
    known: AtomicUsize,
    others: OnceLock<T>,
}

impl<T> PerPolicy<T> {
    pub(super) fn new() -> PerPolicy<T> {
        PerPolicy {
            lists: std::iter::repeat_with(GrowingList::default).take(MOST).collect(),
            known: AtomicUsize::new(0),
            others: OnceLock::new(),
        }
    }

    /// The value of this policy; `make` is given its name, or [`OTHERS`].
    pub(super) fn of(&self, policy: &PolicyName, make: impl Fn(&str) -> T) -> &T {
        let list = &self.lists[policy.bits() as usize % MOST];
        match list.get(policy) {
            Some(value) => value,
            None if self.known.load(Ordering::Relaxed) >= MOST => self.others.get_or_init(|| make(OTHERS)),
            None => list.get_or_insert(policy, || {
                self.known.fetch_add(1, Ordering::Relaxed);
                make(policy.as_str())
            }),
        }
    }
}

/// A list that is read without a lock, for a few entries. Entries are added at its end and never removed.
#[derive(Debug)]
pub(super) struct GrowingList<K, V>(OnceLock<Box<Entry<K, V>>>);

#[derive(Debug)]
struct Entry<K, V> {
    key: K,
    value: V,
    rest: GrowingList<K, V>,
}

impl<K: Clone + PartialEq, V> GrowingList<K, V> {
    pub(super) fn get(&self, key: &K) -> Option<&V> {
        let entry = self.0.get()?;
        if entry.key == *key { Some(&entry.value) } else { entry.rest.get(key) }
    }

    pub(super) fn get_or_insert(&self, key: &K, make: impl Fn() -> V) -> &V {
        let new = || Box::new(Entry { key: key.clone(), value: make(), rest: GrowingList::default() });
        let entry = self.0.get_or_init(new);
        if entry.key == *key { &entry.value } else { entry.rest.get_or_insert(key, make) }
    }
}

impl<K, V> Default for GrowingList<K, V> {
    fn default() -> GrowingList<K, V> {
        GrowingList(OnceLock::new())
    }
}

/// Policies that are told apart. Threads that come at once may make it a few more.
const MOST: usize = 512;

/// The name of those that are not.
pub(super) const OTHERS: &str = "(others)";

impl<T> fmt::Debug for PerPolicy<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerPolicy").field("known", &self.known).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    fn name(number: usize) -> PolicyName {
        PolicyName::try_new(format!("policy-{number}")).expect("a name")
    }

    #[test]
    fn each_policy_finds_its_own_and_those_beyond_the_bound_share_one() {
        let all = PerPolicy::new();
        for _round in 0..2 {
            for number in 0..MOST {
                assert_eq!(all.of(&name(number), str::to_owned), name(number).as_str());
            }
            for number in MOST..3 * MOST {
                assert_eq!(all.of(&name(number), str::to_owned), OTHERS);
            }
        }
        assert_eq!(all.known.load(Ordering::Relaxed), MOST);
    }

    #[test]
    fn two_names_with_one_fnv_1a_hash_have_a_value_each() {
        // A published pair: policies were identified by that hash.
        let names = ["8yn0iYCKYHlIj4-BwPqk", "GReLUrM4wMqfg9yzV3KQ"].map(PolicyName::new);
        let all = PerPolicy::new();
        for _round in 0..2 {
            for name in &names {
                assert_eq!(all.of(name, str::to_owned), name.as_str());
            }
        }
    }

    #[test]
    fn threads_that_come_at_once_find_the_same() {
        let all = PerPolicy::new();
        // Both find the same place empty, each time.
        let both = Barrier::new(2);
        let thread = || {
            for number in 0..MOST / 2 {
                both.wait();
                all.of(&name(number), |_| AtomicUsize::new(0)).fetch_add(1, Ordering::Relaxed);
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(thread);
            scope.spawn(thread);
        });
        for number in 0..MOST / 2 {
            assert_eq!(all.of(&name(number), |_| AtomicUsize::new(0)).load(Ordering::Relaxed), 2, "{number}");
        }
        assert_eq!(all.known.load(Ordering::Relaxed), MOST / 2);
    }
}
