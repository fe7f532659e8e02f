//! The table of offenders, which has a fixed size and stores counted denials and automatic blocks.
//!
//! Each offender has an entry in one bucket. A client cannot choose keys that fall into another client's bucket, even
//! if it knows the limiter's secret. A new offender replaces the entry with the lowest rank in its bucket: an empty
//! entry if there is one, otherwise an unblocked entry without recent denials, otherwise the entry with the fewest
//! denials. As a result, callers that are denied only once mostly displace each other, however many there are.

use std::time::Duration;

use super::auto_block::AutoBlock;
use super::{Block, BlockOrigin};
use crate::algorithm::{Micros, whole_micros};
use crate::policy::{Digest, Placement};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Mutex, MutexGuard, PoisonError};

/// All times refer to the local clock.
pub(super) struct Offenders {
    buckets: Box<[Mutex<[Offender; WAYS]>]>,
    placement: Placement,
    /// The number of entries with a block, which may have expired. While the number is 0, calls skip the lookup.
    blocks: AtomicUsize,
    window: u64,
    threshold: u32,
}

const WAYS: usize = 8;

#[derive(Default)]
struct Offender {
    id: u128,
    /// The end of the block, or 0 if there has been no block.
    until: u64,
    since: u64,
    /// The number of denials and blocked attempts at or after `since`.
    count: u32,
    /// The count of the previous window, which protects the entry of a persistent caller when a new window begins.
    before: u32,
    /// The number of successive blocks.
    times: u32,
    is_taken: bool,
    /// The origin is boxed because few entries have one.
    origin: Option<Box<BlockOrigin>>,
}

impl Offenders {
    pub(super) fn new(entries: usize, window: Duration, threshold: u32) -> Offenders {
        let buckets = (entries / WAYS).max(1);
        Offenders {
            buckets: (0..buckets).map(|_| Mutex::default()).collect(),
            placement: Placement::random(),
            blocks: AtomicUsize::new(0),
            window: whole_micros(window).max(1),
            threshold,
        }
    }

    pub(super) fn has_blocks(&self) -> bool {
        self.blocks.load(Ordering::Relaxed) > 0
    }

    /// If the caller is blocked, counts the attempt and returns the end of the block.
    pub(super) fn blocked(&self, id: Digest, now: Micros) -> Option<Micros> {
        let mut bucket = self.bucket(id);
        let entry = bucket.iter_mut().find(|entry| entry.is(id))?;
        if entry.until <= now.get() {
            return None;
        }
        entry.count(now, self.window);
        Some(Micros::new(entry.until))
    }

    /// Counts a denial. If it leads to a block, returns the block's duration and the number of successive blocks.
    pub(super) fn denied(&self, id: Digest, now: Micros, rules: &AutoBlock) -> Option<(Duration, u32)> {
        let mut bucket = self.bucket(id);
        let entry = self.entry(&mut bucket, id, now);
        if entry.since < entry.until && entry.until <= now.get() {
            // Attempts during a block affect which entries are kept, but do not count toward another block.
            (entry.before, entry.count, entry.since) = (entry.count, 0, now.get());
        }
        let count = entry.count(now, self.window);
        if count < rules.threshold || entry.until > now.get() {
            return None;
        }
        let lasted = whole_micros(rules.lasts(entry.times.saturating_sub(1)));
        if entry.times > 0 && now.get() >= entry.until.saturating_add(lasted) {
            entry.times = 0;
        }
        let lasts = rules.lasts(entry.times);
        entry.times = entry.times.saturating_add(1);
        entry.block(now.get().saturating_add(whole_micros(lasts)), &self.blocks);
        Some((lasts, entry.times))
    }

    pub(super) fn succeeded(&self, id: Digest) {
        if let Some(entry) = self.bucket(id).iter_mut().find(|entry| entry.is(id)) {
            (entry.count, entry.before) = (0, 0);
        }
    }

    pub(super) fn block(&self, id: Digest, now: Micros, until: Micros, times: u32) {
        let mut bucket = self.bucket(id);
        let entry = self.entry(&mut bucket, id, now);
        entry.count(now, self.window);
        if entry.until <= now.get() {
            entry.origin = None;
        }
        entry.times = entry.times.max(times);
        entry.block(entry.until.max(until.get()), &self.blocks);
    }

    pub(super) fn describe(&self, id: Digest, origin: BlockOrigin) {
        if let Some(entry) = self.bucket(id).iter_mut().find(|entry| entry.is(id)) {
            let known = entry.origin.take().map(|known| *known);
            entry.origin = Some(Box::new(origin.replace(known)));
        }
    }

