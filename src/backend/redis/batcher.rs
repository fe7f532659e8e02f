//! The batcher. Operations that wait at the same time share one script call.
//!
//! An operation is sent immediately if fewer than two calls are in flight. Otherwise, it waits for a reply, and all
//! waiting operations are then sent together. The server executes one call while the client reads the reply to another.
//! A cluster has one queue per slot, because a script may only use keys in a single slot.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Cmd, ErrorKind as RedisErrorKind, RedisError, ServerErrorKind};
use tokio::sync::oneshot;

use super::batch::{Action, Batch, Operation, RowKey};
use super::breaker::{Breaker, PROBE_TIMEOUT, Permit, TripReason};
use super::error::{ServerStatus, classify, is_not_served, server_status};
use super::link::Link;
use crate::backend::{Error, ErrorKind};
use crate::sync::tasks::{Handle, sleep, timeout, yield_now};
use crate::sync::{Mutex, MutexGuard, PoisonError};

pub(super) struct Batcher {
    pub(super) link: Link,
    pub(super) deadline: Duration,
    pub(super) runtime: Handle,
    queues: Mutex<Queues>,
    /// Indexed by the high bits of the slot, so that a failed cluster node does not affect all slots.
    breakers: [Breaker; BREAKERS],
}

#[derive(Default)]
struct Queues {
    by_slot: HashMap<u16, Queue>,
    waiting: usize,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Operation>,
    workers: usize,
    in_flight: usize,
    /// Whether callers have received results since the last script call was sent.
    just_completed: bool,
    /// Rows that have a settlement or reset in flight. Later operations on these rows must wait.
    locked: Vec<RowKey>,
}

impl Queue {
    fn is_locked(&self, rows: &[RowKey]) -> bool {
        !self.locked.is_empty() && rows.iter().any(|row| self.locked.contains(row))
    }

    fn unlock(&mut self, rows: &mut Vec<RowKey>) {
        for row in rows.drain(..) {
            if let Some(index) = self.locked.iter().position(|other| *other == row) {
                self.locked.swap_remove(index);
            }
        }
    }
}

const BREAKERS: usize = 16;

/// The maximum number of script calls in flight per queue.
const MAX_WORKERS: usize = 2;

/// If at least this many operations are waiting, they may be split between two script calls.
const MIN_SPLIT: usize = 8;

/// The maximum number of yields after a reply. They allow more callers to share the next script call.
const MAX_YIELDS: usize = 6;

/// The maximum number of operations per script call. A running script blocks all other clients of the server.
const MAX_BATCH: usize = 128;

/// The maximum number of rows per script call. Their keys must fit on the Lua stack.
const MAX_ROWS: usize = 1000;

/// The maximum number of waiting operations. More operations could not be decided before their deadlines.
const MAX_WAITING: usize = 100_000;

/// The pause before a call that a cluster has refused twice is sent again. It doubles with each refusal.
const FIRST_PAUSE: Duration = Duration::from_millis(1);

const MAX_PAUSE: Duration = Duration::from_millis(100);

impl Batcher {
    pub(super) fn new(link: Link, deadline: Duration, runtime: Handle) -> Batcher {
        Batcher { link, deadline, runtime, queues: Mutex::default(), breakers: Default::default() }
    }

    /// Checks that the server can run the script. A slot that is moving does not count as a failure.
    pub(super) async fn check(&self, action: Action) -> Result<(), Error> {
        let (sender, _) = oneshot::channel();
        let batch = Batch::new(vec![Operation { action, began: Instant::now(), sender }]);
        match self.call(&batch, self.deadline).await {
            Err(error) if !self.is_cluster_refusal(&error) => Err(classify(error)),
            _ => Ok(()),
        }
    }

    pub(super) fn send(self: &Arc<Self>, slot: u16, operation: Operation) {
        let permit = self.breaker(slot).permit(Instant::now());
        if permit == Permit::Probe {
            operation.action.rows().iter().take(1).for_each(|row| self.probe(slot, RowKey::clone(row)));
        }
        if permit != Permit::Granted {
            let reason = self.breaker(slot).trip_reason().unwrap_or(TripReason::Timeout);
            return operation.fail(circuit_open_error(reason));
        }
        let mut queues = self.queues();
        if queues.waiting >= MAX_WAITING {
            drop(queues);
            let message =
                format!("{MAX_WAITING} operations are already waiting for the Redis server; nothing was charged");
            return operation.fail(Error::new(ErrorKind::Unavailable, message));
        }
        queues.waiting += 1;
        let queue = queues.by_slot.entry(slot).or_default();
        queue.waiting.push_back(operation);
        if queue.workers < MAX_WORKERS {
            queue.workers += 1;
            drop(queues);
            let worker = Worker { batcher: Arc::clone(self), slot, locked: Vec::new(), ended: false };
            self.runtime.spawn(worker.run());
        }
    }

