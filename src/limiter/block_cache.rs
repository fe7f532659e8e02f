//! Denials of a remote backend that need no second question to it (step 3).
//!
//! What is kept is not a verdict but the row, as the backend last showed it. Whoever else spends, spends more; so as
//! long as nothing is given back, a row that is known denies whatever the true one would have to deny, and
//! the arithmetic says so for any cost and wait under the quota with which it was seen. Under another quota a row is
//! paid back at another pace, by asking as by spending: then the backend is asked.
//!
//! What this limiter gives back is forgotten here at once. What another process gives back, resets or changes is not
//! seen here, so a row is used for [`MAX_AGE`] only. Then the backend is asked again.

use std::time::Duration;

use smallvec::SmallVec;

use crate::algorithm::{self, Ask, Micros, SECOND, State, Step, Verdict, available, step};
use crate::backend::{RowId, Steps, Take};
use crate::policy::{Digest, Placement};
use crate::sync::{Mutex, MutexGuard, PoisonError};

/// How long a row is used after the backend was asked for it, by the local clock: the time within which every process
/// admits what another one has given back.
const MAX_AGE: Duration = SECOND;

/// Rows of a remote backend, as they were last seen.
pub(super) struct BlockCache {
    buckets: Box<[Mutex<Bucket>]>,
    /// Under random numbers, so that a client cannot choose keys whose rows push another's out.
    placement: Placement,
}

#[derive(Default)]
struct Bucket {
    rows: [Option<CachedRow>; WAYS],
    /// How many times something here was forgotten: what was asked before is not learnt after.
    forgotten: u64,
}

const WAYS: usize = 4;

#[derive(Clone, Copy)]
struct CachedRow {
    id: Digest,
    state: State,
    /// When the backend saw it so, by its clock.
    seen: Micros,
    /// When it was asked and when it had answered, by the local clock: it was seen in between.
    asked: Micros,
    answered: Micros,
}

/// What has to be as it was for an answer to be learnt.
pub(super) struct Permit {
    asked: Micros,
    forgotten: SmallVec<[u64; 2]>,
}

impl BlockCache {
    pub(super) fn new(rows: usize) -> BlockCache {
        let buckets = rows.div_ceil(WAYS).max(1);
        BlockCache { buckets: (0..buckets).map(|_| Mutex::default()).collect(), placement: Placement::random() }
    }

    /// The denial of these takes, if what is known of their rows is enough to tell.
    pub(super) fn denies(&self, takes: &[Take<'_>], now: Micros) -> Option<Steps> {
        let mut rows: SmallVec<[CachedRow; 2]> = SmallVec::new();
        for (i, take) in takes.iter().enumerate() {
            let id = take.row.digest();
            // Of several takes on one row the backend says when all of them fit.
            if rows[..i].iter().any(|row| row.id == id) {
                return None;
            }
            let bucket = self.bucket(id);
            let known = bucket.known(id, now)?;
            // The row as another quota sees it is paid back at another pace.
            let is_unspent = known.state == State::default();
            if known.state.stamp != take.quota.stamp() && !is_unspent || may_be_granted_earlier(take) {
                return None;
            }
            rows.push(*known);
        }
        let latest = |row: &CachedRow| row.seen.plus(now.micros_since(row.asked));
        // At the latest that it may be there by now, when most is paid back.
        let is_denied = rows
            .iter()
            .zip(takes)
            .any(|(row, take)| !step(&take.quota, &row.state, latest(row), take.ask).is_allowed());
        if !is_denied {
            return None;
        }
        let answers = rows.iter().zip(takes).map(|(row, take)| {
            // And at the earliest: whoever comes back when he is told is not too early.
            let earliest = row.seen.plus(now.micros_since(row.answered));
            let step = step(&take.quota, &row.state, earliest, take.ask);
            if !step.is_allowed() {
                return step;
            }
            let unspent = algorithm::step(&take.quota, &row.state, earliest, Ask::cost(0));
            Step { verdict: Verdict::Allow, ..unspent }
        });
        // What is denied later is denied earlier; but whatever comes, nothing is granted here.
        Some(answers.collect::<Steps>()).filter(|steps| !steps.all_granted())
    }

    /// To be had before the backend is asked.
    pub(super) fn permit(&self, takes: &[Take<'_>], now: Micros) -> Permit {
        Permit { asked: now, forgotten: takes.iter().map(|take| self.bucket(take.row.digest()).forgotten).collect() }
    }

    /// Remembers what the backend said, if it is of use: it denied, or nothing is left.
    pub(super) fn store(&self, takes: &[Take<'_>], steps: &Steps, stored: bool, permit: &Permit, now: Micros) {
        let granted = steps.all_granted();
        if granted && !stored {
            return; // What a question would have spent is not spent.
        }
        let answers = || takes.iter().zip(steps.iter());
        // A row that is known is learnt anew in any case: under another quota, spending may have paid it back.
        let is_news = !granted || answers().any(|(take, step)| available(&take.quota, &step.state, step.now) == 0);
        for ((take, step), forgotten) in answers().zip(&permit.forgotten) {
            let id = take.row.digest();
            let stored_row = CachedRow { id, state: step.state, seen: step.now, asked: permit.asked, answered: now };
            let mut bucket = self.bucket(id);
            if bucket.forgotten == *forgotten && (is_news || bucket.known(id, now).is_some()) {
                bucket.put(stored_row);
            }
        }
    }

    /// Forgets rows of which something may have been given back.
    pub(super) fn forget<'a>(&self, rows: impl Iterator<Item = RowId<'a>>) {
        for row in rows {
            let id = row.digest();
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

/// Whether what is denied may be granted earlier: to wait through several windows takes the less, the later in one it
/// begins, and the most again at the start of the next.
fn may_be_granted_earlier(take: &Take<'_>) -> bool {
    take.quota.algorithm().has_windows() && take.ask.max_wait().is_some() && take.ask.tokens() > take.quota.limit()
}

impl Bucket {
    /// The row, if the backend was asked for it a short time ago.
    fn known(&self, id: Digest, now: Micros) -> Option<&CachedRow> {
        self.rows.iter().flatten().find(|row| row.id == id && row.is_current(now))
    }

    /// In the place of what was known of it before, or else of what was asked first.
    fn put(&mut self, row: CachedRow) {
        let same = self.rows.iter().position(|known| known.is_some_and(|known| known.id == row.id));
        let place = same.unwrap_or_else(|| {
            let asked = |place: &usize| self.rows[*place].map(|known| known.asked);
            (0..WAYS).min_by_key(asked).unwrap_or(0)
        });
        // Of two answers the one that the backend gave later, unless that is too old to be used.
        let is_later = |known: CachedRow| known.id == row.id && known.seen > row.seen && known.is_current(row.answered);
        if !self.rows[place].is_some_and(is_later) {
            self.rows[place] = Some(row);
        }
    }
}

impl CachedRow {
    fn is_current(&self, now: Micros) -> bool {
        now.since(self.asked) < MAX_AGE
    }
}

impl std::fmt::Debug for BlockCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockCache").field("rows", &(self.buckets.len() * WAYS)).finish_non_exhaustive()
    }
}
