//! Waiting queues: the callers in this process that wait for turns of one row, so that a turn is passed on when its
//! caller leaves.
//!
//! A turn between others cannot be given back to the backend, since those behind it keep what they were promised. But
//! the callers behind it in this process can be asked: each of them takes the turn before its own, and the last turn,
//! after which none was promised, goes back. The turns themselves stay as they are, with the same costs at the same
//! instants, so every bound that they kept is still kept.
//!
//! Only turns of one cost under one quota can be exchanged, so each such class of a row has a queue of its own: its
//! callers in their order and its turns in theirs. The caller of rank `i` has the turn of rank `i`. A departure removes
//! one caller and the last turn, and nothing else moves: it takes time logarithmic in the length of the queue.
//!
//! A departure wakes every caller behind it, since the turn of each comes earlier now than its timer. A caller that was
//! woken and has not asked since is not woken again, because it will ask for its turn as it is by then. So there are at
//! most as many wakes as there were times that callers asked, and callers that leave together cost one wake for each
//! that stays.

mod sequence;
#[cfg(test)]
mod tests;

use std::task::Waker;

use self::sequence::{EntryId, Sequence, Summarize};
use crate::algorithm::{Micros, Quota};
use crate::policy::{DecidedBy, Decision, Decisions, Digest, PolicyName};
use crate::sync::Map;

/// All queues of a limiter. A queue is removed with its last caller.
#[derive(Debug, Default)]
pub(super) struct Queues(Map<QueueKey, Queue>);

/// Turns that are as good as each other, but for their instants.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct QueueKey {
    policy: PolicyName,
    key: Digest,
    cost: u64,
    quota: Quota,
}

/// One queue. There are as many waiters as turns, and the waiter of each rank has the turn of that rank.
#[derive(Debug, Default)]
struct Queue {
    /// By the instants of their turns; of those with one instant, in the order in which they came.
    waiters: Sequence<Waiter>,
    /// By their instants.
    reserved: Sequence<Decision>,
    joined: u64,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    /// It has another turn than when it last asked, and was woken for that.
    moved: bool,
    waker: Waker,
}

/// What is known of a run of waiters.
#[derive(Clone, Copy, Debug)]
struct RunSummary {
    first: u64,
    last: u64,
    highest: u64,
    /// Whether they stand in the order in which they came.
    in_order: bool,
    /// Whether all of them are about to ask for their turns.
    all_moved: bool,
}

/// A caller's place in a queue.
#[derive(Debug)]
pub(super) struct Ticket {
    queue: QueueKey,
    waiter: EntryId,
}

impl Queues {
    /// Adds the caller of one turn that the backend promised. Turns under several rules are only of use together and
    /// cannot be passed on.
    pub(super) fn join(&self, decisions: &Decisions, waker: &Waker) -> Option<Ticket> {
        let decision = decisions.only()?;
        if decision.decided_by() != DecidedBy::Backend {
            return None;
        }
        let queue = QueueKey {
            policy: decision.policy().clone(),
            key: decision.key(),
            cost: decision.cost(),
            quota: *decision.quota(),
        };
        let waiter = self.0.with_default(queue.clone(), |queue| queue.join(decision.clone(), waker.clone()));
        Some(Ticket { queue, waiter })
    }

    /// The decision by which the caller waits now, if it is another than when it last asked. `waker` is woken when there
    /// is another.
    pub(super) fn moved(&self, ticket: &Ticket, waker: &Waker) -> Option<Decision> {
        // A waker may be the last reference to a task whose destructor comes here: it is dropped when this is unlocked.
        let (_earlier_waker, decision) = self.0.with(&ticket.queue, |queue| queue.moved(ticket.waiter, waker))?;
        decision
    }

    /// Removes a caller whose turn has come. The decision by which it did.
    pub(super) fn complete(&self, ticket: &Ticket) -> Option<Decision> {
        let (_waiter, decision) = self.remove(ticket, Queue::complete)?;
        Some(decision)
    }

    /// Removes a caller that does not wait any more. The decision that is left over when all behind have moved up.
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
        // Turns come in order, but for those that were decided in another order than their callers began to wait.
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

    /// Puts waiters from `begin` on whose turns have one instant now into the order in which they came. They can only be
    /// in another where turns were decided in another order than their callers began to wait.
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

/// The last instant.
impl Summarize for Decision {
    type Summary = Micros;

    fn summary(&self) -> Micros {
        self.due()
    }

    fn join(_: Micros, right: Micros) -> Micros {
        right
    }
}
