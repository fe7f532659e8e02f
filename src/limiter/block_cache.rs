//! The block cache, which denies calls based on recently read rows of a remote backend (step 4).
//!
//! The cache stores rows instead of verdicts, so it works for calls of any cost. Further charges can only add to the
//! spent tokens of a row. Therefore, if the cached row denies a call, the backend would deny it too, unless tokens have
//! been given back. If the quota has changed, the row is refilled at a different rate, so the backend is asked.
//!
//! If this limiter gives tokens back, the row is removed from the cache. The cache does not see refunds, resets or
//! quota changes by other processes, so it uses a row for at most [`MAX_AGE`].

use std::time::Duration;

use smallvec::SmallVec;

use crate::algorithm::{self, Ask, Micros, SECOND, State, Step, Verdict, available, step};
use crate::backend::{Steps, Take};
use crate::policy::{Digest, Placement};
use crate::sync::{Mutex, MutexGuard, PoisonError};

/// How long a cached row is used, measured by the local clock from the call to the backend.
const MAX_AGE: Duration = SECOND;

pub(super) struct BlockCache {
    buckets: Box<[Mutex<Bucket>]>,
    /// The placement is random, so that a client cannot choose keys that displace another client's row.
    placement: Placement,
}

#[derive(Default)]
struct Bucket {
    rows: [Option<CachedRow>; WAYS],
    /// The number of removals. An answer is not stored if its call began before the last removal.
    forgotten: u64,
}

const WAYS: usize = 4;

#[derive(Clone, Copy)]
struct CachedRow {
    id: Digest,
    state: State,
    /// The time at which the backend read the row, by the backend's clock.
    seen: Micros,
    /// The local times of the call to the backend and of its reply. The backend read the row in between.
    asked: Micros,
    answered: Micros,
    /// The local time until which a denial is remembered, even if tokens have been refilled since.
    paused_until: Micros,
}

/// A permit to store an answer, issued before the backend is asked. It does not cover rows that are removed afterwards.
pub(super) struct Permit {
    asked: Micros,
    forgotten: SmallVec<[u64; 2]>,
}

impl BlockCache {
    pub(super) fn new(rows: usize) -> BlockCache {
        let buckets = rows.div_ceil(WAYS).max(1);
        BlockCache { buckets: (0..buckets).map(|_| Mutex::default()).collect(), placement: Placement::random() }
    }

