//! Queues to the server: what waits at the same moment travels together.
//!
//! An operation has a deadline: half of it may go by in the queue, and what is left then is the call's.
//!
//! An operation that comes when little is under way goes at once. Those that come meanwhile wait until a call is back,
//! and then go all together. So a lone decision waits for nobody, and a busy server is asked in few, large calls. Two
//! are under way at a time, one a step behind the other, so that the server has something to do while its last answer
//! is read; and answers that came together are told one after the other, so that it stays so.
//!
//! A server has one lane. On a cluster each slot has one, since a script may only touch keys of one slot.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Cmd, ErrorKind as RedisKind, RedisError, ServerErrorKind};
use tokio::sync::oneshot;

use super::batch::{Batch, Kind, Operation, Row};
use super::breaker::{Breaker, PROBE, Passage, Why};
use super::error::{Fault, classify, fault, is_redirection};
use super::link::Link;
use crate::backend::{Error, ErrorKind};
use crate::sync::tasks::{Handle, sleep, timeout, yield_now};
use crate::sync::{Mutex, MutexGuard, PoisonError};

/// The way to the server.
pub(super) struct Lanes {
    pub(super) link: Link,
    pub(super) deadline: Duration,
    pub(super) runtime: Handle,
    queues: Mutex<Queues>,
    /// By the high bits of the slot: a node of a cluster that is gone is not to stand in the way of the others.
    breakers: [Breaker; BREAKERS],
}

#[derive(Default)]
struct Queues {
    lanes: HashMap<u16, Queue>,
    /// Operations in all of them.
    waiting: usize,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Operation>,
    /// Tasks that make calls.
    calls: usize,
    /// Calls that are at the server.
    sent: usize,
    /// Callers were told their answers, and nothing was sent since.
    told: bool,
    /// Rows of settlements and resets among these: whatever else is asked of them waits, since nobody waited for those
    /// and everybody may rely on them.
    posted: Vec<Row>,
}

impl Queue {
    /// Whether something that was posted on one of these rows is under way.
    fn is_posted(&self, rows: &[Row]) -> bool {
        !self.posted.is_empty() && rows.iter().any(|row| self.posted.contains(row))
    }

    /// A call is back with what it posted.
    fn done(&mut self, posted: &mut Vec<Row>) {
        for row in posted.drain(..) {
            if let Some(place) = self.posted.iter().position(|other| *other == row) {
                self.posted.swap_remove(place);
            }
        }
    }
}

const BREAKERS: usize = 16;

/// Calls under way at once, for a lane: one is computed while the other travels.
const MOST_CALLS: usize = 2;

/// Operations that are worth two calls rather than one.
const WORTH_HALVING: usize = 8;

/// How often an answer lets others go first: as often as it takes callers that were told theirs to ask anew, and a call
/// to be made of that.
const MOST_YIELDS: usize = 6;

/// Operations in one call. A script holds up everybody else on the server while it runs.
const MOST_TOGETHER: usize = 128;

/// Rows that these name: a script's keys have to fit on its stack. The first operation may name more by itself.
const MOST_ROWS: usize = 1000;

/// Operations that may wait in all lanes together. They have a deadline, so that a longer queue could not be served in
/// time anyway.
const MOST_WAITING: usize = 100_000;

/// A slot moves to one node, and the nodes agree on that within a moment.
const REDIRECTIONS: u32 = 4;

impl Lanes {
    pub(super) fn new(link: Link, deadline: Duration, runtime: Handle) -> Lanes {
        Lanes { link, deadline, runtime, queues: Mutex::default(), breakers: Default::default() }
    }

    /// Whether the server is there, and does what a decision needs. A slot that moved a moment ago is there too.
    pub(super) async fn try_out(&self, kind: Kind) -> Result<(), Error> {
        let (answer, _) = oneshot::channel();
        let batch = Batch::new(vec![Operation { kind, began: Instant::now(), answer }]);
        match self.ask(&batch).await {
            Err(error) if !self.leads_nowhere(&error) => Err(classify(error)),
            _ => Ok(()),
        }
    }

    /// Sends an operation on its way.
    pub(super) fn send(self: &Arc<Self>, lane: u16, operation: Operation) {
        let passage = self.breaker(lane).passage(Instant::now());
        if passage == Passage::Probe {
            operation.kind.rows().iter().take(1).for_each(|row| self.probe(lane, Row::clone(row)));
        }
        if passage != Passage::Free {
            return operation.refuse(out_of_reach(self.breaker(lane).why().unwrap_or(Why::Late)));
        }
        let mut queues = self.queues();
        if queues.waiting >= MOST_WAITING {
            drop(queues);
            let message = format!("{MOST_WAITING} decisions wait for the Redis server already; nothing was charged");
            return operation.refuse(Error::new(ErrorKind::Unavailable, message));
        }
        queues.waiting += 1;
        let queue = queues.lanes.entry(lane).or_default();
        queue.waiting.push_back(operation);
        if queue.calls < MOST_CALLS {
            queue.calls += 1;
            drop(queues);
            let call = Call { lanes: Arc::clone(self), lane, posted: Vec::new(), ended: false };
            self.runtime.spawn(call.run());
        }
    }

