//! Those who wait for turns of one row in this process: whoever leaves passes their turn on.
//!
//! A turn in the midst of others cannot be given back to the backend, since those behind keep what they were promised.
//! But here those behind can be asked: each takes the turn before its own, and the last turn, which nobody was promised
//! a later one than, goes back. The turns themselves stay as they are, with the same costs at the same instants, so
//! whatever bound they kept is kept.

use std::collections::HashMap;
use std::task::Waker;

use crate::backend::RowId;
use crate::policy::{DecidedBy, Decision, Decisions, Digest};
use crate::sync::{Mutex, MutexGuard, PoisonError};

/// By row, in the order of turns.
#[derive(Debug, Default)]
pub(super) struct Queues(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    rows: HashMap<Digest, Vec<Waiter>>,
    came: u64,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    decision: Decision,
    /// It has another turn than when it was last asked.
    moved: bool,
    waker: Waker,
}

/// Whose place in which queue.
#[derive(Debug)]
pub(super) struct Ticket {
    row: Digest,
    number: u64,
}

impl Queues {
    /// Whoever waits for one turn that the backend promised joins the row's queue. Turns under several rules are only
    /// worth anything together and cannot be passed on.
    pub(super) fn join(&self, decisions: &Decisions, waker: &Waker) -> Option<Ticket> {
        let decision = decisions.only()?;
        if decision.decided_by() != DecidedBy::Backend {
            return None;
        }
        let row = RowId { policy: decision.policy(), key: decision.row_key() }.digest();
        let mut waiting = self.waiting();
        waiting.came += 1;
        let number = waiting.came;
        let queue = waiting.rows.entry(row).or_default();
        // They come in order, but for those who were decided elsewhere than they wait.
        let place = queue.partition_point(|waiter| waiter.decision.due() <= decision.due());
        queue.insert(place, Waiter { number, decision: decision.clone(), moved: false, waker: waker.clone() });
        Some(Ticket { row, number })
    }

    /// The decision by which somebody waits now, if it is another than before. Woken when there is another.
    pub(super) fn moved(&self, ticket: &Ticket, waker: &Waker) -> Option<Decision> {
        let mut waiting = self.waiting();
        let waiter = waiting.rows.get_mut(&ticket.row)?.iter_mut().find(|waiter| waiter.number == ticket.number)?;
        waiter.waker.clone_from(waker);
        std::mem::take(&mut waiter.moved).then(|| waiter.decision.clone())
    }

    /// Somebody's turn has come. The decision by which it did.
    pub(super) fn go(&self, ticket: &Ticket) -> Option<Decision> {
        let mut waiting = self.waiting();
        let queue = waiting.rows.get_mut(&ticket.row)?;
        let place = queue.iter().position(|waiter| waiter.number == ticket.number)?;
        let waiter = queue.remove(place);
        if queue.is_empty() {
            waiting.rows.remove(&ticket.row);
        }
        Some(waiter.decision)
    }

    /// Somebody does not wait any more. The decision that is left over when all behind have moved up.
    pub(super) fn leave(&self, ticket: &Ticket) -> Option<Decision> {
        let mut waiting = self.waiting();
        let queue = waiting.rows.get_mut(&ticket.row)?;
        let place = queue.iter().position(|waiter| waiter.number == ticket.number)?;
        let mut left = queue.remove(place).decision;
        let mut wakers = Vec::new();
        for behind in &mut queue[place..] {
            // Only a turn of the same size, under the same quota, is as good.
            if behind.decision.cost() == left.cost() && behind.decision.quota() == left.quota() {
                std::mem::swap(&mut behind.decision, &mut left);
                behind.moved = true;
                wakers.push(behind.waker.clone());
            }
        }
        // Who moved past one of another size is before it now; of two at one instant, who came first.
        queue.sort_by_key(|waiter| (waiter.decision.due(), waiter.number));
        if queue.is_empty() {
            waiting.rows.remove(&ticket.row);
        }
        drop(waiting);
        wakers.into_iter().for_each(Waker::wake);
        Some(left)
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
