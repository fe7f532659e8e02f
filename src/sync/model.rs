//! The model runner: runs threads in every interleaving, and with every value that an atomic load may return.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use loom::model::Builder;
use loom::sync::Mutex;
use loom::thread::{self, JoinHandle};

pub(crate) fn every_order(model: impl Fn() + Send + Sync + 'static) {
    orders(None, model);
}

/// Runs a model in every interleaving with at most `max` preemptions. Two preemptions reveal almost every bug.
pub(crate) fn orders_with_preemptions(max: usize, model: impl Fn() + Send + Sync + 'static) {
    orders(Some(max), model);
}

fn orders(max_preemptions: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    let count = Arc::new(AtomicUsize::new(0));
    let mut checker = Builder::new();
    checker.max_branches = 100_000;
    checker.preemption_bound = max_preemptions;
    let (model, counted) = (Arc::new(model), Arc::clone(&count));
    checker.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        let model = Arc::clone(&model);
        // The stack of loom's first thread is too small for a decision.
        thread(move || model()).join().expect("the model holds");
    });
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    let count = count.load(Ordering::Relaxed);
    println!("{count} orders: {name}");
    assert!(count > 1, "{name}: loom ran only one order, so the threads share no state");
}

/// Spawns a thread. A model may spawn at most three threads.
pub(crate) fn thread<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    thread::Builder::new().stack_size(STACK).spawn(run).expect("loom allows one more thread")
}

/// The stack size in machine words.
const STACK: usize = 0x8000;

/// Replaces the sharded map with a single map in a loom mutex.
#[derive(Debug)]
pub(crate) struct Map<K: Eq + Hash, V>(Mutex<HashMap<K, V>>);

impl<K: Eq + Hash, V: Default> Map<K, V> {
    pub(crate) fn with<R>(&self, key: &K, act: impl FnOnce(&mut V) -> R) -> Option<R> {
        self.0.lock().unwrap().get_mut(key).map(act)
    }

    pub(crate) fn with_default<R>(&self, key: K, act: impl FnOnce(&mut V) -> R) -> R {
        act(self.0.lock().unwrap().entry(key).or_default())
    }

    pub(crate) fn remove_if(&self, key: &K, condition: impl FnOnce(&V) -> bool) {
        let mut all = self.0.lock().unwrap();
        if all.get(key).is_some_and(condition) {
            all.remove(key);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

impl<K: Eq + Hash, V> Default for Map<K, V> {
    fn default() -> Map<K, V> {
        Map(Mutex::default())
    }
}
