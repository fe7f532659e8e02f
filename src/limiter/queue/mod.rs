//! Waiting queues. When a caller in this process stops waiting, the callers behind it move up.
//!
//! The backend cannot take back a reservation if there are later reservations, because their due times do not change.
//! Instead, each caller behind the departed caller takes over the reservation just ahead of its own, and the last
//! reservation is given back. Only reservations with the same cost and quota can be exchanged, so each row has a
//! separate queue for each cost and quota.
//!
//! The caller at rank `i` in a queue holds the reservation at rank `i`. A departure removes one caller and the last
//! reservation, in logarithmic time. The callers behind the departed caller are woken to shorten their timers, except
//! those that have not polled since they were last woken.

mod sequence;
#[cfg(test)]
mod tests;

use std::task::Waker;

use self::sequence::{EntryId, Sequence, Summarize};
use crate::algorithm::{Micros, Quota};
use crate::policy::{DecidedBy, Decision, Decisions, Digest, PolicyName};
use crate::sync::Map;

/// All queues of a limiter. A queue is removed when its last caller leaves.
#[derive(Debug, Default)]
pub(super) struct Queues(Map<QueueKey, Queue>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct QueueKey {
    policy: PolicyName,
    row_key: Digest,
    cost: u64,
    quota: Quota,
}

#[derive(Debug, Default)]
struct Queue {
    /// The waiters, ordered by due time and then by `number`.
    waiters: Sequence<Waiter>,
    /// The reservations, ordered by due time.
    reserved: Sequence<Decision>,
    joined: u64,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    /// Whether the caller has been woken for a changed reservation since its last poll.
    moved: bool,
    waker: Waker,
}

#[derive(Clone, Copy, Debug)]
struct RunSummary {
    first: u64,
    last: u64,
    highest: u64,
    /// Whether the waiters are in the order in which they joined.
    in_order: bool,
    all_moved: bool,
}

#[derive(Debug)]
pub(super) struct Ticket {
    queue: QueueKey,
    waiter: EntryId,
}

impl Queues {
    /// Adds a caller with its reservation. Returns `None` unless the reservation is a single decision by the backend.
    pub(super) fn join(&self, decisions: &Decisions, waker: &Waker) -> Option<Ticket> {
        let decision = decisions.only()?;
        if decision.decided_by() != DecidedBy::Backend {
            return None;
        }
        let queue = QueueKey {
            policy: decision.policy().clone(),
            row_key: decision.of().row_key,
            cost: decision.cost(),
            quota: decision.of().quota,
        };
        let waiter = self.0.with_default(queue.clone(), |queue| queue.join(decision.clone(), waker.clone()));
        Some(Ticket { queue, waiter })
    }

    /// Returns the caller's decision if it has changed since the last poll. The next change wakes `waker`.
    pub(super) fn moved(&self, ticket: &Ticket, waker: &Waker) -> Option<Decision> {
        // Dropping a waker may drop a task whose destructor locks the queue, so the waker is dropped after unlocking.
        let (_earlier_waker, decision) = self.0.with(&ticket.queue, |queue| queue.moved(ticket.waiter, waker))?;
        decision
    }

    /// Removes a caller at its due time. Returns its decision.
    pub(super) fn complete(&self, ticket: &Ticket) -> Option<Decision> {
        let (_waiter, decision) = self.remove(ticket, Queue::complete)?;
        Some(decision)
    }

    /// Removes a caller that stops waiting. Returns the last reservation in the queue, which no caller needs anymore.
    pub(super) fn leave(&self, ticket: &Ticket) -> Option<Decision> {
        let (_waiter, decision, wakers) = self.remove(ticket, Queue::leave)?;
        wakers.into_iter().for_each(Waker::wake);
        Some(decision)
    }

    fn remove<R>(&self, ticket: &Ticket, exit: impl FnOnce(&mut Queue, EntryId) -> Option<R>) -> Option<R> {
        let removed = self.0.with(&ticket.queue, |queue| exit(queue, ticket.waiter))?;
        self.0.remove_if(&ticket.queue, |queue| queue.waiters.len() == 0);
        removed
    }
}

impl Queue {
    fn join(&mut self, reservation: Decision, waker: Waker) -> EntryId {
        self.joined += 1;
        // Callers do not necessarily start waiting in the order of their decisions.
        let rank = self.reserved.partition_point(0, |last| last <= reservation.due());
        self.reserved.insert(rank, reservation);
        self.waiters.insert(rank, Waiter { number: self.joined, moved: false, waker })
    }

    fn moved(&mut self, waiter: EntryId, waker: &Waker) -> (Option<Waker>, Option<Decision>) {
        let (earlier_waker, moved) = self.waiters.change(waiter, |waiter| {
            let is_other = !waiter.waker.will_wake(waker);
            let earlier_waker = is_other.then(|| std::mem::replace(&mut waiter.waker, waker.clone()));
            (earlier_waker, std::mem::take(&mut waiter.moved))
        });
        let reservation = if moved { self.reserved.at(self.waiters.rank(waiter)) } else { None };
        (earlier_waker, reservation.map(|reservation| self.reserved.get(reservation).clone()))
    }

    fn complete(&mut self, waiter: EntryId) -> Option<(Waiter, Decision)> {
        let reservation = self.reserved.at(self.waiters.rank(waiter))?;
        Some((self.waiters.remove(waiter), self.reserved.remove(reservation)))
    }

    fn leave(&mut self, waiter: EntryId) -> Option<(Waiter, Decision, Vec<Waker>)> {
        let rank = self.waiters.rank(waiter);
        let last = self.reserved.at(self.reserved.len().checked_sub(1)?)?;
        let (waiter, last) = (self.waiters.remove(waiter), self.reserved.remove(last));
        let mut wakers = Vec::new();
        while let Some(asleep) = self.waiters.first_beyond(rank, |run| run.all_moved) {
            wakers.push(self.waiters.change(asleep, |waiter| {
                waiter.moved = true;
                waiter.waker.clone()
            }));
        }
        self.sort(rank.saturating_sub(1));
        Some((waiter, last, wakers))
    }

    /// Starting at `begin`, sorts waiters that now have the same due time by the order in which they joined.
    fn sort(&mut self, mut begin: usize) {
        while let Some(late) = self.waiters.first_beyond(begin, |run| run.in_order) {
            begin = self.waiters.rank(late);
            let (Some(reservation), Some(before)) = (self.reserved.at(begin), self.reserved.at(begin - 1)) else {
                return;
            };
            let due = self.reserved.get(reservation).due();
            if self.reserved.get(before).due() == due {
                let number = self.waiters.get(late).number;
                let first = self.reserved.partition_point(0, |last| last < due);
                let place = self.waiters.partition_point(first, |run| run.highest < number);
                self.waiters.shift(late, place);
                self.reserved.shift(reservation, place);
            }
        }
    }
}

impl Summarize for Waiter {
    type Summary = RunSummary;

    fn summary(&self) -> RunSummary {
        RunSummary {
            first: self.number,
            last: self.number,
            highest: self.number,
            in_order: true,
            all_moved: self.moved,
        }
    }

    fn join(left: RunSummary, right: RunSummary) -> RunSummary {
        RunSummary {
            first: left.first,
            last: right.last,
            highest: left.highest.max(right.highest),
            in_order: left.in_order && right.in_order && left.last < right.first,
            all_moved: left.all_moved && right.all_moved,
        }
    }
}

/// The summary of a run of reservations is its last due time.
impl Summarize for Decision {
    type Summary = Micros;

    fn summary(&self) -> Micros {
        self.due()
    }

    fn join(_: Micros, right: Micros) -> Micros {
        right
    }
}
