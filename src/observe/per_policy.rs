//! A map that holds a value for each policy.

use std::sync::{Arc, OnceLock};

use dashmap::DashMap;

use crate::policy::PolicyName;

#[derive(Debug)]
pub(super) struct PerPolicy<T> {
    known: DashMap<PolicyName, Arc<T>>,
    others: OnceLock<Arc<T>>,
}

impl<T> PerPolicy<T> {
    pub(super) fn new() -> PerPolicy<T> {
        PerPolicy { known: DashMap::new(), others: OnceLock::new() }
    }

    /// Returns the value of a policy. When the value is first needed, `make` creates it from the policy's name.
    /// Policies after the first [`MAX_POLICIES`] share one value, which is created from [`OTHERS`].
    pub(super) fn of(&self, policy: &PolicyName, make: impl Fn(&str) -> T) -> Arc<T> {
        if let Some(value) = self.known.get(policy) {
            return Arc::clone(&value);
        }
        if self.known.len() >= MAX_POLICIES {
            return Arc::clone(self.others.get_or_init(|| Arc::new(make(OTHERS))));
        }
        Arc::clone(&self.known.entry(policy.clone()).or_insert_with(|| Arc::new(make(policy.as_str()))))
    }

    /// Returns the value of a policy. If the policy has none, returns the shared value, if there is one.
    pub(super) fn get(&self, policy: &PolicyName) -> Option<Arc<T>> {
        self.known.get(policy).map(|value| Arc::clone(&value)).or_else(|| self.others.get().cloned())
    }

    pub(super) fn for_each(&self, apply: impl Fn(&T)) {
        self.known.iter().for_each(|value| apply(&value));
        self.others.get().into_iter().for_each(|value| apply(value));
    }
}

/// Concurrent threads may exceed this limit by a few policies.
const MAX_POLICIES: usize = 512;

const OTHERS: &str = "(others)";

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn name(number: usize) -> PolicyName {
        PolicyName::try_new(format!("policy-{number}")).expect("a valid name")
    }

    #[test]
    fn policies_after_the_first_512_share_one_value() {
        let all = PerPolicy::new();
        for _round in 0..2 {
            for number in 0..MAX_POLICIES {
                assert_eq!(*all.of(&name(number), str::to_owned), name(number).as_str());
            }
            for number in MAX_POLICIES..3 * MAX_POLICIES {
                assert_eq!(*all.of(&name(number), str::to_owned), OTHERS);
            }
        }
        assert_eq!(all.known.len(), MAX_POLICIES);
    }

    #[test]
    fn policies_with_the_same_fnv_1a_hash_have_separate_values() {
        let names = ["8yn0iYCKYHlIj4-BwPqk", "GReLUrM4wMqfg9yzV3KQ"].map(PolicyName::new);
        let all = PerPolicy::new();
        for _round in 0..2 {
            for name in &names {
                assert_eq!(*all.of(name, str::to_owned), name.as_str());
            }
        }
    }

    #[test]
    fn concurrent_threads_get_the_same_value() {
        let all = PerPolicy::new();
        let both = Barrier::new(2);
        let thread = || {
            for number in 0..MAX_POLICIES / 2 {
                both.wait();
                all.of(&name(number), |_| AtomicUsize::new(0)).fetch_add(1, Ordering::Relaxed);
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(thread);
            scope.spawn(thread);
        });
        for number in 0..MAX_POLICIES / 2 {
            assert_eq!(all.of(&name(number), |_| AtomicUsize::new(0)).load(Ordering::Relaxed), 2, "{number}");
        }
        assert_eq!(all.known.len(), MAX_POLICIES / 2);
    }
}
