//! The lock of a shard.
//!
//! It spins. Who holds it computes for some twenty nanoseconds; a newcomer may move a few thousand rows (more only where
//! there may be more than sixteen million), or wait for the overflow rows. A lock under which others sleep has to look for
//! sleepers when it is given back, which costs as much again as taking it; this one is given back by a plain store.

#[cfg(not(tollgate_models))]
pub(super) use spin::mutex::SpinMutexGuard as Guard;

#[cfg(tollgate_models)]
pub(super) use crate::sync::MutexGuard as Guard;

#[cfg(not(tollgate_models))]
type Inner<T> = spin::mutex::SpinMutex<T>;
#[cfg(tollgate_models)]
type Inner<T> = crate::sync::Mutex<T>;

/// On a cache line of its own: who takes one lock does not disturb who takes the next.
#[repr(align(64))]
pub(super) struct Lock<T>(Inner<T>);

impl<T> Lock<T> {
    pub(super) fn new(value: T) -> Lock<T> {
        Lock(Inner::new(value))
    }

    #[cfg(tollgate_models)]
    pub(super) fn lock(&self) -> Guard<'_, T> {
        self.0.lock().unwrap_or_else(crate::sync::PoisonError::into_inner)
    }

    #[cfg(not(tollgate_models))]
    #[inline(always)]
    pub(super) fn lock(&self) -> Guard<'_, T> {
        self.0.try_lock().unwrap_or_else(|| self.wait())
    }

    #[cfg(not(tollgate_models))]
    #[cold]
    fn wait(&self) -> Guard<'_, T> {
        let mut tries = 0_u32;
        loop {
            match tries {
                0..SPINS => std::hint::spin_loop(),
                // Who holds it has lost its core: it may be this one.
                SPINS..YIELDS => std::thread::yield_now(),
                // And may have to wait there behind threads that yield to each other only.
                _ => std::thread::sleep(NAP),
            }
            tries = tries.saturating_add(1);
            // Looked at before it is tried: trying takes the line away from who is about to give the lock back.
            if !self.0.is_locked() {
                if let Some(guard) = self.0.try_lock() {
                    return guard;
                }
            }
        }
    }
}

/// Looks at the lock before the core is offered to others: some microseconds.
#[cfg(not(tollgate_models))]
const SPINS: u32 = 200;
#[cfg(not(tollgate_models))]
const YIELDS: u32 = SPINS + 20;
#[cfg(not(tollgate_models))]
const NAP: std::time::Duration = std::time::Duration::from_micros(50);
