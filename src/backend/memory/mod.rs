//! The memory backend: rows in a DashMap with a cap, fair between policies, without a background task.

mod builder;
mod call;
mod ledger;
#[cfg_attr(tollgate_models, path = "models/map.rs")]
mod map;
#[cfg(all(test, tollgate_models))]
mod models;
mod row;
mod table;

use std::fmt;
use std::sync::Arc;

use self::call::{Location, LockedCall};
use self::table::Table;
use super::{Adjustment, Backend, BackendFuture, Health, RowId, Steps, Take};
use crate::algorithm::{Micros, settle, takes_effect};
use crate::clock::{Clock, Sleep};
use crate::policy::{MAX_WINDOWS, PolicyName};

pub use builder::MemoryBackendBuilder;

/// The default backend: rows in this process's memory.
///
/// - A key has a row of 40 bytes for each quota (47 to 88 with its share of empty slots) until the tokens it spent are refilled. Adding
///   a key drops expired rows on the way, so there is no timer, no sweep and no pause.
/// - The table never exceeds [`max_rows`](MemoryBackendBuilder::max_rows). When it is full, the policy that filled it
///   bears the cost: a new key replaces a row of a larger policy, or a row that denies nothing, and what that key spent
///   is forgotten. If there is no such row, new keys of a policy share one row and thus one quota. Under a flood of
///   keys, denied keys stay denied, and callers of other policies are not affected.
/// - All charges of a call are decided together while the shards of their rows are locked. Locks are taken in a fixed
///   order, so calls cannot deadlock.
///
/// ```
/// use tollgate::{clock::ManualClock, MemoryBackend, Policy, Quota, RateLimiter, MINUTE};
///
/// static API: Policy = Policy::new("api", Quota::token_bucket(10, MINUTE));
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::LimitError> {
/// let rows = MemoryBackend::builder().max_rows(50_000).clock(ManualClock::new()).build();
/// let rows = std::sync::Arc::new(rows); // to inspect it below
/// let limiter = RateLimiter::new(rows.clone());
/// limiter.limit(&API, "ada").await?;
/// assert_eq!((rows.len(), rows.max_rows()), (1, 50_000));
/// # Ok(()) }
/// ```
pub struct MemoryBackend {
    table: Table,
    clock: Arc<dyn Clock>,
    has_own_clock: bool,
    max_rows: usize,
}

impl MemoryBackend {
    /// Creates a backend that holds up to 1,000,000 rows and uses the system clock, like the one in
    /// `RateLimiter::default()`.
    pub fn new() -> MemoryBackend {
        MemoryBackend::builder().build()
    }

    /// Returns a builder to set the number of rows and the clock.
    pub fn builder() -> MemoryBackendBuilder {
        MemoryBackendBuilder::new()
    }

    /// The number of rows, including expired ones not dropped yet.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The maximum number of rows.
    pub fn max_rows(&self) -> usize {
        self.max_rows
    }

    fn decide(&self, takes: &[Take<'_>], store: bool) -> Steps {
        let mut call = LockedCall::new(&self.table, takes.iter().map(|take| (&take.row, take.window)));
        // Read after locking: no other thread can have written the rows at a later instant.
        let now = self.clock.now();
        call.decide(takes, now, store)
    }

    fn settle_one(&self, settlement: &Adjustment<'_>) -> bool {
        let Adjustment { row, window, quota, receipt, actual } = settlement;
        let mut call = LockedCall::new(&self.table, std::iter::once((row, *window)));
        let now = self.clock.now();
        let mut row = call.load(self.table.hasher().key(row).window(*window), row, quota, now);
        if matches!(row.location, Location::Overflow(_)) && *actual <= receipt.cost {
            return false; // The shared row holds the spending of others too: nothing is given back.
        }
        let own = call.quota_for(&row, quota);
        let takes_effect = takes_effect(&own, &row.state, receipt, now, *actual);
        let state = settle(&own, &row.state, receipt, now, *actual);
        if state != row.state {
            row.state = state.or_none();
            call.store(&row, quota, now);
        }
        takes_effect
    }
}

impl Backend for MemoryBackend {
    fn acquire(&self, takes: &[Take<'_>]) -> BackendFuture<Steps> {
        BackendFuture::ready(Ok(self.decide(takes, true)))
    }

    fn peek(&self, takes: &[Take<'_>]) -> BackendFuture<Steps> {
        BackendFuture::ready(Ok(self.decide(takes, false)))
    }

    fn settle(&self, settlements: &[Adjustment<'_>]) -> BackendFuture<bool> {
        let took_effect = settlements.iter().filter(|settlement| self.settle_one(settlement)).count();
        BackendFuture::ready(Ok(took_effect == settlements.len()))
    }

    fn reset(&self, rows: &[RowId<'_>]) -> BackendFuture<usize> {
        let mut removed = 0;
        for row in rows {
            let key = self.table.hasher().key(row);
            let mut shard = self.table.lock(self.table.shard_of(key));
            let windows = (0..MAX_WINDOWS as u8).map(|window| key.window(window));
            removed += usize::from(windows.filter(|key| shard.remove_with_carry(*key)).count() > 0);
        }
        BackendFuture::ready(Ok(removed))
    }

    fn sleep_until(&self, instant: Micros) -> Option<Sleep> {
        self.clock.sleep_until(instant)
    }

    fn clock(&self) -> Option<Arc<dyn Clock>> {
        self.has_own_clock.then(|| Arc::clone(&self.clock))
    }

    fn health(&self) -> Health {
        let (evictions, overflowed) = self.table.pressure();
        Health { rows: Some(self.len()), evictions: Some(evictions), overflowed: Some(overflowed), ..Health::default() }
    }

    fn rows_by_policy(&self) -> Vec<(PolicyName, usize)> {
        let mut sizes = self.table.sizes();
        sizes.sort_by(|(a, x), (b, y)| y.cmp(x).then_with(|| a.as_str().cmp(b.as_str())));
        sizes
    }
}

impl Default for MemoryBackend {
    fn default() -> MemoryBackend {
        MemoryBackend::new()
    }
}

impl fmt::Debug for MemoryBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBackend")
            .field("len", &self.len())
            .field("max_rows", &self.max_rows)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
