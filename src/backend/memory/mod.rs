//! Rows in this process: a sharded table, bounded, with no background task.

#[cfg(all(test, tollgate_models))]
mod models;
mod row;
#[cfg(tollgate_models)]
mod stand_in;
mod table;
mod worth;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use self::row::{Row, Slot};
use self::table::{Room, RwLockWriteGuard, Shard, Table, find, find_mut, put, remove};
use super::{Adjustment, Backend, BackendFuture, RowId, Steps, Take, Vitals, verdict_of_all};
use crate::algorithm::{Algorithm, Ask, Micros, Quota, State, Step, roll, settle, step, step_inlined, when};
use crate::clock::{Clock, Sleep, SystemClock};
use crate::sync::{Mutex, PoisonError};

/// Rows in this process's memory: the default backend.
///
/// - A key has a row of 32 bytes (38 to 75 with the table around it) while something of its spending is not paid back;
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
        MemoryBackendBuilder { max_rows: DEFAULT_MAX_ROWS, clock: None }
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
            [take] => self.decide_one(&take.row, &take.quota, take.ask, store).map(Steps::from),
            takes => self.decide_few(takes, store),
        };
        known.unwrap_or_else(|| self.decide_all(takes, store))
    }

    /// One take on a row that is there, without a twin: one lookup, one lock, one look at the clock. `None`: it is
    /// another case.
    // Compiled into its two callers: what goes through memory from one function to another comes late.
    #[inline(always)]
    pub(crate) fn decide_one(&self, row: &RowId<'_>, quota: &Quota, ask: Ask, store: bool) -> Option<Step> {
        let slot = Slot::of(row.digest());
        let worth = &self.table.worth;
        let mut shard = self.table.lock(self.table.shard_of(slot));
        let row = find_mut(&mut shard, slot).filter(|row| !row.has_twin())?;
        // The row's line was touched above: it is on its way while the clock is read.
        let now = self.clock.now();
        let state = worth.state(row);
        let step = step_inlined(quota, &state, now, ask);
        if step.state.carry != 0.0 {
            return None;
        }
        if store && step.is_allowed() {
            let known = state.stamp == step.state.stamp;
            let quota = if known { row.quota() } else { worth.learn(quota) };
            *row = Row::new(step.state.spent, step.state.at, quota, false);
        }
        Some(step)
    }

    /// A few takes on as many rows that are there, without twins. `None`: it is another case.
    fn decide_few(&self, takes: &[Take<'_>], store: bool) -> Option<Steps> {
        // The rows of sliding windows nearly always have twins.
        if takes.len() > FEW || takes.iter().any(|take| take.quota.algorithm() == Algorithm::SlidingWindow) {
            return None;
        }
        let slots: SmallVec<[Slot; FEW]> = takes.iter().map(|take| Slot::of(take.row.digest())).collect();
        if slots.iter().enumerate().any(|(i, slot)| slots[..i].contains(slot)) {
            return None;
        }
        let worth = &self.table.worth;
        let mut locked = Locked::new(&self.table, &slots);
        let now = self.clock.now();
        let mut before: SmallVec<[State; FEW]> = SmallVec::new();
        let mut steps = Steps(SmallVec::with_capacity(takes.len()));
        for (take, slot) in takes.iter().zip(&slots) {
            let row = find_mut(locked.shard(*slot).1, *slot).filter(|row| !row.has_twin())?;
            before.push(worth.state(row));
            let step = step(&take.quota, &worth.state(row), now, take.ask);
            if step.state.carry != 0.0 {
                return None;
            }
            steps.0.push(step);
        }
        if !steps.all_granted() {
            // Nothing is spent: whatever fitted leaves its row as it was.
            for (step, before) in steps.0.iter_mut().zip(before).filter(|(step, _)| step.is_allowed()) {
                step.state = before;
            }
        } else if store {
            for ((take, slot), step) in takes.iter().zip(&slots).zip(steps.iter()) {
                if let Some(row) = find_mut(locked.shard(*slot).1, *slot) {
                    *row = Row::new(step.state.spent, step.state.at, worth.learn(&take.quota), false);
                }
            }
        }
        Some(steps)
    }

    /// Any takes.
    pub(crate) fn decide_all(&self, takes: &[Take<'_>], store: bool) -> Steps {
        let slots: SmallVec<[Slot; 4]> = takes.iter().map(|take| Slot::of(take.row.digest())).collect();
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
                    // Tiers of one policy share a row, so the last quota is the one that wrote it.
                    let Some(last) = steps.iter().rposition(|(other, _)| *other == index) else { continue };
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
            Some(_) => Step { state: roll(&take.quota, &State { at: now, ..step.state }, now), ..step },
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
        let slot = Slot::of(settlement.row.digest());
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
            if let Some(found) = find_mut(shard, slot) {
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
            let slot = Slot::of(row.digest());
            let mut shard = self.table.lock(self.table.shard_of(slot));
            remove(&mut shard, slot);
            remove(&mut shard, slot.twin());
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

/// Choices for a [`MemoryBackend`].
///
/// ```
/// use tollgate::{ManualClock, MemoryBackend};
///
/// let backend = MemoryBackend::builder().max_rows(5).clock(ManualClock::new()).build();
/// assert_eq!(backend.max_rows(), 16); // the least
/// ```
#[derive(Clone, Debug)]
pub struct MemoryBackendBuilder {
    max_rows: usize,
    clock: Option<Arc<dyn Clock>>,
}

impl MemoryBackendBuilder {
    /// The most rows to hold, at least 16. Defaults to 1,000,000: at most 75 MB in use, and 150 MB under constant
    /// churn.
    ///
    /// The room is divided among shards, so the table may be full a little before. A sliding window's key needs two
    /// rows.
    #[must_use]
    pub fn max_rows(mut self, rows: usize) -> MemoryBackendBuilder {
        self.max_rows = rows.max(16);
        self
    }

    /// The clock to go by. Defaults to [`SystemClock`].
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> MemoryBackendBuilder {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// The backend.
    pub fn build(self) -> MemoryBackend {
        MemoryBackend {
            table: Table::new(self.max_rows),
            overflow: Mutex::new(HashMap::new()),
            clock: match self.clock {
                Some(clock) => AnyClock::Other(clock),
                None => AnyClock::System(SystemClock::new()),
            },
            max_rows: self.max_rows,
        }
    }
}

const DEFAULT_MAX_ROWS: usize = 1_000_000;

/// The usual clock without the call through a pointer.
enum AnyClock {
    System(SystemClock),
    Other(Arc<dyn Clock>),
}

impl AnyClock {
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

/// The shards of a call, locked in the order of their numbers, and what is done to their rows.
struct Locked<'a> {
    table: &'a Table,
    shards: SmallVec<[(usize, RwLockWriteGuard<'a, Shard>); 2]>,
}

/// A row of a call.
struct Loaded {
    slot: Slot,
    state: State,
    /// The row before the first take of the call that was granted.
    before: Option<State>,
    place: Place,
    has_twin: bool,
    /// The overflow row that stands in for it.
    shared: Option<u64>,
}

impl Loaded {
    /// The quota by which a take on this row is decided.
    fn quota_of(&self, take: &Take<'_>) -> Quota {
        match self.shared {
            // Window boundaries that differ from newcomer to newcomer would pay the shared row back at each.
            Some(_) => take.quota.seeded(take.row.policy.id()),
            None => take.quota,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// It is in the table.
    Found,
    /// It is not, and has room there.
    New(Room),
    /// It is not, and has no room.
    Overflow,
}

impl<'a> Locked<'a> {
    fn new(table: &'a Table, slots: &[Slot]) -> Locked<'a> {
        let mut numbers: SmallVec<[usize; 8]> = slots.iter().map(|slot| table.shard_of(*slot)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        Locked { table, shards: numbers.into_iter().map(|number| (number, table.lock(number))).collect() }
    }

    fn shard(&mut self, slot: Slot) -> (usize, &mut Shard) {
        let number = self.table.shard_of(slot);
        match self.shards.iter_mut().find(|(other, _)| *other == number) {
            Some((_, shard)) => (number, shard),
            None => unreachable!("every shard of the call was locked"),
        }
    }

    /// The row of a slot. `others` of the call are loaded already; none of `slots`, all that the call names, may be
    /// dropped for the sake of another.
    fn load(&mut self, slot: Slot, quota: &Quota, now: Micros, others: &[Loaded], slots: &[Slot]) -> Loaded {
        let table = self.table;
        let (number, shard) = self.shard(slot);
        let mut row =
            Loaded { slot, state: State::default(), before: None, place: Place::Found, has_twin: false, shared: None };
        let found = find(shard, slot);
        if let Some(found) = found {
            row.state = table.worth.state(&found);
        } else {
            let mut busy: SmallVec<[Slot; 8]> = slots.iter().copied().collect();
            let mut coming = 0;
            for other in others.iter().filter(|other| table.shard_of(other.slot) == number) {
                match other.place {
                    Place::New(Room::InPlaceOf(victim)) => busy.push(victim.without_twin()),
                    Place::New(_) => coming += 1,
                    _ => {}
                }
            }
            row.place = match table.room(shard, number, coming, &busy, now) {
                Room::None => Place::Overflow,
                room => Place::New(room),
            };
        }
        // A token bucket's twin outlives its row: late give-backs go by it. A window without its row means nothing.
        if found.is_none_or(|found| found.has_twin()) {
            let sliding = quota.algorithm() == Algorithm::SlidingWindow;
            if let Some(twin) = find(shard, slot.twin()) {
                row.has_twin = true;
                let holds = if sliding { found.is_some() } else { twin.at() > now };
                if holds && row.place != Place::Overflow {
                    row.state.carry = twin.spent();
                    row.state.stamp = table.worth.stamp(&twin);
                }
            }
        }
        row
    }

    fn store(&mut self, row: &Loaded, quota: &Quota, now: Micros, slots: &[Slot]) {
        let table = self.table;
        let (number, shard) = self.shard(row.slot);
        let id = table.worth.learn(quota);
        if let Place::New(Room::InPlaceOf(victim)) = row.place {
            remove(shard, victim);
            remove(shard, victim.twin());
        }
        // Another row's twin may have come into the place that was found, or in place of the same victim.
        if row.place != Place::Found && table.is_full(shard) {
            match table.room(shard, number, 0, slots, now) {
                Room::Free => {}
                Room::InPlaceOf(victim) => {
                    remove(shard, victim);
                    remove(shard, victim.twin());
                }
                Room::None => return, // Losing a row forgives; passing the cap does not.
            }
        }
        let state = &row.state;
        let mut has_twin = false;
        if state.carry > 0.0 {
            let until = match quota.algorithm() {
                Algorithm::SlidingWindow => state.at.plus(quota.period_micros()),
                // As long as any receipt made before now could be worth anything: none stood above the ceiling.
                _ => {
                    let most = (state.spent + state.carry).min(quota.ceiling() as f64);
                    let owed = State { spent: most, at: now, carry: 0.0, stamp: quota.stamp() };
                    when(quota, &owed, now, 0.0).unwrap_or(Micros::MAX)
                }
            };
            has_twin = row.has_twin
                || match table.room(shard, number, 1, slots, now) {
                    Room::Free => true,
                    Room::InPlaceOf(victim) => {
                        remove(shard, victim);
                        remove(shard, victim.twin());
                        true
                    }
                    Room::None => false,
                };
            if has_twin {
                put(shard, row.slot.twin(), Row::new(state.carry, until, id, false));
            }
        } else if row.has_twin {
            remove(shard, row.slot.twin());
        }
        put(shard, row.slot, Row::new(state.spent, state.at, id, has_twin));
    }
}

/// The policy's overflow row; policies without number share one.
fn shared_id(overflow: &HashMap<u64, State>, take: &Take<'_>) -> u64 {
    let id = take.row.policy.id();
    if overflow.len() < MOST_OVERFLOW_ROWS || overflow.contains_key(&id) { id } else { 0 }
}

/// Takes of a call for which there is a shorter way.
const FEW: usize = 4;

const MOST_OVERFLOW_ROWS: usize = 1024;

#[cfg(test)]
mod tests;