    /// The next operations of a lane, for one of its calls; `None` ends that call. An operation whose caller has dropped
    /// the future is sent like any other: a charge is made when the call is made.
    ///
    /// `posted` are the rows of what the call posted before, and then of what it posts now.
    fn next(&self, lane: u16, sent: bool, posted: &mut Vec<Row>) -> Option<Batch> {
        let mut queues = self.queues();
        let Queues { lanes, waiting } = &mut *queues;
        let queue = lanes.get_mut(&lane)?;
        queue.sent -= usize::from(sent);
        queue.done(posted);
        let now = Instant::now();
        // Half of many, if nothing is under way: the other half travels while this one is decided.
        let halve = queue.sent == 0 && queue.calls > 1 && queue.waiting.len() >= WORTH_HALVING;
        let most = if halve { queue.waiting.len().div_ceil(2).min(MOST_TOGETHER) } else { MOST_TOGETHER };
        let mut operations = Vec::with_capacity(queue.waiting.len().min(most));
        let mut rows = 0;
        while operations.len() < most {
            let next = queue.waiting.front().map(|operation| operation.kind.rows());
            if next.is_none_or(|next| rows + next.len() > MOST_ROWS && rows > 0 || queue.is_posted(next)) {
                break;
            }
            let Some(operation) = queue.waiting.pop_front() else { break };
            *waiting -= 1;
            if !operation.is_posted() && now.saturating_duration_since(operation.began) > self.deadline / 2 {
                // What would come back too late is not sent: it would be charged for nothing.
                operation.refuse(queued(self.deadline));
                continue;
            }
            rows += operation.kind.rows().len();
            if operation.is_posted() {
                posted.extend_from_slice(operation.kind.rows());
            }
            operations.push(operation);
        }
        queue.posted.extend_from_slice(posted);
        if operations.is_empty() {
            // What waits for something posted is left to the call that has that. Under the same lock that found nothing:
            // who comes now begins a call.
            queue.calls -= 1;
            if queue.calls == 0 {
                lanes.remove(&lane);
            }
            return None;
        }
        queue.sent += 1;
        queue.told = false;
        drop(queues);
        Some(Batch::new(operations))
    }

    /// Whether something of the lane is at the server.
    fn is_under_way(&self, lane: u16) -> bool {
        self.queues().lanes.get(&lane).is_some_and(|queue| queue.sent > 0)
    }

    /// Answers that came together are told one after the other: what the callers of the first ask next is sent before
    /// those of the second are told. Else all of them would ask at once, and be answered at once: the server idle while
    /// we are not, and the other way round. Of 64 tasks, 239,000 decisions a second were made so, and 323,000 in turn.
    async fn in_turn(&self, lane: u16, batch: &Batch) {
        if batch.len() < WORTH_HALVING {
            return;
        }
        for _ in 0..MOST_YIELDS {
            if !self.queues().lanes.get(&lane).is_some_and(|queue| queue.told) {
                break;
            }
            yield_now().await;
        }
        if let Some(queue) = self.queues().lanes.get_mut(&lane) {
            queue.told = true;
        }
    }

    async fn call(&self, lane: u16, batch: Batch) {
        if let Some(why) = self.breaker(lane).why() {
            return batch.fail(|| out_of_reach(why.clone()));
        }
        let number = self.link.number();
        // Half of the deadline at least is left of every operation that is sent: see `next`.
        let left = self.deadline.saturating_sub(batch.age()).max(self.deadline / 2);
        match timeout(left, self.ask(&batch)).await {
            Ok(Ok(reply)) => {
                self.in_turn(lane, &batch).await;
                batch.answer(&reply);
            }
            Ok(Err(error)) => {
                if fault(&error) != Fault::Answered || self.leads_nowhere(&error) {
                    self.gone(lane, number, Why::Failed(error.clone()));
                }
                batch.fail(|| classify(error.clone()));
            }
            Err(_) => {
                self.gone(lane, number, Why::Late);
                batch.fail(|| late(self.deadline));
            }
        }
    }

    /// The next call connects anew, and not before a probe found somebody there: nobody connects with every call.
    fn gone(&self, lane: u16, number: u64, why: Why) {
        self.link.lost(number);
        self.breaker(lane).trip(why, Instant::now());
    }

    /// A redirection that was followed to no end: the node that is said to have the slot is gone.
    fn leads_nowhere(&self, error: &RedisError) -> bool {
        is_redirection(error) && self.link.has_slots()
    }

