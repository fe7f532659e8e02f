//! The memory backend, which stores a limited number of rows in a DashMap.

mod builder;
mod call;
mod ledger;
#[cfg_attr(tollgate_models, path = "models/map.rs")]
mod map;
#[cfg(all(test, tollgate_models))]
mod models;
mod row;
mod saved;
mod table;

use std::fmt;
use std::sync::Arc;

use self::call::{Location, LockedCall};
use self::table::Table;
use super::{Adjustment, Backend, BackendFuture, Error, Health, LoadedRows, RowId, SavedRows, Steps, Take};
use crate::algorithm::{Micros, settle, takes_effect};
use crate::clock::{Clock, Sleep};
use crate::policy::{MAX_WINDOWS, PolicyName, Secret};

pub use builder::MemoryBackendBuilder;

/// The default backend, which stores rows in the memory of this process.
///
/// - **Small.** A row takes 40 bytes for each quota of its policy, or 47 to 88 bytes including its share of empty
///   slots. Adding a row also drops a few fully refilled rows, so no timers or sweeps are needed.
/// - **Bounded.** When [`max_rows`](MemoryBackendBuilder::max_rows) is reached, a new row replaces either a row of a
///   policy that has more rows than the new row's policy, or a row that is not denying requests. The key of the
///   replaced row has its full quota again. If no row can be replaced, several new keys of a policy share one row and
///   one quota.
/// - **Fair.** A flood of keys under one policy does not affect other policies, and denied keys stay denied.
/// - **Restarts.** A limiter can [save](crate::RateLimiter::save_to_file) the rows to a file and load them again.
///
/// ```
/// use std::sync::Arc;
/// use tollgate::{clock::ManualClock, MemoryBackend, Policy, Quota, RateLimiter, MINUTE};
///
/// static API: Policy = Policy::new("api", Quota::token_bucket(10, MINUTE));
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::LimitError> {
/// let rows = Arc::new(MemoryBackend::builder().max_rows(50_000).clock(ManualClock::new()).build());
/// RateLimiter::new(rows.clone()).limit(&API, "ada").await?;
/// assert_eq!((rows.len(), rows.max_rows()), (1, 50_000));
/// # Ok(()) }
/// ```
pub struct MemoryBackend {
    table: Table,
    clock: Arc<dyn Clock>,
    has_own_clock: bool,
    max_rows: usize,
    secret: Option<Secret>,
}

impl MemoryBackend {
    /// Creates a backend that holds up to 1,000,000 rows and uses the system clock.
    pub fn new() -> MemoryBackend {
        MemoryBackend::builder().build()
    }

    /// Returns a builder.
    pub fn builder() -> MemoryBackendBuilder {
        MemoryBackendBuilder::new()
    }

    /// Returns the number of rows, including expired rows that have not been dropped yet.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns `true` if there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the maximum number of rows.
    pub fn max_rows(&self) -> usize {
        self.max_rows
    }

    fn decide(&self, takes: &[Take<'_>], store: bool) -> Steps {
        let mut call = LockedCall::new(&self.table, takes.iter().map(|take| (&take.row, take.window)));
        // Read the clock while the rows are locked, so that no other thread can have written them at a later time.
        let now = self.clock.now();
        call.decide(takes, now, store)
    }

    fn settle_one(&self, settlement: &Adjustment<'_>) -> bool {
        let Adjustment { row, window, quota, receipt, actual } = settlement;
        let mut call = LockedCall::new(&self.table, std::iter::once((row, *window)));
        let now = self.clock.now();
        let mut row = call.load(self.table.hasher().key(row).window(*window), row, quota, now);
        if matches!(row.location, Location::Overflow(_)) && *actual <= receipt.cost {
            return false; // An overflow row also contains the spent tokens of other keys, so it allows no refunds.
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

    fn secret(&self) -> Option<Secret> {
        self.secret
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

    fn save_rows(&self) -> Option<SavedRows> {
        Some(saved::save(&self.table, self.clock.now()))
    }

    fn load_rows(&self, bytes: &[u8]) -> Result<LoadedRows, Error> {
        saved::load(&self.table, self.clock.now(), bytes)
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
