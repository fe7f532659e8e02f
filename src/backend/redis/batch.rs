//! The operations of one script call. The script decides each of them separately, in order of arrival.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::Cmd;
use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::script::DECISIONS;
use super::wire::{Arguments, Foreign, Reply, stride};
use crate::algorithm::{Ask, ChargeRecord, Lease, LeaseReport, Line, Outstanding, Quota, State, stamp};
use crate::algorithm::{floored, lease, settle, settle_leases, step_all, takes_effect, with_leases};
use crate::backend::{Error, ErrorKind, Steps};
use crate::policy::MAX_WINDOWS;

#[derive(Debug)]
pub(super) struct Operation {
    pub(super) action: Action,
    pub(super) began: Instant,
    pub(super) sender: oneshot::Sender<Result<Outcome, Error>>,
}

#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// The steps of a decision.
    pub(super) steps: Steps,
    /// Whether a settlement took effect, a reset found a row, or a lease was granted.
    pub(super) took_effect: bool,
    pub(super) lease: Option<Lease>,
}

impl Operation {
    /// Returns whether the operation must be sent even after a long time in the queue.
    pub(super) fn must_run(&self) -> bool {
        !matches!(self.action, Action::Decide { .. } | Action::Lease { .. })
    }

    pub(super) fn fail(self, error: Error) {
        // Sending fails if the caller has dropped the future.
        let _ = self.sender.send(Err(error));
    }
}

/// A settlement or reset of several rows is split into one operation per row.
#[derive(Debug)]
pub(super) enum Action {
    Decide { rows: SmallVec<[RowKey; 1]>, takes: SmallVec<[QueuedTake; 1]>, store: bool },
    Settle { row: RowKey, window: u8, quota: Quota, receipt: ChargeRecord, actual: u64 },
    Lease { row: RowKey, window: u8, quota: Quota, reports: [LeaseReport; 2], tokens: u64 },
    Reset { row: RowKey },
}

/// A take without its row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct QueuedTake {
    pub(super) window: u8,
    pub(super) quota: Quota,
    pub(super) ask: Ask,
}

pub(super) type RowKey = Arc<[u8]>;

impl Action {
    pub(super) fn rows(&self) -> &[RowKey] {
        match self {
            Action::Decide { rows, .. } => rows,
            Action::Settle { row, .. } | Action::Lease { row, .. } | Action::Reset { row } => std::slice::from_ref(row),
        }
    }

    /// Returns the number of leading windows of a row that determine the outcome.
    fn windows(&self) -> usize {
        match self {
            Action::Decide { takes, .. } => 1 + takes.iter().map(|take| usize::from(take.window)).max().unwrap_or(0),
            Action::Settle { window, .. } | Action::Lease { window, .. } => 1 + usize::from(*window),
            Action::Reset { .. } => MAX_WINDOWS,
        }
    }

    /// Returns whether both actions are acquires with equal takes, possibly on different rows.
    fn has_equal_takes(&self, other: &Action) -> bool {
        let (Action::Decide { takes, store: true, .. }, Action::Decide { takes: others, store: true, .. }) =
            (self, other)
        else {
            return false;
        };
        takes == others
    }

    /// Returns the indexes of the action's windows in a reply with `width` windows per row.
    fn window_indexes(&self, rows: &[usize], width: usize) -> SmallVec<[usize; 4]> {
        match self {
            Action::Decide { takes, .. } => {
                rows.iter().zip(takes).map(|(row, take)| row * width + usize::from(take.window)).collect()
            }
            Action::Settle { window, .. } | Action::Lease { window, .. } => {
                SmallVec::from_iter([rows[0] * width + usize::from(*window)])
            }
            Action::Reset { .. } => (rows[0] * width..(rows[0] + 1) * width).collect(),
        }
    }

    /// A reset removes damaged rows, but not values that may belong to another program.
    fn repairs(&self, found: Foreign) -> bool {
        matches!(self, Action::Reset { .. }) && found == Foreign::Damaged
    }
}

#[derive(Debug)]
pub(super) struct Batch {
    operations: Vec<Operation>,
    rows: Vec<RowKey>,
    /// For each operation, the indexes of its rows in `rows`.
    indexes: Vec<SmallVec<[usize; 1]>>,
    windows: usize,
}