    async fn ask(&self, batch: &Batch) -> Result<Vec<u8>, RedisError> {
        let (mut in_full, mut redirections, mut ask): (_, u32, Option<RedisError>) = (false, 0, None);
        // After each of these answers, and no other, it is certain that nothing was done.
        loop {
            let command = batch.command(in_full);
            let answer = match &ask {
                None => self.link.run(&command).await,
                Some(redirection) => self.link.follow(redirection, &command).await,
            };
            let Err(error) = &answer else { return answer };
            match error.kind() {
                // After a restart, or a flush of its scripts, the server needs it in full once.
                RedisKind::Server(ServerErrorKind::NoScript) if !in_full => in_full = true,
                _ if self.leads_nowhere(error) && redirections < REDIRECTIONS => {
                    let is_ask = error.kind() == RedisKind::Server(ServerErrorKind::Ask);
                    ask = is_ask.then(|| error.clone());
                    // The client asks a node where the slots are before it sends anything more; that one may not know
                    // yet.
                    if redirections > 0 {
                        sleep(self.deadline / 16).await;
                    }
                    redirections += 1;
                }
                _ => return answer,
            }
        }
    }

    /// Finds out, in a task of its own, whether the server of a row is back.
    fn probe(self: &Arc<Self>, lane: u16, row: Row) {
        let mut probe = Probe { lanes: Arc::clone(self), lane, failed: Some(Why::Late) };
        self.runtime.spawn(async move {
            let link = &probe.lanes.link;
            let number = link.number();
            let mut command = Cmd::new();
            command.arg("GET").arg(&*row);
            // Whatever it says, it is there.
            probe.failed = match timeout(PROBE.max(probe.lanes.deadline), link.run::<redis::Value>(&command)).await {
                Ok(Err(error)) if fault(&error) == Fault::Disconnected || probe.lanes.leads_nowhere(&error) => {
                    Some(Why::Failed(error))
                }
                Ok(_) => None,
                Err(_) => Some(Why::Late),
            };
            if probe.failed.is_some() {
                probe.lanes.link.lost(number);
            }
        });
    }

    /// Whether nothing waits and no task makes calls.
    #[cfg(all(test, tollgate_models))]
    pub(super) fn is_idle(&self) -> bool {
        let queues = self.queues();
        queues.lanes.is_empty() && queues.waiting == 0
    }

    /// Whether calls fail at once, at least those of some slots.
    pub(super) fn circuit_open(&self) -> bool {
        self.breakers.iter().any(|breaker| breaker.why().is_some())
    }

    /// Whether calls of this lane fail at once.
    pub(super) fn is_broken_at(&self, lane: u16) -> bool {
        self.breaker(lane).why().is_some()
    }

    fn breaker(&self, lane: u16) -> &Breaker {
        &self.breakers[usize::from(lane >> 10) % BREAKERS]
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A task that makes calls for a lane until nothing waits any more.
struct Call {
    lanes: Arc<Lanes>,
    lane: u16,
    posted: Vec<Row>,
    ended: bool,
}

impl Call {
    async fn run(mut self) {
        let mut sent = false;
        loop {
            if !sent && self.lanes.is_under_way(self.lane) {
                // Written together, two calls would be answered together, and the server idle until the next two come.
                yield_now().await;
                yield_now().await;
            }
            let Some(batch) = self.lanes.next(self.lane, sent, &mut self.posted) else { break };
            self.lanes.call(self.lane, batch).await;
            sent = true;
        }
        self.ended = true;
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        // The runtime ends. Those who still wait are told by their answers' being dropped.
        let mut queues = self.lanes.queues();
        let Some(queue) = queues.lanes.get_mut(&self.lane) else { return };
        queue.done(&mut self.posted);
        queue.calls -= 1;
        let left = if queue.calls == 0 { queues.lanes.remove(&self.lane) } else { None };
        queues.waiting -= left.as_ref().map_or(0, |queue| queue.waiting.len());
        drop(queues);
        drop(left);
    }
}

/// A probe under way; if its task is ended early, another may be made.
struct Probe {
    lanes: Arc<Lanes>,
    lane: u16,
    failed: Option<Why>,
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.lanes.breaker(self.lane).probed(self.failed.take(), Instant::now());
    }
}

fn out_of_reach(why: Why) -> Error {
    let message = "the Redis server did not answer a moment ago; calls fail at once until it does";
    match why {
        Why::Late => Error::new(ErrorKind::Unavailable, message),
        Why::Failed(error) => classify(error),
    }
}

fn queued(deadline: Duration) -> Error {
    let message = format!("half of {deadline:?} went by in the queue to the Redis server; nothing was charged");
    Error::new(ErrorKind::Unavailable, message)
}

fn late(deadline: Duration) -> Error {
    let message =
        format!("the Redis server did not answer within {deadline:?}; whether the charge happened is unknown");
    Error::new(ErrorKind::Timeout, message)
}
