//! Leases (step 4 of a decision): tokens of a remote backend that this process spends without asking the backend.
//!
//! A call spends leased tokens only if all of its charges are under policies with leases and are covered by leases.
//! Otherwise, the process gives back its leases on the call's rows, and the backend decides. Before a lease is used up,
//! the process sends one request for the next lease.

mod holder;
#[cfg(test)]
#[path = "tests/simulation.rs"]
mod simulation;

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use hashbrown::HashTable;
use smallvec::SmallVec;

use self::holder::Holder;
use super::local::LocalTime;
use crate::algorithm::{LeaseReport, Micros, SECOND, State, Step, roll, step};
use crate::backend::{BackendFuture, LeaseBackend, LeaseHolder, LeaseRequest, OwnedTake, Steps, Take};
use crate::policy::{Digest, Placement};
use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::sync::{Mutex, MutexGuard, PoisonError};

pub(super) struct Leases {
    backend: Arc<dyn LeaseBackend>,
    time: LocalTime,
    shards: Box<[Mutex<Shard>]>,
    /// Assigns random positions to windows, so a client cannot choose keys that share a bucket.
    placement: Placement,
    sequence: AtomicU32,
    /// Whether [`LeaseBackend::watch`] has been called, which makes the backend call [`LeaseHolder::tick`].
    is_watched: AtomicBool,
}

type Shard = HashTable<Entry>;

struct Entry {
    id: Digest,
    /// The take that provides the row, the window and the quota for requests.
    take: OwnedTake,
    holder: Holder,
}

/// A request that is sent after the table has been unlocked.
struct Request {
    id: Digest,
    take: OwnedTake,
    reports: [LeaseReport; 2],
    tokens: u64,
    sent: Micros,
}

/// The result of trying to decide a call with leases.
pub(super) enum Spent {
    /// For each take: the sequence number of the last report before the charge, and the step.
    All(SmallVec<[u32; 4]>, Steps),
    /// The call is denied because the backend has recently granted only a few of the tokens that this process needs.
    Denied(Steps),
    /// The backend must decide. `holds` is true if this process holds leased tokens for any of the call's rows.
    Nothing { holds: bool },
}

const SHARDS: usize = 64;

/// The maximum number of windows with leases in each shard. The backend decides calls on further windows.
const MAX_PER_SHARD: usize = 1024;

/// How long a window must go without calls before its leases are given back.
const IDLE: Duration = SECOND;

impl Leases {
    pub(super) fn new(backend: Arc<dyn LeaseBackend>, time: LocalTime) -> Arc<Leases> {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        let (placement, sequence) = (Placement::random(), AtomicU32::new(1));
        Arc::new(Leases { backend, time, shards, placement, sequence, is_watched: AtomicBool::new(false) })
    }

