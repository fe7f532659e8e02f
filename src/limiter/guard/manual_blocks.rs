//! Manual blocks, which are never dropped before they end.

use std::collections::BTreeSet;

use super::{Block, BlockOrigin};
use crate::algorithm::Micros;
use crate::policy::Digest;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Map, Mutex, MutexGuard, PoisonError};

/// The table of manual blocks. All times refer to the local clock.
#[derive(Default)]
pub(in crate::limiter) struct ManualBlocks {
    /// The end and the origin of each block.
    until: Map<Digest, (Micros, Option<BlockOrigin>)>,
    /// The same blocks, ordered by end time. Changes lock this set, but calls do not.
    ends: Mutex<BTreeSet<(Micros, Digest)>>,
    /// Whether a block has ever been added. Until then, calls skip the lookup.
    any: AtomicBool,
}

impl ManualBlocks {
    pub(super) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    pub(in crate::limiter) fn blocked(&self, id: Digest, now: Micros) -> Option<Micros> {
        self.until.with(&id, |(until, _)| *until).filter(|until| *until > now)
    }

    /// Adds or replaces a block. Returns `false` if the table is full of active blocks.
    pub(in crate::limiter) fn block(&self, id: Digest, now: Micros, until: Micros) -> bool {
        let mut ends = self.ends();
        if let Some(before) = self.until.with(&id, |(until, _)| *until) {
            ends.remove(&(before, id));
        } else if ends.len() >= MAX_MANUAL_BLOCKS {
            match ends.first() {
                Some(&(end, ended)) if end <= now => self.remove(&mut ends, ended),
                _ => return false,
            }
        }
        ends.insert((until, id));
        self.until.with_default(id, |(end, _)| *end = until);
        self.any.store(true, Ordering::Release);
        true
    }

    pub(in crate::limiter) fn describe(&self, id: Digest, origin: BlockOrigin) {
        self.until.with(&id, |(_, known)| *known = Some(origin.replace(known.take())));
    }

    pub(in crate::limiter) fn unblock(&self, id: Digest) {
        self.remove(&mut self.ends(), id);
    }

    fn remove(&self, ends: &mut BTreeSet<(Micros, Digest)>, id: Digest) {
        if let Some(until) = self.until.with(&id, |(until, _)| *until) {
            ends.remove(&(until, id));
            self.until.remove_if(&id, |_| true);
        }
    }

    pub(super) fn list(&self, now: Micros, blocks: &mut Vec<Block>) {
        for (until, digest) in self.ends().iter().rev().take_while(|(end, _)| *end > now) {
            let origin = self.until.with(digest, |(_, origin)| origin.clone()).flatten();
            blocks.push(BlockOrigin::listed(origin, *digest, now, *until, None));
        }
    }

    pub(super) fn len(&self, now: Micros) -> usize {
        self.ends().iter().rev().take_while(|(end, _)| *end > now).count()
    }

    fn ends(&self) -> MutexGuard<'_, BTreeSet<(Micros, Digest)>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) const MAX_MANUAL_BLOCKS: usize = 100_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::atomic::AtomicUsize;

    fn counts(manual: &ManualBlocks) -> (usize, usize) {
        (manual.until.len(), manual.ends().len())
    }

    #[test]
    fn a_full_table_accepts_no_new_block_until_an_old_block_expires() {
        let (manual, now) = (ManualBlocks::default(), Micros::new(1_000_000));
        for id in 0..MAX_MANUAL_BLOCKS as u128 {
            assert!(manual.block(Digest::from_bits(id), now, now.plus(1 + id as u64)));
        }
        assert_eq!(manual.len(now), MAX_MANUAL_BLOCKS);
        assert!(!manual.block(Digest::from_bits(u128::MAX), now, now.plus(9)));
        assert!(manual.block(Digest::from_bits(7), now, now.plus(9)), "an existing block can be replaced");
        let later = now.plus(5);
        assert!(manual.block(Digest::from_bits(u128::MAX), later, later.plus(9)));
        assert_eq!(manual.blocked(Digest::from_bits(u128::MAX), later), Some(later.plus(9)));
        assert_eq!(manual.blocked(Digest::from_bits(2), later), None);
    }

    #[test]
    fn concurrent_changes_never_exceed_the_maximum_size_of_the_table() {
        let (manual, now) = (ManualBlocks::default(), Micros::new(1_000_000));
        for id in 0..MAX_MANUAL_BLOCKS as u128 - 100 {
            assert!(manual.block(Digest::from_bits(id), now, now.plus(1_000)));
        }
        let made = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for thread in 1..=4 {
                let (manual, made) = (&manual, &made);
                scope.spawn(move || {
                    for id in 0..1_000 {
                        let id = Digest::from_bits(thread << 64 | id);
                        made.fetch_add(usize::from(manual.block(id, now, now.plus(1_000))), Ordering::Relaxed);
                        assert!(counts(manual).1 <= MAX_MANUAL_BLOCKS);
                    }
                });
            }
        });
        assert_eq!(
            (made.load(Ordering::Relaxed), manual.len(now), counts(&manual).0),
            (100, MAX_MANUAL_BLOCKS, MAX_MANUAL_BLOCKS)
        );

        // After the blocks have expired, each new block replaces an expired one.
        let later = now.plus(1_000);
        std::thread::scope(|scope| {
            for thread in 5..=8 {
                let manual = &manual;
                scope.spawn(move || {
                    for id in 0..1_000 {
                        assert!(manual.block(Digest::from_bits(thread << 64 | id), later, later.plus(1 + id as u64)));
                        manual.unblock(Digest::from_bits(thread << 64 | (id / 2)));
                    }
                });
            }
        });
        let blocked = |thread: u128, id| manual.blocked(Digest::from_bits(thread << 64 | id), later).is_some();
        assert!((5..=8).all(|thread| !blocked(thread, 499) && blocked(thread, 999)));
        let (by_caller, by_end) = counts(&manual);
        assert_eq!((manual.len(later), by_caller), (4 * 500, by_end));
        assert!(by_caller <= MAX_MANUAL_BLOCKS);
    }
}