    /// Takes the next batch from a queue, or returns `None` if the worker should stop. Unlocks the rows in `locked`,
    /// and replaces them with the rows that the new batch locks.
    fn next_batch(&self, slot: u16, has_sent: bool, locked: &mut Vec<RowKey>) -> Option<Batch> {
        let mut queues = self.queues();
        let Queues { by_slot, waiting } = &mut *queues;
        let queue = by_slot.get_mut(&slot)?;
        queue.in_flight -= usize::from(has_sent);
        queue.unlock(locked);
        let now = Instant::now();
        // If no call is in flight, send only half of the operations. The other worker sends the other half.
        let is_split = queue.in_flight == 0 && queue.workers > 1 && queue.waiting.len() >= MIN_SPLIT;
        let max = if is_split { queue.waiting.len().div_ceil(2).min(MAX_BATCH) } else { MAX_BATCH };
        let mut operations = Vec::with_capacity(queue.waiting.len().min(max));
        let mut rows = 0;
        while operations.len() < max {
            let next = queue.waiting.front().map(|operation| operation.action.rows());
            if next.is_none_or(|next| rows + next.len() > MAX_ROWS && rows > 0 || queue.is_locked(next)) {
                break;
            }
            let Some(operation) = queue.waiting.pop_front() else { break };
            *waiting -= 1;
            if !operation.must_run() && now.saturating_duration_since(operation.began) > self.deadline / 2 {
                // The charge would be made, but the reply would come too late.
                operation.fail(queue_timeout(self.deadline));
                continue;
            }
            rows += operation.action.rows().len();
            if operation.must_run() {
                locked.extend_from_slice(operation.action.rows());
            }
            operations.push(operation);
        }
        queue.locked.extend_from_slice(locked);
        if operations.is_empty() {
            // The worker that locked a row also sends the operations that wait for that row. Later operations start a
            // new worker.
            queue.workers -= 1;
            if queue.workers == 0 {
                by_slot.remove(&slot);
            }
            return None;
        }
        queue.in_flight += 1;
        queue.just_completed = false;
        drop(queues);
        Some(Batch::new(operations))
    }

    fn has_calls_in_flight(&self, slot: u16) -> bool {
        self.queues().by_slot.get(&slot).is_some_and(|queue| queue.in_flight > 0)
    }

    /// If two replies arrive together, delays the second until the callers of the first have had time to call again.
    async fn pace(&self, slot: u16, batch: &Batch) {
        if batch.len() < MIN_SPLIT {
            return;
        }
        for _ in 0..MAX_YIELDS {
            if !self.queues().by_slot.get(&slot).is_some_and(|queue| queue.just_completed) {
                break;
            }
            yield_now().await;
        }
        if let Some(queue) = self.queues().by_slot.get_mut(&slot) {
            queue.just_completed = true;
        }
    }

    async fn run(&self, slot: u16, batch: Batch) {
        if let Some(reason) = self.breaker(slot).trip_reason() {
            return batch.fail(|| circuit_open_error(reason.clone()));
        }
        let connection = self.link.generation();
        // Only an operation that must run can have less than half of the deadline left. It is given that half.
        let left = self.deadline.saturating_sub(batch.age()).max(self.deadline / 2);
        match timeout(left, self.call(&batch, left)).await {
            Ok(Ok(reply)) => {
                self.pace(slot, &batch).await;
                batch.complete(&reply);
            }
            Ok(Err(error)) => {
                if server_status(&error) != ServerStatus::Responsive || self.is_cluster_refusal(&error) {
                    self.trip(slot, connection, TripReason::Failed(error.clone()));
                }
                batch.fail(|| classify(error.clone()));
            }
            Err(_) => {
                self.trip(slot, connection, TripReason::Timeout);
                batch.fail(|| response_timeout(self.deadline));
            }
        }
    }

    /// Opens the breaker and discards the connection, so that only a probe connects again.
    fn trip(&self, slot: u16, connection: u64, reason: TripReason) {
        self.link.discard(connection);
        self.breaker(slot).trip(reason, Instant::now());
    }

    /// Returns whether a cluster refused the call without running it. If it still does so at the deadline, the slot's
    /// old node is gone.
    fn is_cluster_refusal(&self, error: &RedisError) -> bool {
        is_not_served(error) && self.link.has_slots()
    }