    pub(super) fn list(&self, now: Micros, blocks: &mut Vec<Block>) {
        for bucket in &self.buckets {
            let bucket = bucket.lock().unwrap_or_else(PoisonError::into_inner);
            blocks.extend(bucket.iter().filter(|entry| entry.is_taken && entry.until > now.get()).map(|entry| {
                let (digest, origin) = (Digest::from_bits(entry.id), entry.origin.as_deref().cloned());
                BlockOrigin::listed(origin, digest, now, Micros::new(entry.until), Some(entry.times))
            }));
        }
    }

    pub(super) fn forget(&self, id: Digest) {
        if let Some(entry) = self.bucket(id).iter_mut().find(|entry| entry.is(id)) {
            entry.clear(&self.blocks);
        }
    }

    pub(super) fn len(&self, now: Micros) -> (usize, usize) {
        let (mut all, mut blocked) = (0, 0);
        for bucket in &self.buckets {
            for entry in bucket.lock().unwrap_or_else(PoisonError::into_inner).iter().filter(|entry| entry.is_taken) {
                all += 1;
                blocked += usize::from(entry.until > now.get());
            }
        }
        (all, blocked)
    }

    fn bucket(&self, id: Digest) -> MutexGuard<'_, [Offender; WAYS]> {
        self.buckets[self.bucket_number(id)].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn bucket_number(&self, id: Digest) -> usize {
        self.placement.place(id) as usize % self.buckets.len()
    }

    /// Returns the entry of an offender. A new offender replaces the oldest of the entries with the lowest rank.
    fn entry<'a>(&self, bucket: &'a mut [Offender; WAYS], id: Digest, now: Micros) -> &'a mut Offender {
        let found = bucket.iter().position(|entry| entry.is(id));
        let place = found.unwrap_or_else(|| {
            let rank =
                |place: &usize| (bucket[*place].eviction_rank(now, self.window, self.threshold), bucket[*place].since);
            let least = (0..WAYS).min_by_key(rank).unwrap_or(0);
            bucket[least].clear(&self.blocks);
            bucket[least] = Offender { id: id.to_bits(), is_taken: true, ..Offender::default() };
            least
        });
        &mut bucket[place]
    }
}

impl Offender {
    fn is(&self, id: Digest) -> bool {
        self.is_taken && self.id == id.to_bits()
    }

    /// Counts a denial or a blocked attempt. Returns the count in the current window.
    fn count(&mut self, now: Micros, window: u64) -> u32 {
        let elapsed = now.get().saturating_sub(self.since);
        if elapsed >= window {
            self.before = if elapsed / 2 < window { self.count } else { 0 };
            self.count = 0;
        }
        // A window begins with its first denial.
        if self.count == 0 {
            self.since = now.get();
        }
        self.count = self.count.saturating_add(1);
        self.count
    }

    fn block(&mut self, until: u64, blocks: &AtomicUsize) {
        if self.until == 0 {
            blocks.fetch_add(1, Ordering::Relaxed);
        }
        self.until = until.max(1);
    }

    fn clear(&mut self, blocks: &AtomicUsize) {
        if self.until > 0 {
            blocks.fetch_sub(1, Ordering::Relaxed);
        }
        *self = Offender::default();
    }

