//! A sharded concurrent map.

use std::hash::Hash;

use dashmap::DashMap;

/// A concurrent map. Its methods run closures while a shard is locked, so the closures must not use the map.
#[derive(Debug)]
pub(crate) struct Map<K: Eq + Hash, V>(DashMap<K, V>);

impl<K: Eq + Hash, V: Default> Map<K, V> {
    pub(crate) fn with<R>(&self, key: &K, act: impl FnOnce(&mut V) -> R) -> Option<R> {
        self.0.get_mut(key).map(|mut value| act(&mut value))
    }

    pub(crate) fn with_default<R>(&self, key: K, act: impl FnOnce(&mut V) -> R) -> R {
        act(&mut self.0.entry(key).or_default())
    }

    pub(crate) fn remove_if(&self, key: &K, condition: impl FnOnce(&V) -> bool) {
        self.0.remove_if(key, |_, value| condition(value));
    }

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
