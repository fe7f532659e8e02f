//! A map that threads share, with a lock for each part of it.

use std::hash::Hash;

use dashmap::DashMap;

/// Values under keys. While a closure runs, its value is locked, and perhaps others: it must not use the map.
#[derive(Debug)]
pub(crate) struct Map<K: Eq + Hash, V>(DashMap<K, V>);

impl<K: Eq + Hash, V: Default> Map<K, V> {
    /// Uses the value of a key, if it has one.
    pub(crate) fn with<R>(&self, key: &K, act: impl FnOnce(&mut V) -> R) -> Option<R> {
        self.0.get_mut(key).map(|mut value| act(&mut value))
    }

    /// Uses the value of a key, which gets the default first if it has none.
    pub(crate) fn with_default<R>(&self, key: K, act: impl FnOnce(&mut V) -> R) -> R {
        act(&mut self.0.entry(key).or_default())
    }

    /// Removes the value of a key if `is_so` holds of it.
    pub(crate) fn remove_if(&self, key: &K, is_so: impl FnOnce(&V) -> bool) {
        self.0.remove_if(key, |_, value| is_so(value));
    }

    /// How many keys have a value.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

impl<K: Eq + Hash, V> Default for Map<K, V> {
    fn default() -> Map<K, V> {
        Map(DashMap::new())
    }
}
