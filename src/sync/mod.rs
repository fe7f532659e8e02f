//! Synchronization primitives: the standard library's locks and atomics, and tokio's tasks.
//!
//! The package `proof/` replaces these primitives with those of the model checker [loom](https://docs.rs/loom), which
//! runs the crate's code in every interleaving of its threads. The models are in modules named `models`. They are
//! enabled by a separate flag, because `cfg(loom)` would also apply to dependencies that cannot use loom.

#[cfg(not(all(test, tollgate_models)))]
mod map;
#[cfg(all(test, tollgate_models))]
pub(crate) mod model;
#[cfg(all(test, tollgate_models, feature = "redis"))]
#[path = "tasks_model.rs"]
pub(crate) mod tasks;
#[cfg(all(not(all(test, tollgate_models)), feature = "redis"))]
pub(crate) mod tasks {
    pub(crate) use tokio::runtime::Handle;
    pub(crate) use tokio::task::yield_now;
    pub(crate) use tokio::time::{sleep, timeout};
}

#[cfg(not(all(test, tollgate_models)))]
pub(crate) use map::Map;
#[cfg(all(test, tollgate_models))]
pub(crate) use model::Map;

#[cfg(tollgate_models)]
pub(crate) use loom::sync::{Mutex, MutexGuard, RwLock, atomic};
pub(crate) use std::sync::PoisonError;
#[cfg(not(tollgate_models))]
pub(crate) use std::sync::{Mutex, MutexGuard, RwLock, atomic};
