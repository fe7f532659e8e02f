//! What a row is worth remembering for: when it is paid back, and whether it denies anything.
//!
//! Rows hold no quota, only a short number for one. This table gives out the numbers, and knows of each quota its stamp
//! and enough to tell, from the outside and without the arithmetic, when such a row will be worthless.
//!
//! There are a thousand numbers. Quotas that come after that share the number of another: a row of theirs looks as if
//! another quota had written it (and is read as a foreign one), and is taken to be worth something for as long as either quota says.

use super::row::{QuotaId, Row};
use crate::algorithm::{Algorithm, Micros, Quota, State};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// For each number: whose it is, and what its rows are worth.
pub(super) struct Worth(Box<[Entry; QuotaId::COUNT]>);

/// Numbers are not negative, so that the order of their bits is their order.
struct Entry {
    /// The stamp of the quota with this number, 0 if it is free.
    stamp: AtomicU32,
    /// Microseconds in which one token is paid back.
    per_token: AtomicU64,
    /// Microseconds to add: windows pay back at their boundaries.
    slack: AtomicU64,
    /// A row that stands above this denies a cost of 1. Kept as `u64::MAX - bits`, so that the least wins too.
    room: AtomicU64,
}

impl Worth {
    pub(super) fn new() -> Worth {
        let free = || Entry {
            stamp: AtomicU32::new(0),
            per_token: AtomicU64::new(0),
            slack: AtomicU64::new(0),
            room: AtomicU64::new(0),
        };
        Worth(Box::new(std::array::from_fn(|_| free())))
    }

    /// The number of a quota, for a row that is about to be stored.
    pub(super) fn learn(&self, quota: &Quota) -> QuotaId {
        let id = self.number(quota.stamp());
        let entry = self.entry(id);
        let period = quota.period_micros() as f64;
        let (per_token, slack) = match quota.algorithm() {
            Algorithm::TokenBucket => (period / quota.rate() as f64, 0.0),
            Algorithm::FixedWindow => (period / quota.rate() as f64, period),
            Algorithm::SlidingWindow => (0.0, 2.0 * period),
        };
        let room = quota.limit().saturating_sub(1) as f64;
        // By everybody, not just by who took the number: a row must not be stored before its worth is known.
        raise(&entry.per_token, per_token.to_bits());
        raise(&entry.slack, slack.to_bits());
        raise(&entry.room, u64::MAX - room.to_bits());
        id
    }

    /// From when nothing of the row stands: a whole second, up to a window late.
    #[cold]
    fn clear(&self, row: &Row) -> Micros {
        let entry = self.entry(row.quota());
        let micros = row.spent() * load(&entry.per_token) + load(&entry.slack);
        row.at().plus((micros + 0.999) as u64).to_whole_second()
    }

    /// What the row says, without its twin. From when it is clear only another quota needs to know.
    #[inline(always)]
    pub(super) fn state_for(&self, row: &Row, quota: &Quota) -> State {
        let stamp = self.stamp(row);
        let clear = if stamp == quota.stamp() { Micros::EPOCH } else { self.clear(row) };
        State { spent: row.spent(), at: row.at(), carry: 0.0, stamp, clear }
    }

    /// The stamp of the quota that wrote a row.
    pub(super) fn stamp(&self, row: &Row) -> u32 {
        self.entry(row.quota()).stamp.load(Ordering::Relaxed)
    }

    /// Whether everything of the row has been paid back.
    pub(super) fn is_worthless(&self, row: &Row, now: Micros) -> bool {
        self.ahead(row, row.spent(), now) <= 0.0
    }

    /// What the loss of a row that stands at `spent` would forgive: `None` if it denies a cost of 1, else the share of
    /// a full row's time that is left until it is worthless.
    pub(super) fn share(&self, row: &Row, spent: f64, now: Micros) -> Option<f64> {
        let entry = self.entry(row.quota());
        let room = f64::from_bits(u64::MAX - entry.room.load(Ordering::Relaxed));
        let over = spent - room;
        if over > 0.0 && self.ahead(row, over, now) > 0.0 {
            return None;
        }
        // A sliding window's count is worth the same to its end, but few are worth less than many.
        let full = (room + 1.0) * load(&entry.per_token) + load(&entry.slack);
        Some(self.ahead(row, spent, now) / full.max(1.0) * (spent / (room + 1.0)).max(f64::MIN_POSITIVE))
    }

    /// Whether the rows of this quota carry spending in their twins: those of sliding windows do.
    pub(super) fn twins_spend(&self, row: &Row) -> bool {
        load(&self.entry(row.quota()).per_token) == 0.0
    }

    /// Microseconds from `now` until `tokens` of the row are paid back, at the latest.
    fn ahead(&self, row: &Row, tokens: f64, now: Micros) -> f64 {
        let entry = self.entry(row.quota());
        let elapsed = now.get() as f64 - row.at().get() as f64;
        tokens * load(&entry.per_token) + load(&entry.slack) - elapsed
    }

    /// The number that belongs to a stamp, a free one if none does yet, a shared one if none is free.
    fn number(&self, stamp: u32) -> QuotaId {
        // The low two bits of a stamp are the algorithm.
        let home = (stamp >> 2) as usize;
        for step in 0..QuotaId::COUNT {
            let id = QuotaId::new(home + step);
            let known = &self.entry(id).stamp;
            let current = match known.load(Ordering::Relaxed) {
                0 => known
                    .compare_exchange(0, stamp, Ordering::Relaxed, Ordering::Relaxed)
                    .map_or_else(|other| other, |_| stamp),
                other => other,
            };
            if current == stamp {
                return id;
            }
        }
        QuotaId::new(home)
    }

    fn entry(&self, id: QuotaId) -> &Entry {
        &self.0[id.number()]
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::SECOND;

    #[test]
    fn numbers_run_out_and_are_shared_then() {
        let worth = Worth::new();
        let quotas: Vec<Quota> = (1..=2000).map(|rate| Quota::token_bucket(rate, SECOND)).collect();
        let ids: Vec<QuotaId> = quotas.iter().map(|quota| worth.learn(quota)).collect();
        for (quota, id) in quotas.iter().zip(&ids).take(QuotaId::COUNT) {
            assert_eq!(worth.stamp(&Row::new(1.0, Micros::EPOCH, *id, false)), quota.stamp());
            assert_eq!(worth.learn(quota), *id);
        }
        // Of one that came too late the rows look as another quota's.
        let late = Row::new(1.0, Micros::EPOCH, ids[1999], false);
        assert_ne!(worth.stamp(&late), quotas[1999].stamp());
        assert!(!worth.is_worthless(&late, Micros::EPOCH));
    }
}
