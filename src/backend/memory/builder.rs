//! [`MemoryBackendBuilder`].

use std::sync::Arc;

use super::MemoryBackend;
use super::row::RowHasher;
use super::table::Table;
use crate::clock::{Clock, SystemClock};
use crate::policy::Secret;

/// Builds a [`MemoryBackend`].
///
/// ```
/// use tollgate::{clock::ManualClock, MemoryBackend};
///
/// let backend = MemoryBackend::builder().max_rows(5).clock(ManualClock::new()).build();
/// assert_eq!(backend.max_rows(), 16); // the minimum
/// ```
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
    /// The rows are divided among shards, and some shards fill up before others. A sliding window needs two rows for
    /// each key.
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

    /// Sets the secret with which limiters on this backend hash keys, and from which the backend derives the positions
    /// of its rows. By default, both the hashes and the positions are random in each process. Rows can be
    /// [saved](crate::RateLimiter::save) only if the secret is set, and loaded only by a backend with the same secret.
    ///
    /// Clients that know the secret can choose keys whose rows displace those of other keys. Use 16 random bytes, and
    /// store them like a password.
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
