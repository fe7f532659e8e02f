//! What threads share: the standard library's locks and atomics.
//!
//! In the package `proof/` they are those of a model checker, which tries the orders in which threads can meet: of
//! [loom](https://docs.rs/loom) all of them, of [shuttle](https://docs.rs/shuttle) many at random. What is checked is
//! this very code. The models stand beside it, in files named `models.rs`.

#[cfg(all(test, loom))]
pub(crate) mod model;

#[cfg(loom)]
pub(crate) use loom::sync::{Mutex, MutexGuard, RwLock, RwLockWriteGuard, atomic};
#[cfg(shuttle)]
pub(crate) use shuttle::sync::{Mutex, MutexGuard, RwLock, RwLockWriteGuard, atomic};
pub(crate) use std::sync::PoisonError;
#[cfg(not(any(loom, shuttle)))]
pub(crate) use std::sync::{Mutex, MutexGuard, RwLock, atomic};