impl Batch {
    pub(super) fn new(operations: Vec<Operation>) -> Batch {
        let (mut rows, mut known) = (Vec::with_capacity(operations.len()), HashMap::with_capacity(operations.len()));
        let mut index = |row: &RowKey| {
            *known.entry(RowKey::clone(row)).or_insert_with(|| {
                rows.push(RowKey::clone(row));
                rows.len() - 1
            })
        };
        let indexes = operations.iter().map(|operation| operation.action.rows().iter().map(&mut index).collect());
        let indexes = indexes.collect();
        let windows = operations.iter().map(|operation| operation.action.windows()).max().unwrap_or(0);
        Batch { operations, rows, indexes, windows }
    }

    pub(super) fn len(&self) -> usize {
        self.operations.len()
    }

    pub(super) fn age(&self) -> Duration {
        self.operations.first().map_or(Duration::ZERO, |operation| operation.began.elapsed())
    }

    pub(super) fn command(&self, in_full: bool) -> Cmd {
        let arguments = self.arguments();
        let mut command = DECISIONS.command(in_full);
        command.arg(self.rows.len());
        self.rows.iter().for_each(|row| _ = command.arg(&**row));
        command.arg(arguments.quotas).arg(arguments.operations);
        command
    }

    fn arguments(&self) -> Arguments {
        let mut arguments = Arguments::default();
        let all: Vec<_> = self.operations.iter().zip(&self.indexes).collect();
        for alike in all.chunk_by(|(one, rows), (next, next_rows)| {
            let stride = stride(rows);
            let is_next = rows.iter().zip(*next_rows).all(|(row, next)| *row >= rows[0] && row + stride == *next);
            is_next && one.action.has_equal_takes(&next.action)
        }) {
            let (first, rows) = alike[0];
            arguments.add(&first.action, alike.len(), rows);
        }
        arguments
    }

    pub(super) fn complete(self, reply: &[u8]) {
        let Some(mut reply) = Reply::read(reply, self.operations.len(), self.rows.len(), self.windows) else {
            let message = format!(
                "expected a reply to {} operations on {} rows, found an invalid reply of {} bytes; check that the \
                 address belongs to a Redis server",
                self.operations.len(),
                self.rows.len(),
                reply.len()
            );
            return self.fail(|| Error::new(ErrorKind::Protocol, message.clone()));
        };
        let done = std::mem::take(&mut reply.done);
        for ((operation, indexes), done) in self.operations.into_iter().zip(&self.indexes).zip(done) {
            let windows = operation.action.window_indexes(indexes, self.windows);
            let outcome = match reply.foreign.iter().find(|(index, _)| windows.contains(index)) {
                Some((index, found)) if !operation.action.repairs(*found) => {
                    Err(found.error(&self.rows[index / self.windows]))
                }
                _ => replay(&operation.action, &windows, &mut reply, done),
            };
            let _ = operation.sender.send(outcome);
        }
    }

    pub(super) fn fail(self, error: impl Fn() -> Error) {
        for operation in self.operations {
            operation.fail(error());
        }
    }
}

/// Computes waits, retry times and new states by repeating the script's operation. Fails if the script decided
/// differently.
fn replay(action: &Action, indexes: &[usize], reply: &mut Reply, done: bool) -> Result<Outcome, Error> {
    let Reply { now, windows, outstanding, foreign, .. } = reply;
    let Outcome { mut steps, mut took_effect, lease: mut leased } = Outcome::default();
    match action {
        Action::Decide { takes, store, .. } => {
            let before: SmallVec<[_; 1]> = indexes.iter().map(|index| (windows[*index], outstanding[*index])).collect();
            let lines =
                indexes.iter().zip(takes).map(|(row, take)| Line { row: *row, quota: &take.quota, ask: take.ask });
            let lines: SmallVec<[_; 1]> = lines.collect();
            for line in &lines {
                let (state, outstanding) = (&mut windows[line.row], &mut outstanding[line.row]);
                if outstanding.tokens() > 0 {
                    (*state, *outstanding) = settle_leases(line.quota, state, outstanding, *now);
                }
            }
            steps = step_all(windows, &lines, *now);
            for (step, line) in steps.iter_mut().zip(&lines) {
                *step = with_leases(line.quota, *step, &outstanding[line.row], line.ask);
            }
            if !store || !steps.all_granted() {
                for (index, before) in indexes.iter().zip(before) {
                    (windows[*index], outstanding[*index]) = before;
                }
            }
        }
        Action::Settle { window: _, quota, receipt, actual, .. } => {
            let (state, outstanding) = (&mut windows[indexes[0]], &mut outstanding[indexes[0]]);
            (*state, *outstanding) = settle_leases(quota, state, outstanding, *now);
            took_effect = takes_effect(quota, state, receipt, *now, *actual);
            let settled = settle(quota, state, receipt, *now, *actual);
            let is_own = settled.stamp == stamp(quota);
            *state = if is_own { floored(quota, &settled, outstanding.tokens(), *now) } else { settled };
            // Outstanding tokens cannot be given back.
            took_effect &= *state == settled;
            *state = state.or_none();
        }
        Action::Lease { quota, reports, tokens, .. } => {
            let (state, outstanding) = (&mut windows[indexes[0]], &mut outstanding[indexes[0]]);
            let answer = lease(quota, state, outstanding, *now, reports, *tokens);
            (*state, *outstanding) = (answer.state, answer.outstanding);
            took_effect = answer.tokens > 0;
            leased = Some(answer);
        }
        Action::Reset { .. } => {
            let before = foreign.len();
            foreign.retain(|(index, _)| !indexes.contains(index));
            let spent =
                indexes.iter().filter(|index| std::mem::take(&mut windows[**index]) != State::default()).count();
            indexes.iter().for_each(|index| outstanding[*index] = Outstanding::default());
            took_effect = spent > 0 || foreign.len() < before;
        }
    }
    let expected = match action {
        Action::Lease { .. } => took_effect,
        _ => steps.all_granted(),
    };
    if expected == done { Ok(Outcome { steps, took_effect, lease: leased }) } else { Err(disagreement()) }
}

