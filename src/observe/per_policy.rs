//! Something for each policy, found without a lock.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::policy::PolicyName;

/// A value for each of the first [`MOST`] policies, made when it is first asked for, and one for all others together.
///
/// Names are the operator's, and few. A program that makes them up from what clients send is held to this.
pub(super) struct PerPolicy<T> {
    /// Beginning with the name's number; where another policy is already, in the next free one. None is ever freed.
    slots: Box<[OnceLock<Box<Slot<T>>>]>,
    left: AtomicUsize,
    others: OnceLock<T>,
}

struct Slot<T> {
    /// Not only its number, which two names may have in common.
    policy: PolicyName,
    value: T,
}

impl<T> PerPolicy<T> {
    pub(super) fn new() -> PerPolicy<T> {
        PerPolicy {
            slots: std::iter::repeat_with(OnceLock::new).take(SLOTS).collect(),
            left: AtomicUsize::new(MOST),
            others: OnceLock::new(),
        }
    }

    /// The policy's value. `make` is told its name, or [`OTHERS`].
    pub(super) fn of(&self, policy: &PolicyName, make: impl Fn(&str) -> T) -> &T {
        // All of them, beginning at its own.
        let (before, after) = self.slots.split_at(policy.bits() as usize % SLOTS);
        for slot in after.iter().chain(before) {
            let new = || Slot { policy: policy.clone(), value: make(policy.as_str()) };
            if slot.get().is_none() && !self.settle(slot, new) {
                break;
            }
            match slot.get() {
                Some(settled) if settled.policy == *policy => return &settled.value,
                _ => {}
            }
        }
        self.others.get_or_init(|| make(OTHERS))
    }

    /// Puts something into an empty slot, unless another thread was first; `false` if there are too many already.
    fn settle(&self, slot: &OnceLock<Box<Slot<T>>>, make: impl FnOnce() -> Slot<T>) -> bool {
        let one_less = |left: usize| left.checked_sub(1);
        if self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_err() {
            return false;
        }
        if slot.set(Box::new(make())).is_err() {
            self.left.fetch_add(1, Ordering::Relaxed);
        }
        true
    }
}

/// Policies that are told apart.
const MOST: usize = 512;

/// Twice as many, so that the way to a free one is short.
const SLOTS: usize = 2 * MOST;

/// The name of those that are not.
pub(super) const OTHERS: &str = "(others)";

impl<T> fmt::Debug for PerPolicy<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerPolicy").field("left", &self.left).finish_non_exhaustive()
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
        assert_eq!(all.slots.iter().filter(|slot| slot.get().is_some()).count(), MOST);
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
        let make = |_: &str| {
            both.wait();
            AtomicUsize::new(0)
        };
        let thread = || {
            for number in 0..MOST / 2 {
                all.of(&name(number), make).fetch_add(1, Ordering::Relaxed);
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(thread);
            scope.spawn(thread);
        });
        for number in 0..MOST / 2 {
            assert_eq!(all.of(&name(number), |_| AtomicUsize::new(0)).load(Ordering::Relaxed), 2, "{number}");
        }
        assert_eq!(all.left.load(Ordering::Relaxed), MOST / 2);
    }
}
