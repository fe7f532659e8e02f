//! [`MemoryBackendBuilder`].

use std::sync::Arc;

use super::MemoryBackend;
use super::row::RowHasher;
use super::table::Table;
use crate::clock::{Clock, SystemClock};
use crate::policy::Secret;

/// Builds a [`MemoryBackend`]. See that type for an example.
#[derive(Clone, Debug)]
pub struct MemoryBackendBuilder {
    max_rows: usize,
    clock: Option<Arc<dyn Clock>>,
    secret: Option<Secret>,
}

impl MemoryBackendBuilder {
    pub(super) fn new() -> MemoryBackendBuilder {
        MemoryBackendBuilder { max_rows: DEFAULT_MAX_ROWS, clock: None, secret: None }
    }

    /// Sets the maximum number of rows. Defaults to 1,000,000 rows, which take at most 90 MB. The minimum is 16.
    ///
    /// Shards fill up unevenly, so evictions may begin before the table is full. A sliding window needs up to two rows
    /// per key.
    #[must_use]
    pub fn max_rows(mut self, rows: usize) -> MemoryBackendBuilder {
        self.max_rows = rows.max(16);
        self
    }

    /// Sets the clock. Defaults to [`SystemClock`].
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> MemoryBackendBuilder {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// Sets the secret from which key hashes and row positions are derived. By default, they are derived from random
    /// numbers. Rows can be [saved](crate::RateLimiter::save) only if a secret is set, and loaded only with the same
    /// secret.
    ///
    /// Use 16 random bytes, and store them like a password: clients that know them can displace the rows of other keys.
    #[must_use]
    pub fn secret(mut self, secret: Secret) -> MemoryBackendBuilder {
        self.secret = Some(secret);
        self
    }

    /// Builds the backend.
    pub fn build(self) -> MemoryBackend {
        MemoryBackend {
            table: Table::new(self.max_rows, self.secret.as_ref().map_or_else(RowHasher::random, RowHasher::of)),
            secret: self.secret,
            has_own_clock: self.clock.is_some(),
            clock: self.clock.unwrap_or_else(|| Arc::new(SystemClock::new())),
            max_rows: self.max_rows,
        }
    }
}

const DEFAULT_MAX_ROWS: usize = 1_000_000;