fn disagreement() -> Error {
    Error::new(
        ErrorKind::Protocol,
        "the script and the crate made different decisions; this is a bug, or another script replied",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::MINUTE;

    fn operation(action: Action) -> Operation {
        Operation { action, began: Instant::now(), sender: oneshot::channel().0 }
    }

    fn row(number: usize) -> RowKey {
        number.to_le_bytes().into()
    }

    fn decide(rows: &[usize], quota: Quota, cost: u64, store: bool) -> Operation {
        let take = QueuedTake { window: 0, quota, ask: Ask::cost(cost) };
        let takes = rows.iter().map(|_| take).collect();
        operation(Action::Decide { rows: rows.iter().map(|number| row(*number)).collect(), takes, store })
    }

    #[test]
    fn equal_takes_on_consecutive_rows_are_sent_once() {
        const HEAD: usize = 7;
        const LINE: usize = 29;
        let quota = Quota::token_bucket(10, MINUTE);
        let sent = |acquires: &[(&[usize], Quota, u64)]| {
            let acquires = acquires.iter().map(|(rows, quota, cost)| decide(rows, *quota, *cost, true));
            Batch::new(acquires.collect()).arguments().operations
        };
        let one = HEAD + LINE;
        let alike = sent(&[(&[0], quota, 1), (&[1], quota, 1), (&[2], quota, 1)]);
        assert_eq!((alike.len(), &alike[..7]), (one, &[1, 3, 0, 1, 0, 1, 0][..]));
        let alike = sent(&[(&[0, 1], quota, 1), (&[2, 3], quota, 1)]);
        assert_eq!((alike.len(), &alike[..7]), (one + LINE, &[1, 2, 0, 2, 0, 2, 0][..]));
        // Operations are grouped only if their takes are equal and their rows are consecutive and distinct.
        assert_eq!(sent(&[(&[0], quota, 1), (&[0], quota, 1)]).len(), 2 * one);
        assert_eq!(sent(&[(&[0], quota, 1), (&[1], quota, 2)]).len(), 2 * one);
        assert_eq!(sent(&[(&[0], quota, 1), (&[1], quota.capacity(5), 1)]).len(), 2 * one);
        assert_eq!(sent(&[(&[0], quota, 1), (&[1, 2], quota, 1)]).len(), 2 * one + LINE);
        assert_eq!(sent(&[(&[0, 1], quota, 1), (&[2, 1], quota, 1)]).len(), 2 * (one + LINE));
        assert_eq!(sent(&[(&[0, 0], quota, 1), (&[1, 2], quota, 1)]).len(), 2 * (one + LINE));
        // Acquires are not grouped if another operation arrives between them.
        let all = vec![
            decide(&[0], quota, 1, true),
            operation(Action::Reset { row: row(8) }),
            decide(&[1], quota, 1, true),
            decide(&[2], quota, 1, false),
            decide(&[2], quota, 1, true),
        ];
        assert_eq!(Batch::new(all).arguments().operations.len(), one + HEAD + 2 + one + one + one);
    }
}
