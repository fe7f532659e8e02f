//! A memory backend that tests can make unavailable.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tollgate::backend::{Adjustment, Backend, BackendFuture, Health, RowId, Steps, Take};
use tollgate::{
    MemoryBackend, RateLimiter,
    backend::{Error, ErrorKind},
    clock::{Clock, ManualClock},
    limiter::RateLimiterBuilder,
    policy::PolicyName,
};

#[derive(Clone, Debug)]
pub(crate) struct FlakyBackend {
    memory: Arc<MemoryBackend>,
    down: Arc<AtomicBool>,
    clock: ManualClock,
}

impl FlakyBackend {
    pub(crate) fn new() -> FlakyBackend {
        let clock = ManualClock::new();
        let memory = Arc::new(MemoryBackend::builder().clock(clock.clone()).build());
        FlakyBackend { memory, down: Arc::default(), clock }
    }

    pub(crate) fn limiter(&self) -> RateLimiterBuilder {
        // Without the block cache, every decision comes from the backend.
        RateLimiter::builder(self.clone()).block_cache(0)
    }

    pub(crate) fn clock(&self) -> &ManualClock {
        &self.clock
    }

    pub(crate) fn set_down(&self, down: bool) {
        self.down.store(down, Ordering::Relaxed);
    }

    fn reach(&self) -> Result<&MemoryBackend, Error> {
        if self.down.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Unavailable, "the server is down").with_source("connection refused"));
        }
        Ok(&self.memory)
    }
}

impl Backend for FlakyBackend {
    fn acquire(&self, takes: &[Take<'_>]) -> BackendFuture<Steps> {
        self.reach().map_or_else(|error| BackendFuture::ready(Err(error)), |memory| memory.acquire(takes))
    }

    fn peek(&self, takes: &[Take<'_>]) -> BackendFuture<Steps> {
        self.reach().map_or_else(|error| BackendFuture::ready(Err(error)), |memory| memory.peek(takes))
    }

    fn settle(&self, settlements: &[Adjustment<'_>]) -> BackendFuture<bool> {
        self.memory.settle(settlements)
    }

    fn reset(&self, rows: &[RowId<'_>]) -> BackendFuture<usize> {
        self.memory.reset(rows)
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn clock(&self) -> Option<Arc<dyn Clock>> {
        Some(Arc::new(self.clock.clone()))
    }

    fn health(&self) -> Health {
        let mut health = self.memory.health();
        health.circuit_open = Some(self.down.load(Ordering::Relaxed));
        health
    }

    fn rows_by_policy(&self) -> Vec<(PolicyName, usize)> {
        self.memory.rows_by_policy()
    }
}
