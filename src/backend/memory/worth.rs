//! What a row is worth remembering for: when it is paid back, and whether it denies anything.
//!
//! Rows hold no quota, only its ten-bit stamp. For each stamp this table knows enough to tell, from the outside and without
//! the arithmetic, when such a row will be worthless. Two quotas that share a stamp are taken for the slower of the two.

use std::sync::atomic::{AtomicU64, Ordering};

use super::row::Row;
use crate::algorithm::{Algorithm, Micros, Quota};

/// For each stamp: what its rows are worth. Numbers are not negative, so that the order of their bits is their order.
pub(super) struct Worth(Box<[Entry; 1 << 10]>);

struct Entry {
    /// Microseconds in which one token is paid back.
    per_token: AtomicU64,
    /// Microseconds to add: windows pay back at their boundaries.
    slack: AtomicU64,
    /// A row that stands above this denies a cost of 1. Kept as `u64::MAX - bits`, so that the least wins too.
    room: AtomicU64,
}

impl Worth {
    pub(super) fn new() -> Worth {
        let zero = || Entry { per_token: AtomicU64::new(0), slack: AtomicU64::new(0), room: AtomicU64::new(0) };
        let entries: Box<[Entry]> = (0..1 << 10).map(|_| zero()).collect();
        match entries.try_into() {
            Ok(entries) => Worth(entries),
            Err(_) => unreachable!("as many entries as were made"),
        }
    }

    /// To be called before the first row under a quota is stored.
    pub(super) fn learn(&self, quota: &Quota) {
        let period = quota.period_micros() as f64;
        let (per_token, slack) = match quota.algorithm() {
            Algorithm::TokenBucket => (period / quota.rate() as f64, 0.0),
            Algorithm::FixedWindow => (period / quota.rate() as f64, period),
            Algorithm::SlidingWindow => (0.0, 2.0 * period),
        };
        let room = quota.limit().saturating_sub(1) as f64;
        let entry = self.entry(quota.stamp());
        raise(&entry.per_token, per_token.to_bits());
        raise(&entry.slack, slack.to_bits());
        raise(&entry.room, u64::MAX - room.to_bits());
    }

    /// Whether everything of the row has been paid back.
    pub(super) fn is_worthless(&self, row: &Row, now: Micros) -> bool {
        self.ahead(row, row.spent(), now) <= 0.0
    }

    /// What the loss of a row that stands at `spent` would forgive: `None` if it denies a cost of 1, else the share of a full
    /// row's time that is left until it is worthless.
    pub(super) fn share(&self, row: &Row, spent: f64, now: Micros) -> Option<f64> {
        let entry = self.entry(row.stamp());
        let room = f64::from_bits(u64::MAX - entry.room.load(Ordering::Relaxed));
        let over = spent - room;
        if over > 0.0 && self.ahead(row, over, now) > 0.0 {
            return None;
        }
        // A sliding window's count is worth the same to its end, but few are worth less than many.
        let full = (room + 1.0) * load(&entry.per_token) + load(&entry.slack);
        Some(self.ahead(row, spent, now) / full.max(1.0) * (spent / (room + 1.0)).max(f64::MIN_POSITIVE))
    }

    /// Whether the rows of this stamp carry spending in their twins: those of sliding windows do.
    pub(super) fn twins_spend(&self, stamp: u16) -> bool {
        load(&self.entry(stamp).per_token) == 0.0
    }

    /// The instant until which `tokens` may matter to a row written now, at the latest.
    pub(super) fn until(&self, stamp: u16, tokens: f64, now: Micros) -> Micros {
        let entry = self.entry(stamp);
        now.plus((tokens * load(&entry.per_token) + load(&entry.slack)).ceil() as u64)
    }

    /// Microseconds from `now` until `tokens` of the row are paid back, at the latest.
    fn ahead(&self, row: &Row, tokens: f64, now: Micros) -> f64 {
        let entry = self.entry(row.stamp());
        let elapsed = now.get() as f64 - row.at().get() as f64;
        tokens * load(&entry.per_token) + load(&entry.slack) - elapsed
    }

    fn entry(&self, stamp: u16) -> &Entry {
        &self.0[usize::from(stamp) & 0x3ff]
    }
}

fn load(number: &AtomicU64) -> f64 {
    f64::from_bits(number.load(Ordering::Relaxed))
}

fn raise(number: &AtomicU64, bits: u64) {
    // Nearly always there already: a load is cheaper than an exchange that other processors notice.
    if number.load(Ordering::Relaxed) < bits {
        number.fetch_max(bits, Ordering::Relaxed);
    }
}