    /// Denies these takes if the cached rows show that the backend would deny them.
    pub(super) fn denies(&self, takes: &[Take<'_>], now: Micros) -> Option<Steps> {
        let mut rows: SmallVec<[CachedRow; 2]> = SmallVec::new();
        for (i, take) in takes.iter().enumerate() {
            let id = take.digest();
            // `step` cannot decide several takes of one row together.
            if rows[..i].iter().any(|row| row.id == id) {
                return None;
            }
            let bucket = self.bucket(id);
            let known = bucket.known(id, now)?;
            let is_unspent = known.state == State::default();
            if known.state.stamp != take.quota.stamp() && !is_unspent || may_be_granted_earlier(take) {
                return None;
            }
            rows.push(*known);
        }
        let latest = |row: &CachedRow| row.seen.plus(now.micros_since(row.asked));
        // The check uses the latest possible time, at which the most tokens have been refilled.
        let is_denied = rows.iter().zip(takes).any(|(row, take)| {
            row.pauses(take, now) || !step(&take.quota, &row.state, latest(row), take.ask).is_allowed()
        });
        if !is_denied {
            return None;
        }
        let answers = rows.iter().zip(takes).map(|(row, take)| {
            // The answer uses the earliest possible time, so that clients do not retry too early.
            let earliest = row.seen.plus(now.micros_since(row.answered));
            let step = step(&take.quota, &row.state, earliest, take.ask);
            if row.pauses(take, now) {
                let (pause, retry) = (row.paused_until.since(now), step.verdict.wait_order().1);
                return Step { verdict: Verdict::Deny { retry: Some(pause.max(retry)) }, ..step };
            }
            if !step.is_allowed() {
                return step;
            }
            let unspent = algorithm::step(&take.quota, &row.state, earliest, Ask::cost(0));
            Step { verdict: Verdict::Allow, ..unspent }
        });
        Some(answers.collect::<Steps>()).filter(|steps| !steps.all_granted())
    }

    pub(super) fn permit(&self, takes: &[Take<'_>], now: Micros) -> Permit {
        Permit { asked: now, forgotten: takes.iter().map(|take| self.bucket(take.digest()).forgotten).collect() }
    }

    /// Stores the rows of an answer that denies the call or leaves no tokens.
    pub(super) fn store(
        &self,
        takes: &[Take<'_>],
        steps: &Steps,
        taken: bool,
        permit: &Permit,
        now: Micros,
        pause: impl Fn(&Take<'_>) -> Duration,
    ) {
        let granted = steps.all_granted();
        if granted && !taken {
            return; // A granted check leaves the rows unchanged.
        }
        let answers = || takes.iter().zip(steps.iter());
        // A row that is already cached is always updated, because another quota may have refilled it.
        let is_useful = !granted || answers().any(|(take, step)| available(&take.quota, &step.state, step.now) == 0);
        for ((take, step), forgotten) in answers().zip(&permit.forgotten) {
            let id = take.digest();
            let paused_until = if step.is_allowed() { now } else { now + pause(take) };
            let (state, seen, asked) = (step.state, step.now, permit.asked);
            let stored_row = CachedRow { id, state, seen, asked, answered: now, paused_until };
            let mut bucket = self.bucket(id);
            if bucket.forgotten == *forgotten && (is_useful || bucket.known(id, now).is_some()) {
                bucket.put(stored_row);
            }
        }
    }

    pub(super) fn forget(&self, windows: impl Iterator<Item = Digest>) {
        for id in windows {
            let mut bucket = self.bucket(id);
            bucket.forgotten += 1;
            bucket.rows.iter_mut().filter(|row| row.is_some_and(|row| row.id == id)).for_each(|row| *row = None);
        }
    }

    fn bucket(&self, id: Digest) -> MutexGuard<'_, Bucket> {
        let number = self.placement.place(id) as usize % self.buckets.len();
        self.buckets[number].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether a take that is denied at one instant might be granted at an earlier one. This is possible only for a
/// reservation above the capacity: its wait is shortest at the end of a window, and longer again in the next window.
fn may_be_granted_earlier(take: &Take<'_>) -> bool {
    take.quota.algorithm().has_windows()
        && take.ask.max_wait().is_some()
        && take.ask.tokens() > take.quota.get_capacity()
}

impl Bucket {
    fn known(&self, id: Digest, now: Micros) -> Option<&CachedRow> {
        self.rows.iter().flatten().find(|row| row.id == id && row.is_current(now))
    }

    /// Replaces the entry for the same row. If there is none, uses a free slot or replaces the oldest entry.
    fn put(&mut self, row: CachedRow) {
        let same = self.rows.iter().position(|known| known.is_some_and(|known| known.id == row.id));
        let place = same.unwrap_or_else(|| {
            let asked = |place: &usize| self.rows[*place].map(|known| known.asked);
            (0..WAYS).min_by_key(asked).unwrap_or(0)
        });
        let is_later = |known: CachedRow| known.id == row.id && known.seen > row.seen && known.is_current(row.answered);
        if !self.rows[place].is_some_and(is_later) {
            self.rows[place] = Some(row);
        }
    }
}

impl CachedRow {
    /// Returns whether a take is denied even though the row may have enough tokens for it.
    fn pauses(&self, take: &Take<'_>, now: Micros) -> bool {
        now < self.paused_until && take.ask.tokens() > 0 && take.ask.max_wait().is_none()
    }

    fn is_current(&self, now: Micros) -> bool {
        now.since(self.asked) < MAX_AGE
    }
}

impl std::fmt::Debug for BlockCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockCache").field("rows", &(self.buckets.len() * WAYS)).finish_non_exhaustive()
    }
}
