//! Rows in this process: a sharded table, bounded, with no background task.

mod builder;
mod few;
mod lock;
mod locked;
#[cfg(all(test, tollgate_models))]
mod models;
mod row;
mod shard;
mod table;
mod worth;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use self::lock::Guard;
use self::locked::{Loaded, Locked, Place};
use self::row::{Row, Slot};
use self::shard::Shard;
use self::table::Table;
use super::{Adjustment, Backend, BackendFuture, RowId, Steps, Take, Vitals, verdict_of_all};
use crate::algorithm::{Ask, Micros, Quota, State, Step, Stepped, roll, settle, step, step_inlined};
use crate::clock::{Clock, Sleep, SystemClock};
use crate::sync::{Mutex, PoisonError};

pub use builder::MemoryBackendBuilder;
pub(crate) use few::TakeRef;

/// Rows in this process's memory: the default backend.
///
/// - A key has a row of 32 bytes (39 to 51 with the places around it) while something of its spending is not paid back;
///   a key that went idle has none. Worthless rows are dropped as newcomers come: no timer, no sweep, no pause.
/// - There are never more than [`max_rows`](MemoryBackendBuilder::max_rows). When a newcomer finds no place, the least
///   spent of a few rows makes room, which forgives that key what it had spent; rows that deny their keys stay. If all
///   rows looked at deny, newcomers of a policy share one overflow row until that changes: under a flood of keys that
///   exhausts the table, unknown keys are limited together rather than not at all, and a denied key stays denied.
/// - Several charges of one call are decided under the locks of all their shards, taken in order: all or none, no
///   deadlock.
///
/// ```
/// use tollgate::{ManualClock, MemoryBackend, Policy, Quota, RateLimiter, MINUTE};
///
/// static API: Policy = Policy::new("api", Quota::token_bucket(10, MINUTE));
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tollgate::Error> {
/// let rows = MemoryBackend::builder().max_rows(50_000).clock(ManualClock::new()).build();
/// assert!(rows.is_empty());
///
/// let rows = std::sync::Arc::new(rows); // to look at it from here too
/// let limiter = RateLimiter::new(rows.clone());
/// limiter.limit(&API, "ada").await?;
/// assert_eq!((rows.len(), rows.max_rows()), (1, 50_000));
/// # Ok(())
/// # }
/// ```
pub struct MemoryBackend {
    table: Table,
    /// For each policy, what newcomers share that have no place. Locked after shards, never before.
    overflow: Mutex<HashMap<u64, State>>,
    clock: AnyClock,
    max_rows: usize,
}

impl MemoryBackend {
    /// A backend with the default number of rows, 1,000,000, on the system's clock.
    ///
    /// ```
    /// use tollgate::{MemoryBackend, RateLimiter};
    ///
    /// let limiter = RateLimiter::new(MemoryBackend::new()); // what `RateLimiter::default()` is
    /// ```
    pub fn new() -> MemoryBackend {
        MemoryBackend::builder().build()
    }

    /// A backend with choices: how many rows, which clock.
    pub fn builder() -> MemoryBackendBuilder {
        MemoryBackendBuilder::new()
    }

    /// Rows that are held, worthless ones included that no newcomer has come across yet.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether no row is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The most rows that are ever held.
    pub fn max_rows(&self) -> usize {
        self.max_rows
    }

    /// What [`acquire`](Backend::acquire) and [`peek`](Backend::peek) answer.
    pub(crate) fn decide(&self, takes: &[Take<'_>], store: bool) -> Steps {
        let known = match takes {
            [one] => {
                self.decide_one(&one.row, &one.quota, one.ask, store).map(|step| Steps::from(step.told(&one.quota)))
            }
            [a, b] => self.decide_few(&[a, b].map(TakeRef::of), store).map(Steps::from_iter),
            [a, b, c] => self.decide_few(&[a, b, c].map(TakeRef::of), store).map(Steps::from_iter),
            [a, b, c, d] => self.decide_few(&[a, b, c, d].map(TakeRef::of), store).map(Steps::from_iter),
            _ => None,
        };
        known.unwrap_or_else(|| self.decide_all(takes, store))
    }

    /// One take on a row that is there, without a twin: one lookup, one lock, one look at the clock. `None`: it is
    /// another case.
    // Compiled into its two callers: what goes through memory from one function to another comes late.
    #[inline(always)]
    pub(crate) fn decide_one(&self, row: &RowId<'_>, quota: &Quota, ask: Ask, store: bool) -> Option<Stepped> {
        // Before the row is looked for, so that neither waits for the other.
        let now = self.clock.now();
        let slot = Slot::of(row);
        let mut shard = self.table.lock(self.table.shard_of(slot));
        let row = shard.find_mut(slot).filter(|row| !row.has_twin())?;
        if row.at() > now {
            let mut step = None;
            self.decide_held_up(shard, slot, quota, ask, store, &mut step);
            return step;
        }
        self.decide_on(row, quota, now, ask, store)
    }

    /// Who held this thread up has written the row at a later time: to the arithmetic that is a clock that was set back,
    /// which costs a little. So the clock is read again.
    #[cold]
    #[inline(never)]
    fn decide_held_up(
        &self,
        mut shard: Guard<'_, Shard>,
        slot: Slot,
        quota: &Quota,
        ask: Ask,
        store: bool,
        step: &mut Option<Stepped>,
    ) {
        *step = shard.find_mut(slot).and_then(|row| self.decide_on(row, quota, self.clock.now(), ask, store));
    }

    #[inline(always)]
    fn decide_on(&self, row: &mut Row, quota: &Quota, now: Micros, ask: Ask, store: bool) -> Option<Stepped> {
        let worth = &self.table.worth;
        let state = worth.state_for(row, quota);
        let step = step_inlined(quota, &state, now, ask);
        if step.state.carry != 0.0 {
            return None;
        }
        if store && step.turn.is_allowed() {
            let State { spent, at, stamp, .. } = step.state;
            *row =
                if state.stamp == stamp { row.with(spent, at) } else { Row::new(spent, at, worth.learn(quota), false) };
        }
        Some(step)
    }

    /// Any takes.
    pub(crate) fn decide_all(&self, takes: &[Take<'_>], store: bool) -> Steps {
        let slots: SmallVec<[Slot; 4]> = takes.iter().map(|take| Slot::of(&take.row)).collect();
        let mut locked = Locked::new(&self.table, &slots);
        let now = self.clock.now();
        let mut overflow = None;
        let mut loaded: SmallVec<[Loaded; 4]> = SmallVec::new();
        let mut steps: SmallVec<[(usize, Step); 4]> = SmallVec::new();
        for (i, take) in takes.iter().enumerate() {
            let index = match loaded.iter().position(|row| row.slot == slots[i]) {
                Some(index) => index,
                None => {
                    let mut row = locked.load(slots[i], &take.quota, now, &loaded, &slots);
                    if row.place == Place::Overflow {
                        let rows = overflow
                            .get_or_insert_with(|| self.overflow.lock().unwrap_or_else(PoisonError::into_inner));
                        let id = shared_id(rows, take);
                        // Newcomers of one policy share one row, within a call too.
                        if let Some(index) = loaded.iter().position(|other| other.shared == Some(id)) {
                            steps.push((index, self.step_on(&mut loaded[index], take, now)));
                            continue;
                        }
                        row.shared = Some(id);
                        row.state = rows.get(&id).copied().unwrap_or_default();
                    }
                    loaded.push(row);
                    loaded.len() - 1
                }
            };
            steps.push((index, self.step_on(&mut loaded[index], take, now)));
        }

        if steps.iter().all(|(_, step)| step.is_allowed()) {
            if store {
                for (index, row) in loaded.iter().enumerate() {
                    // Tiers of one policy share a row, so the last quota is the one that wrote it. One that asked for nothing
                    // leaves another's row as it is.
                    let wrote = |i: usize| steps[i].0 == index && row.quota_of(&takes[i]).stamp() == row.state.stamp;
                    let Some(last) = (0..steps.len()).rev().find(|i| wrote(*i)) else { continue };
                    match (&mut overflow, row.shared) {
                        (Some(overflow), Some(id)) => {
                            overflow.insert(id, row.state);
                        }
                        _ => locked.store(row, &takes[last].quota, now, &slots),
                    }
                }
            }
        } else {
            // Nothing is spent: whatever fitted leaves its row as it was.
            for i in 0..steps.len() {
                let (index, step) = steps[i];
                let row = &loaded[index];
                let before = row.before.unwrap_or(row.state);
                let same = (0..takes.len()).filter(|other| steps[*other].0 == index);
                if !step.is_allowed() && same.clone().count() > 1 {
                    let asked = same.map(|other| (row.quota_of(&takes[other]), takes[other].ask));
                    steps[i].1.verdict = verdict_of_all(&before, now, asked).unwrap_or(step.verdict);
                }
                if row.before.is_some() {
                    steps[i].1.state = before;
                }
            }
        }
        let shown = steps.into_iter().zip(takes).map(|((index, step), take)| match loaded[index].shared {
            // A shared row has boundaries of its own; of the answer they are the key's.
            Some(_) if step.state.stamp == take.quota.stamp() => {
                Step { state: roll(&take.quota, &State { at: now, ..step.state }, now), ..step }
            }
            Some(_) => step,
            None => step,
        });
        shown.collect()
    }

    /// Decides a take on a row that was loaded, and does to the row what it would do.
    fn step_on(&self, row: &mut Loaded, take: &Take<'_>, now: Micros) -> Step {
        let step = step(&row.quota_of(take), &row.state, now, take.ask);
        if step.is_allowed() {
            row.before = Some(row.before.unwrap_or(row.state));
            row.state = step.state;
        }
        step
    }

    fn settle_one(&self, settlement: &Adjustment<'_>) {
        let slot = Slot::of(&settlement.row);
        let mut locked = Locked::new(&self.table, &[slot]);
        let now = self.clock.now();
        let mut row = locked.load(slot, &settlement.quota, now, &[], &[slot]);
        let state = settle(&settlement.quota, &row.state, &settlement.receipt, now, settlement.actual);
        let nothing = row.place != Place::Found && state.spent == 0.0;
        if state == row.state || row.place == Place::Overflow || nothing {
            return;
        }
        row.state = state;
        if state.stamp != settlement.quota.stamp() {
            // Another quota wrote the row since, and it stays that one's.
            let (_, shard) = locked.shard(slot);
            if let Some(found) = shard.find_mut(slot) {
                *found = Row::new(state.spent, state.at, found.quota(), found.has_twin());
            }
            return;
        }
        locked.store(&row, &settlement.quota, now, &[slot]);
    }
}

impl Backend for MemoryBackend {
    fn acquire(&self, takes: &[Take<'_>]) -> BackendFuture<Steps> {
        BackendFuture::ready(Ok(self.decide(takes, true)))
    }

    fn peek(&self, takes: &[Take<'_>]) -> BackendFuture<Steps> {
        BackendFuture::ready(Ok(self.decide(takes, false)))
    }

    fn settle(&self, settlements: &[Adjustment<'_>]) -> BackendFuture<()> {
        for settlement in settlements {
            self.settle_one(settlement);
        }
        BackendFuture::ready(Ok(()))
    }

    fn reset(&self, rows: &[RowId<'_>]) -> BackendFuture<()> {
        for row in rows {
            let slot = Slot::of(row);
            let mut shard = self.table.lock(self.table.shard_of(slot));
            shard.remove(slot);
            shard.remove(slot.twin());
        }
        BackendFuture::ready(Ok(()))
    }

    fn sleep_until(&self, instant: Micros) -> Option<Sleep> {
        self.clock.sleep_until(instant)
    }

    fn clock(&self) -> Option<Arc<dyn Clock>> {
        match &self.clock {
            AnyClock::System(_) => None,
            AnyClock::Other(clock) => Some(Arc::clone(clock)),
        }
    }

    fn vitals(&self) -> Vitals {
        Vitals { rows: Some(self.len()), ..Vitals::default() }
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

/// The usual clock without the call through a pointer.
enum AnyClock {
    System(SystemClock),
    Other(Arc<dyn Clock>),
}

impl AnyClock {
    #[inline(always)]
    fn now(&self) -> Micros {
        match self {
            AnyClock::System(clock) => clock.now(),
            AnyClock::Other(clock) => clock.now(),
        }
    }

    fn sleep_until(&self, instant: Micros) -> Option<Sleep> {
        match self {
            AnyClock::System(clock) => clock.sleep_until(instant),
            AnyClock::Other(clock) => clock.sleep_until(instant),
        }
    }
}

/// The policy's overflow row; policies without number share one.
fn shared_id(overflow: &HashMap<u64, State>, take: &Take<'_>) -> u64 {
    let id = take.row.policy.id();
    if overflow.len() < MOST_OVERFLOW_ROWS || overflow.contains_key(&id) { id } else { 0 }
}

const MOST_OVERFLOW_ROWS: usize = 1024;

#[cfg(test)]
mod tests;