    /// Decides a call with leases, if they cover all of its takes.
    #[inline]
    pub(super) fn spend(self: &Arc<Self>, takes: &[Take<'_>]) -> Spent {
        if takes.iter().any(|take| take.part.leased) {
            self.spend_leased(takes)
        } else {
            Spent::Nothing { holds: false }
        }
    }

    fn spend_leased(self: &Arc<Self>, takes: &[Take<'_>]) -> Spent {
        let ids: SmallVec<[Digest; 4]> = takes.iter().map(Take::digest).collect();
        let (mut shards, now) = (self.lock(&ids), self.time.now());
        let (mut covers, mut holds) = (takes.iter().all(is_leasable), false);
        for (i, (take, id)) in takes.iter().zip(&ids).enumerate() {
            match shards.entry(i, *id) {
                Some(Entry { holder, .. }) => {
                    let (cost, tokens) = (take.ask.tokens(), holder.tokens(now));
                    holder.demand(cost, now);
                    holds |= tokens > 0;
                    covers &= holder.covers(cost, now) && holder.quota == take.quota && !ids[..i].contains(id);
                }
                None => covers = false,
            }
        }
        if !covers {
            // Only the backend can compute the retry time of a call with several charges.
            if let ([take], false) = (takes, holds) {
                let holder = shards.entry(0, ids[0]).map(|entry| &entry.holder).filter(|_| is_leasable(take));
                let paused = holder.filter(|holder| holder.quota == take.quota && holder.is_paused(now));
                if let Some(denial) = paused.and_then(|holder| holder.denial(take.ask, now)) {
                    return Spent::Denied(Steps::from(denial));
                }
            }
            return Spent::Nothing { holds };
        }
        let (mut reports, mut steps) = (SmallVec::new(), SmallVec::<[Step; 2]>::new());
        let mut requests = SmallVec::<[Request; 1]>::new();
        for (i, (take, id)) in takes.iter().zip(&ids).enumerate() {
            let Some(Entry { take: row, holder, .. }) = shards.entry(i, *id) else { continue };
            holder.spend(take.ask.tokens(), now);
            steps.extend(holder.step(now));
            reports.push(holder.sequence);
            if holder.is_low(now) {
                requests.extend(self.request(*id, row, holder, now));
            }
        }
        drop(shards);
        requests.into_iter().for_each(|request| self.send(request));
        Spent::All(reports, steps.into_iter().collect())
    }

    /// Gives back the leased tokens of a call's rows before the backend decides the call.
    pub(super) fn give_back(&self, takes: &[Take<'_>]) {
        for take in takes.iter().filter(|take| take.part.leased) {
            self.give_back_if(take.digest(), |holder, now| holder.tokens(now) > 0);
        }
    }

    /// Reports spent tokens and gives unspent tokens back before the backend credits the windows.
    pub(super) fn report(&self, windows: impl Iterator<Item = Digest>) {
        windows.for_each(|id| self.give_back_if(id, |holder, _| !holder.is_empty()));
    }

    fn give_back_if(&self, id: Digest, is_due: impl Fn(&Holder, Micros) -> bool) {
        let (mut window, now) = (self.window(id), self.time.now());
        let Some(Entry { take: row, holder, .. }) = window.entry().filter(|entry| is_due(&entry.holder, now)) else {
            return;
        };
        let (reports, row) = (holder.report(true, self.next(), now), row.clone());
        drop(window);
        drop(self.backend.lease(&request(&row, reports, 0)));
    }

    /// Requests leases on the rows of a call that has been sent to the backend.
    pub(super) fn ask(self: &Arc<Self>, takes: &[Take<'_>]) {
        if !takes.iter().all(is_leasable) {
            return;
        }
        if !self.is_watched.swap(true, Ordering::Relaxed) {
            let holder: Weak<Leases> = Arc::downgrade(self);
            self.backend.watch(holder);
        }
        for take in takes {
            let (id, now) = (take.digest(), self.time.now());
            let mut window = self.window(id);
            let request = match window.entry() {
                Some(Entry { take: row, holder, .. }) if holder.quota == take.quota => {
                    self.request(id, row, holder, now)
                }
                _ => {
                    let mut holder = Holder::new(take.quota, self.next(), now);
                    holder.demand(take.ask.tokens(), now);
                    window.insert(Entry { id, take: OwnedTake::of(take), holder });
                    None
                }
            };
            drop(window);
            request.into_iter().for_each(|request| self.send(request));
        }
    }

    /// Adds the tokens that this process holds to the answer to a check.
    pub(super) fn add_held(&self, takes: &[Take<'_>], steps: &mut Steps) {
        for (take, answer) in takes.iter().zip(steps.iter_mut()).filter(|(take, _)| take.part.leased) {
            let (id, now) = (take.digest(), self.time.now());
            let tokens = self.window(id).entry().map_or(0, |entry| entry.holder.tokens(now));
            if tokens > 0 {
                let row = roll(&take.quota, &answer.state, answer.now);
                let row = State { spent: (row.spent - tokens as f64).max(0.0), ..row };
                *answer = step(&take.quota, &row, answer.now, take.ask);
            }
        }
    }

    /// Returns the minimum duration for which a denial of a take is remembered, even if tokens are refilled sooner.
    pub(super) fn pause(&self, take: &Take<'_>) -> Duration {
        let (id, now) = (take.digest(), self.time.now());
        if !take.part.leased {
            return Duration::ZERO;
        }
        self.window(id).entry().map_or(Duration::ZERO, |entry| entry.holder.pause(now))
    }

    /// Gives a charge's tokens back to its lease. Returns `false` if the charge has been reported.
    pub(super) fn refund(&self, id: Digest, tokens: u64, sequence: u32) -> bool {
        let now = self.time.now();
        self.window(id).entry().is_some_and(|entry| entry.holder.refund(tokens, sequence, now))
    }

    /// Spends additional leased tokens for a charge. Returns whether there were enough.
    pub(super) fn surcharge(&self, id: Digest, tokens: u64) -> bool {
        let now = self.time.now();
        self.window(id).entry().is_some_and(|entry| entry.holder.spend(tokens, now))
    }

    /// Removes the leases on rows that were reset.
    pub(super) fn forget(&self, windows: impl Iterator<Item = Digest>) {
        windows.for_each(|id| self.window(id).remove());
    }

    pub(super) fn shut_down(&self) -> BackendFuture<()> {
        let requests = self.take_back(|_, _| true);
        let sent: Vec<_> =
            requests.iter().map(|(take, reports)| self.backend.lease(&request(take, *reports, 0))).collect();
        BackendFuture::boxed(async move {
            let mut result = Ok(());
            for answer in sent {
                result = result.and(answer.await.map(|_| ()));
            }
            result
        })
    }

    /// Returns the number of windows with leases, and the number of tokens that this process holds.
    pub(super) fn counts(&self) -> (usize, u64) {
        let now = self.time.now();
        let count = |(windows, tokens): (usize, u64), entry: &Entry| match entry.holder.tokens(now) {
            0 => (windows, tokens),
            held => (windows + 1, tokens + held),
        };
        self.shards.iter().fold((0, 0), |counts, shard| locked(shard).iter().fold(counts, count))
    }

    /// Removes the holders for which `is_due` returns true. Returns the reports on their leases.
    fn take_back(&self, is_due: impl Fn(&Holder, Micros) -> bool) -> Vec<(OwnedTake, [LeaseReport; 2])> {
        let (mut requests, now) = (Vec::new(), self.time.now());
        for shard in &self.shards {
            locked(shard).retain(|Entry { take, holder, .. }| {
                if !is_due(holder, now) {
                    return true;
                }
                if !holder.is_empty() {
                    requests.push((take.clone(), holder.report(true, self.next(), now)));
                }
                false
            });
        }
        requests
    }

    fn request(&self, id: Digest, take: &OwnedTake, holder: &mut Holder, now: Micros) -> Option<Request> {
        let (reports, tokens) = holder.ask(self.next(), now)?;
        Some(Request { id, take: take.clone(), reports, tokens, sent: now })
    }

    fn send(self: &Arc<Self>, asked: Request) {
        let answer = self.backend.lease(&request(&asked.take, asked.reports, asked.tokens));
        let leases = Arc::clone(self);
        self.backend.spawn(Box::pin(async move {
            let answer = answer.await;
            let (Request { id, take, sent, .. }, now) = (asked, leases.time.now());
            let mut window = leases.window(id);
            let holder = window.entry().map(|entry| &mut entry.holder).filter(|holder| holder.quota == take.quota);
            // If the request failed, the tokens that it reported stay outstanding until their leases end.
            let unused = match (holder, &answer) {
                (Some(holder), answer) => {
                    holder.is_asking = false;
                    answer.as_ref().ok().and_then(|lease| holder.granted(lease, sent, now))
                }
                // The row was reset, its quota has changed, or this process is shutting down.
                (None, Ok(lease)) => Some(LeaseReport { id: lease.id, spent: 0, unused: lease.tokens }),
                (None, Err(_)) => None,
            };
            drop(window);
            if let Some(report) = unused {
                drop(leases.backend.lease(&request(&take, [report, LeaseReport::default()], 0)));
            }
        }));
    }

    fn next(&self) -> u32 {
        self.sequence.fetch_add(1, Ordering::Relaxed)
    }

    fn window(&self, id: Digest) -> Window<'_> {
        let place = self.placement.place(id);
        Window { shard: locked(&self.shards[shard_of(place)]), id, place, placement: &self.placement }
    }

    /// Locks the shards of a call in ascending order.
    fn lock(&self, ids: &[Digest]) -> Locked<'_> {
        let places: SmallVec<[u64; 4]> = ids.iter().map(|id| self.placement.place(*id)).collect();
        let mut order: SmallVec<[usize; 4]> = places.iter().map(|place| shard_of(*place)).collect();
        order.sort_unstable();
        order.dedup();
        Locked { guards: order.iter().map(|shard| (*shard, locked(&self.shards[*shard]))).collect(), places }
    }
}

/// The locked shard of a window, and the position of the window's entry.
struct Window<'a> {
    shard: MutexGuard<'a, Shard>,
    id: Digest,
    place: u64,
    placement: &'a Placement,
}

impl Window<'_> {
    fn entry(&mut self) -> Option<&mut Entry> {
        let id = self.id;
        self.shard.find_mut(self.place, |entry| entry.id == id)
    }

    /// Replaces the entry, or adds it unless the shard is full.
    fn insert(&mut self, new: Entry) {
        if let Some(entry) = self.entry() {
            *entry = new;
        } else if self.shard.len() < MAX_PER_SHARD {
            self.shard.insert_unique(self.place, new, |entry| self.placement.place(entry.id));
        }
    }

    fn remove(&mut self) {
        if let Ok(entry) = self.shard.find_entry(self.place, |entry| entry.id == self.id) {
            entry.remove();
        }
    }
}

struct Locked<'a> {
    places: SmallVec<[u64; 4]>,
    guards: SmallVec<[(usize, MutexGuard<'a, Shard>); 2]>,
}

impl Locked<'_> {
    fn entry(&mut self, index: usize, id: Digest) -> Option<&mut Entry> {
        let place = self.places[index];
        let (_, shard) = self.guards.iter_mut().find(|(number, _)| *number == shard_of(place))?;
        shard.find_mut(place, |entry| entry.id == id)
    }
}

/// Returns the shard of a position. The table within a shard uses the lowest and the highest bits of the position.
fn shard_of(place: u64) -> usize {
    (place >> 32) as usize % SHARDS
}

impl LeaseHolder for Leases {
    fn tick(&self) {
        for (take, reports) in self.take_back(|holder, now| !holder.is_asking && now.since(holder.used) >= IDLE) {
            drop(self.backend.lease(&request(&take, reports, 0)));
        }
    }
}

/// Returns whether a lease can cover a take. Only the backend can make reservations.
fn is_leasable(take: &Take<'_>) -> bool {
    take.part.leased && take.ask.max_wait().is_none()
}

fn request(take: &OwnedTake, reports: [LeaseReport; 2], tokens: u64) -> LeaseRequest<'_> {
    let Take { row, window, quota, .. } = take.take();
    LeaseRequest { row, window, quota, reports, tokens }
}

fn locked(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Leases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leases").field("backend", &self.backend).finish_non_exhaustive()
    }
}