    /// Sends a script call. Only an error that guarantees that nothing was charged is followed by another attempt, but
    /// then until `left` has passed. A call with an unknown outcome is never sent again.
    async fn call(&self, batch: &Batch, left: Duration) -> Result<Vec<u8>, RedisError> {
        let began = Instant::now();
        let (mut in_full, mut refused, mut ask): (_, bool, Option<RedisError>) = (false, false, None);
        let mut pause = FIRST_PAUSE;
        loop {
            let command = batch.command(in_full);
            let answer = match &ask {
                None => self.link.run(&command).await,
                Some(redirection) => self.link.follow(redirection, &command).await,
            };
            let Err(error) = &answer else { return answer };
            match error.kind() {
                // The server lost its scripts in a restart or a flush.
                RedisErrorKind::Server(ServerErrorKind::NoScript) if !in_full => in_full = true,
                _ if self.is_cluster_refusal(error) => {
                    let is_ask = error.kind() == RedisErrorKind::Server(ServerErrorKind::Ask);
                    ask = is_ask.then(|| error.clone());
                    // The node from which the client read the slot map may not know about the move yet.
                    if refused {
                        if began.elapsed() + pause >= left {
                            return answer;
                        }
                        sleep(pause).await;
                        pause = (pause * 2).min(MAX_PAUSE);
                    }
                    refused = true;
                }
                _ => return answer,
            }
        }
    }

    /// Starts a task that checks whether a row's server is available again.
    fn probe(self: &Arc<Self>, slot: u16, row: RowKey) {
        let mut probe = Probe { batcher: Arc::clone(self), slot, failure: Some(TripReason::Timeout) };
        self.runtime.spawn(async move {
            let link = &probe.batcher.link;
            let connection = link.generation();
            let mut command = Cmd::new();
            command.arg("GET").arg(&*row);
            let time = PROBE_TIMEOUT.max(probe.batcher.deadline);
            // Any reply other than these errors proves that the server is up.
            probe.failure = match timeout(time, link.run::<redis::Value>(&command)).await {
                Ok(Err(error))
                    if server_status(&error) == ServerStatus::Unreachable
                        || probe.batcher.is_cluster_refusal(&error) =>
                {
                    Some(TripReason::Failed(error))
                }
                Ok(_) => None,
                Err(_) => Some(TripReason::Timeout),
            };
            if probe.failure.is_some() {
                probe.batcher.link.discard(connection);
            }
        });
    }

    #[cfg(all(test, tollgate_models))]
    pub(super) fn is_idle(&self) -> bool {
        let queues = self.queues();
        queues.by_slot.is_empty() && queues.waiting == 0
    }

    pub(super) fn circuit_open(&self) -> bool {
        self.breakers.iter().any(|breaker| breaker.trip_reason().is_some())
    }

    pub(super) fn circuit_open_at(&self, slot: u16) -> bool {
        self.breaker(slot).trip_reason().is_some()
    }

    fn breaker(&self, slot: u16) -> &Breaker {
        &self.breakers[usize::from(slot >> 10) % BREAKERS]
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Worker {
    batcher: Arc<Batcher>,
    slot: u16,
    locked: Vec<RowKey>,
    ended: bool,
}

impl Worker {
    async fn run(mut self) {
        let mut has_sent = false;
        loop {
            if !has_sent && self.batcher.has_calls_in_flight(self.slot) {
                // If both workers sent their calls at the same time, the server would be idle after both replies.
                yield_now().await;
                yield_now().await;
            }
            let Some(batch) = self.batcher.next_batch(self.slot, has_sent, &mut self.locked) else { break };
            self.batcher.run(self.slot, batch).await;
            has_sent = true;
        }
        self.ended = true;
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        // The runtime is shutting down. Dropping the waiting operations makes their futures fail.
        let mut queues = self.batcher.queues();
        let Some(queue) = queues.by_slot.get_mut(&self.slot) else { return };
        queue.unlock(&mut self.locked);
        queue.workers -= 1;
        let left = if queue.workers == 0 { queues.by_slot.remove(&self.slot) } else { None };
        queues.waiting -= left.as_ref().map_or(0, |queue| queue.waiting.len());
        drop(queues);
        drop(left);
    }
}

/// A running probe. Dropping it reports the result to the breaker, even if the task is canceled.
struct Probe {
    batcher: Arc<Batcher>,
    slot: u16,
    failure: Option<TripReason>,
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.batcher.breaker(self.slot).probed(self.failure.take(), Instant::now());
    }
}

fn circuit_open_error(reason: TripReason) -> Error {
    let message =
        "the circuit breaker is open because the Redis server did not reply in time; calls fail until it replies";
    match reason {
        TripReason::Timeout => Error::new(ErrorKind::Unavailable, message),
        TripReason::Failed(error) => classify(error),
    }
}

fn queue_timeout(deadline: Duration) -> Error {
    let message = format!(
        "the call spent half of its deadline of {deadline:?} in the queue to the Redis server; nothing was charged"
    );
    Error::new(ErrorKind::Unavailable, message)
}

fn response_timeout(deadline: Duration) -> Error {
    let message = format!("the Redis server did not reply within {deadline:?}; the charge may have been made");
    Error::new(ErrorKind::Timeout, message)
}
