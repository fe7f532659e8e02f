//! Paused rows.

use std::collections::HashMap;

use crate::algorithm::Micros;
use crate::policy::Digest;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{PoisonError, RwLock};

/// The end of each pause, keyed by the digest of the paused row. All times refer to the local clock.
#[derive(Debug, Default)]
pub(in crate::limiter) struct Pauses {
    until: RwLock<HashMap<Digest, Micros>>,
    /// Whether there might be a pause. While this is false, calls skip the lookup.
    any: AtomicBool,
}

impl Pauses {
    pub(in crate::limiter) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    pub(in crate::limiter) fn until(&self, rows: impl Iterator<Item = Digest>, now: Micros) -> Option<Micros> {
        if !self.any() {
            return None;
        }
        let until = self.until.read().unwrap_or_else(PoisonError::into_inner);
        rows.filter_map(|row| until.get(&row).copied()).max().filter(|until| *until > now)
    }

    pub(in crate::limiter) fn list(&self, now: Micros) -> Vec<(Digest, Micros)> {
        let until = self.until.read().unwrap_or_else(PoisonError::into_inner);
        until.iter().filter(|(_, end)| **end > now).map(|(row, end)| (*row, *end)).collect()
    }

    /// Pauses a row until `end`. Never shortens an existing pause. Returns `false` if the table is full.
    pub(in crate::limiter) fn pause(&self, row: Digest, now: Micros, end: Micros) -> bool {
        let mut until = self.until.write().unwrap_or_else(PoisonError::into_inner);
        if until.len() >= MAX_PAUSES {
            until.retain(|_, end| *end > now);
        }
        if until.len() >= MAX_PAUSES && !until.contains_key(&row) {
            return false;
        }
        let latest = until.entry(row).or_insert(end);
        *latest = end.max(*latest);
        self.any.store(true, Ordering::Release);
        true
    }

    pub(in crate::limiter) fn resume(&self, row: Digest) {
        let mut until = self.until.write().unwrap_or_else(PoisonError::into_inner);
        until.remove(&row);
        self.any.store(!until.is_empty(), Ordering::Release);
    }
}

pub(in crate::limiter) const MAX_PAUSES: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_of_two_pauses_applies_and_expired_pauses_are_removed() {
        let (pauses, now) = (Pauses::default(), Micros::new(1_000_000));
        let until = |row: u128, now| pauses.until([Digest::from_bits(row)].into_iter(), now);
        assert!(pauses.pause(Digest::from_bits(7), now, now.plus(9)));
        assert!(pauses.pause(Digest::from_bits(7), now, now.plus(5)));
        assert_eq!((until(7, now), until(8, now), until(7, now.plus(9))), (Some(now.plus(9)), None, None));
        pauses.resume(Digest::from_bits(7));
        assert!(!pauses.any());
        for row in 0..MAX_PAUSES as u128 {
            assert!(pauses.pause(Digest::from_bits(row), now, now.plus(1 + row as u64)));
        }
        assert!(!pauses.pause(Digest::from_bits(u128::MAX), now, now.plus(9)));
        assert!(pauses.pause(Digest::from_bits(7), now, now.plus(99)), "an existing pause can be extended");
        assert!(pauses.pause(Digest::from_bits(u128::MAX), now.plus(1), now.plus(9)));
    }
}
