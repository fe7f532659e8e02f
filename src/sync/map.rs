//! A map that threads share, with a lock for each part of it.

use std::hash::Hash;

#[cfg(not(tollgate_models))]
use dashmap::DashMap;

/// Values under keys. While a closure runs, its value is locked, and perhaps others: it must not use the map.
#[cfg(not(tollgate_models))]
#[derive(Debug)]
pub(crate) struct Map<K: Eq + Hash, V>(DashMap<K, V>);

/// The same behind one lock of the model checker.
#[cfg(tollgate_models)]
#[derive(Debug)]
pub(crate) struct Map<K: Eq + Hash, V>(super::Mutex<std::collections::HashMap<K, V>>);

#[cfg(not(tollgate_models))]
impl<K: Eq + Hash, V> Map<K, V> {
    /// Uses the value of a key, if it has one.
    pub(crate) fn with<R>(&self, key: &K, act: impl FnOnce(&mut V) -> R) -> Option<R> {
        self.0.get_mut(key).map(|mut value| act(&mut value))
    }

    /// Uses the value of a key, which gets the default first if it has none.
    pub(crate) fn with_default<R>(&self, key: K, act: impl FnOnce(&mut V) -> R) -> R
    where
        V: Default,
    {
        act(&mut self.0.entry(key).or_default())
    }

    /// A copy of the value of a key.
    pub(crate) fn get(&self, key: &K) -> Option<V>
    where
        V: Copy,
    {
        self.0.get(key).map(|value| *value)
    }

    /// Sets the value of a key.
    pub(crate) fn insert(&self, key: K, value: V) {
        self.0.insert(key, value);
    }

    /// Removes the value of a key.
    pub(crate) fn remove(&self, key: &K) -> Option<V> {
        self.0.remove(key).map(|(_, value)| value)
    }

    /// How many keys have a value.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Removes the value of a key if `is_so` holds of it.
    pub(crate) fn remove_if(&self, key: &K, is_so: impl FnOnce(&V) -> bool) {
        self.0.remove_if(key, |_, value| is_so(value));
    }
}

#[cfg(tollgate_models)]
impl<K: Eq + Hash, V> Map<K, V> {
    pub(crate) fn with<R>(&self, key: &K, act: impl FnOnce(&mut V) -> R) -> Option<R> {
        self.all().get_mut(key).map(act)
    }

    pub(crate) fn with_default<R>(&self, key: K, act: impl FnOnce(&mut V) -> R) -> R
    where
        V: Default,
    {
        act(self.all().entry(key).or_default())
    }

    pub(crate) fn get(&self, key: &K) -> Option<V>
    where
        V: Copy,
    {
        self.all().get(key).copied()
    }

    pub(crate) fn insert(&self, key: K, value: V) {
        self.all().insert(key, value);
    }

    pub(crate) fn remove(&self, key: &K) -> Option<V> {
        self.all().remove(key)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.all().len()
    }

    pub(crate) fn remove_if(&self, key: &K, is_so: impl FnOnce(&V) -> bool) {
        let mut all = self.all();
        if all.get(key).is_some_and(is_so) {
            all.remove(key);
        }
    }

    fn all(&self) -> super::MutexGuard<'_, std::collections::HashMap<K, V>> {
        self.0.lock().unwrap_or_else(super::PoisonError::into_inner)
    }
}

impl<K: Eq + Hash, V> Default for Map<K, V> {
    fn default() -> Map<K, V> {
        Map(Default::default())
    }
}