    /// Returns the rank of the entry. A blocked caller without recent attempts ranks as if it were halfway to a block:
    /// above callers with few denials, but below callers that are close to being blocked.
    fn eviction_rank(&self, now: Micros, window: u64, threshold: u32) -> u64 {
        let is_current = now.get().saturating_sub(self.since) < window;
        let count = 10 * u64::from(self.count.max(self.before));
        match (is_current, self.until > now.get()) {
            _ if !self.is_taken => 0,
            (true, false) => count,
            (true, true) => count.max(5 * u64::from(threshold)) + 1,
            (false, true) => 5 * u64::from(threshold) + 1,
            (false, false) => 1 + u64::from(self.times > 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::{DAY, HOUR, MINUTE};
    use crate::policy::{Key, PolicyName, Secret};

    const NOW: Micros = Micros::new(1_700_000_000_000_000);

    fn rules() -> AutoBlock {
        AutoBlock::of_names([PolicyName::new("api")]).threshold(3).within(MINUTE).block_for(HOUR)
    }

    fn id(number: u64) -> Digest {
        Secret::new([7; 16]).digest(&Key::from(number))
    }

    #[test]
    fn denials_expire_with_their_window_and_blocks_end_on_time() {
        let (offenders, rules) = (Offenders::new(64, MINUTE, 3), rules());
        let at = |seconds: u64| NOW + Duration::from_secs(seconds);
        assert_eq!(offenders.denied(id(1), at(0), &rules), None);
        assert_eq!(offenders.denied(id(1), at(59), &rules), None);
        // A minute after the first denial, a new count begins.
        assert_eq!(offenders.denied(id(1), at(60), &rules), None);
        assert_eq!(offenders.denied(id(1), at(61), &rules), None);
        assert_eq!(offenders.blocked(id(1), at(61)), None);
        assert_eq!(offenders.denied(id(1), at(62), &rules), Some((HOUR, 1)));
        let end = at(62 + 3600);
        assert_eq!(offenders.blocked(id(1), Micros::new(end.get() - 1)), Some(end));
        assert_eq!(offenders.blocked(id(1), end), None);
        assert_eq!(offenders.blocked(id(2), at(62)), None);
        assert_eq!(offenders.denied(id(1), end, &rules), None);
        assert_eq!(offenders.denied(id(1), end, &rules), None);
        assert!(offenders.denied(id(1), end, &rules).is_some());
    }

    #[test]
    fn blocks_escalate_until_a_caller_goes_unblocked_for_as_long_as_its_last_block_lasted() {
        let (offenders, rules) = (Offenders::new(64, MINUTE, 3), rules().threshold(1).escalate(10, DAY));
        let hours = |hours: u64| HOUR * u32::try_from(hours).expect("few");
        let lasts = |at: Micros| offenders.denied(id(1), at, &rules).map(|(lasts, _)| lasts.as_secs() / 3600);
        assert_eq!(lasts(NOW), Some(1));
        assert_eq!(lasts(NOW + hours(1)), Some(10));
        assert_eq!(lasts(NOW + hours(11)), Some(24), "a block lasts at most a day");
        assert_eq!(lasts(NOW + hours(11 + 24 + 24)), Some(1));
        assert_eq!(lasts(NOW + hours(60 + 1) + hours(1)), Some(1));
    }

    #[test]
    fn a_success_resets_the_count_and_forgetting_a_caller_ends_its_block() {
        let (offenders, rules) = (Offenders::new(64, MINUTE, 3), rules());
        for _ in 0..2 {
            offenders.denied(id(1), NOW, &rules);
        }
        offenders.succeeded(id(1));
        assert_eq!(offenders.denied(id(1), NOW, &rules), None);
        offenders.block(id(1), NOW, NOW + HOUR, 1);
        assert!(offenders.blocked(id(1), NOW).is_some());
        offenders.forget(id(1));
        assert_eq!(offenders.blocked(id(1), NOW), None);
        assert_eq!(offenders.len(NOW), (0, 0));
    }

    /// Regression: the default secret of a Redis backend is derived from its prefix, so anyone can compute digests. A
    /// blocked client could lift its block with 400 requests under eight names that fell into its bucket.
    #[test]
    fn a_blocked_client_that_knows_the_secret_cannot_lift_its_block() {
        const BUCKETS: u64 = 1024;
        let offenders = Offenders::new(WAYS * BUCKETS as usize, MINUTE, 30);
        let rules = rules().threshold(30).block_for(DAY);
        let secret = Secret::new(*b"tollgate\0\0\0\0\0\0\0\0");
        let blocked = secret.digest(&Key::from("198.51.100.7"));
        let same_bucket = |name: &Digest| name.seed() % BUCKETS == blocked.seed() % BUCKETS;
        let names = (0..).map(|number| secret.digest(&Key::from(format!("name {number}")))).filter(same_bucket);
        let names: Vec<Digest> = names.take(WAYS).collect();

        offenders.block(blocked, NOW, NOW + DAY, 1);
        let later = NOW + HOUR;
        for name in names {
            for _ in 0..50 {
                offenders.denied(name, later, &rules);
            }
        }
        assert_eq!(offenders.blocked(blocked, later), Some(NOW + DAY));
    }

    #[test]
    fn the_worst_offenders_stay_in_the_table_during_a_flood() {
        let offenders = Offenders::new(4096, MINUTE, 30);
        let rules = rules().threshold(30);
        let mut now = NOW;
        let worst: Vec<Digest> = (0..200).map(|i| id(1_000_000_000 + i)).collect();
        // Of the other callers, every tenth is denied five times, and the rest are denied once.
        for caller in 0..400_000u64 {
            now = now.plus(100);
            for _ in 0..(if caller % 10 == 0 { 5 } else { 1 }) {
                offenders.denied(id(caller), now, &rules);
            }
            let offender = worst[(caller % 200) as usize];
            if offenders.blocked(offender, now).is_none() {
                offenders.denied(offender, now, &rules);
            }
        }
        let blocked = worst.iter().filter(|offender| offenders.blocked(**offender, now).is_some()).count();
        assert_eq!(blocked, worst.len());
        assert!(offenders.len(now).0 <= 4096);
        assert_eq!(offenders.len(now).1, worst.len(), "only the worst offenders are blocked");
    }
}
