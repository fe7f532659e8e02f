//! Operations that travel in one script call, each decided for itself, in the order in which they came.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::Cmd;
use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::script::DECISIONS;
use super::wire::{Arguments, Foreign, Reply};
use crate::algorithm::{Ask, ChargeRecord, Line, Quota, State, settle, step_all, takes_effect};
use crate::backend::{Error, ErrorKind, Steps};

/// An operation on its way, and who waits for its answer.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) kind: Kind,
    pub(super) began: Instant,
    pub(super) answer: oneshot::Sender<Result<Answer, Error>>,
}

/// The answer to an operation.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// Of a decision; empty for others.
    pub(super) steps: Steps,
    /// Whether a settlement took effect, or a reset found a row.
    pub(super) took_effect: bool,
}

impl Operation {
    /// Whether it is carried out however late: a settlement, a reset.
    pub(super) fn is_posted(&self) -> bool {
        !matches!(self.kind, Kind::Decide { .. })
    }

    /// Answers with an error. The receiver may have been dropped.
    pub(super) fn refuse(self, error: Error) {
        let _ = self.answer.send(Err(error));
    }
}

/// What is asked of which rows. A settlement or a reset of several rows is several operations.
#[derive(Debug)]
pub(super) enum Kind {
    Decide { rows: SmallVec<[Row; 1]>, takes: SmallVec<[(Quota, Ask); 1]>, store: bool },
    Settle { row: Row, quota: Quota, receipt: ChargeRecord, actual: u64 },
    Reset { row: Row },
}

/// A row's key in the store.
pub(super) type Row = Arc<[u8]>;

impl Kind {
    pub(super) fn rows(&self) -> &[Row] {
        match self {
            Kind::Decide { rows, .. } => rows,
            Kind::Settle { row, .. } | Kind::Reset { row } => std::slice::from_ref(row),
        }
    }

    /// Whether both are acquires that ask the same, whatever their rows.
    fn is_alike(&self, other: &Kind) -> bool {
        let (Kind::Decide { takes, store: true, .. }, Kind::Decide { takes: others, store: true, .. }) = (self, other)
        else {
            return false;
        };
        takes == others
    }

    /// Whether the operation may run on a value that is not a valid row. A reset removes a damaged row, but never a value
    /// that another program may own.
    fn mends(&self, found: Foreign) -> bool {
        matches!(self, Kind::Reset { .. }) && found == Foreign::Damaged
    }
}

/// What one script call does.
#[derive(Debug)]
pub(super) struct Batch {
    operations: Vec<Operation>,
    /// Each row once.
    rows: Vec<Row>,
    /// Of each operation, the places of its rows among these.
    places: Vec<SmallVec<[usize; 1]>>,
}

impl Batch {
    pub(super) fn new(operations: Vec<Operation>) -> Batch {
        let (mut rows, mut known) = (Vec::with_capacity(operations.len()), HashMap::with_capacity(operations.len()));
        let mut place = |row: &Row| {
            *known.entry(Row::clone(row)).or_insert_with(|| {
                rows.push(Row::clone(row));
                rows.len() - 1
            })
        };
        let places = operations.iter().map(|operation| operation.kind.rows().iter().map(&mut place).collect());
        let places = places.collect();
        Batch { operations, rows, places }
    }

    pub(super) fn len(&self) -> usize {
        self.operations.len()
    }

    /// The time since the oldest of them began.
    pub(super) fn age(&self) -> Duration {
        self.operations.first().map_or(Duration::ZERO, |operation| operation.began.elapsed())
    }

    /// The script's command, by its hash or in full.
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
        let all: Vec<_> = self.operations.iter().zip(&self.places).collect();
        // What most calls are is many that ask the same, each of rows of its own: that is sent once.
        for alike in all.chunk_by(|(one, rows), (next, next_rows)| {
            let in_turn = rows.iter().chain(*next_rows).zip(rows[0]..).all(|(row, expected)| *row == expected);
            in_turn && one.kind.is_alike(&next.kind)
        }) {
            let (first, rows) = alike[0];
            arguments.add(&first.kind, alike.len(), rows);
        }
        arguments
    }

    /// Answers every operation from the script's reply.
    pub(super) fn answer(self, reply: &[u8]) {
        let Some(mut reply) = Reply::read(reply, self.operations.len(), self.rows.len()) else {
            let message = format!(
                "a reply of {} bytes is none of the script's (rows: {}); check the address",
                reply.len(),
                self.rows.len()
            );
            return self.fail(|| Error::new(ErrorKind::Protocol, message.clone()));
        };
        let done = std::mem::take(&mut reply.done);
        for ((operation, places), done) in self.operations.into_iter().zip(&self.places).zip(done) {
            let answer = match reply.foreign.iter().find(|(place, _)| places.contains(place)) {
                Some((place, found)) if !operation.kind.mends(*found) => Err(found.error(&self.rows[*place])),
                _ => replayed(&operation.kind, places, &mut reply, done),
            };
            let _ = operation.answer.send(answer);
        }
    }

    /// Answers every operation with an error.
    pub(super) fn fail(self, error: impl Fn() -> Error) {
        for operation in self.operations {
            operation.refuse(error());
        }
    }
}

/// Replays an operation on the rows as they were before the script ran, with the arithmetic that all backends share. It
/// yields waits, retry times and rows. If its decision differs from the script's, the answer is an error.
fn replayed(kind: &Kind, places: &[usize], reply: &mut Reply, done: bool) -> Result<Answer, Error> {
    let Reply { now, rows, foreign, .. } = reply;
    let Answer { mut steps, mut took_effect } = Answer::default();
    match kind {
        Kind::Decide { takes, store, .. } => {
            let before: SmallVec<[State; 1]> = places.iter().map(|place| rows[*place]).collect();
            let lines = places.iter().zip(takes).map(|(row, (quota, ask))| Line { row: *row, quota, ask: *ask });
            steps = step_all(rows, &lines.collect::<SmallVec<[_; 1]>>(), *now);
            if !store {
                places.iter().zip(before).for_each(|(place, row)| rows[*place] = row);
            }
        }
        Kind::Settle { quota, receipt, actual, .. } => {
            let row = &mut rows[places[0]];
            took_effect = takes_effect(quota, row, receipt, *now, *actual);
            *row = settle(quota, row, receipt, *now, *actual).or_none();
        }
        Kind::Reset { .. } => {
            let before = foreign.len();
            foreign.retain(|(place, _)| *place != places[0]);
            took_effect = std::mem::take(&mut rows[places[0]]) != State::default() || foreign.len() < before;
        }
    }
    if steps.all_granted() == done { Ok(Answer { steps, took_effect }) } else { Err(disagreement()) }
}

fn disagreement() -> Error {
    Error::new(
        ErrorKind::Protocol,
        "the script decided otherwise than this version of the crate does; this is a bug, or another script answered",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::MINUTE;

    fn operation(kind: Kind) -> Operation {
        Operation { kind, began: Instant::now(), answer: oneshot::channel().0 }
    }

    fn row(number: usize) -> Row {
        number.to_le_bytes().into()
    }

    fn decide(rows: &[usize], quota: Quota, cost: u64, store: bool) -> Operation {
        let takes = rows.iter().map(|_| (quota, Ask::cost(cost))).collect();
        operation(Kind::Decide { rows: rows.iter().map(|number| row(*number)).collect(), takes, store })
    }

    #[test]
    fn what_is_asked_of_row_after_row_is_sent_once() {
        const HEAD: usize = 5;
        const LINE: usize = 28;
        let quota = Quota::token_bucket(10, MINUTE);
        // Rows that come first are in turn from 0 to 4.
        let sent = |acquires: &[(&[usize], Quota, u64)]| {
            let acquires = acquires.iter().map(|(rows, quota, cost)| decide(rows, *quota, *cost, true));
            Batch::new(acquires.collect()).arguments().operations
        };
        let one = HEAD + LINE;
        let alike = sent(&[(&[0], quota, 1), (&[1], quota, 1), (&[2], quota, 1)]);
        assert_eq!((alike.len(), &alike[..7]), (one, &[1, 3, 0, 1, 0, 1, 0][..]));
        let alike = sent(&[(&[0, 1], quota, 1), (&[2, 3], quota, 1)]);
        assert_eq!((alike.len(), &alike[..7]), (one + LINE, &[1, 2, 0, 2, 0, 1, 0][..]));
        // The same row again, another cost, another quota, more or fewer lines, rows that are not in turn: apart.
        assert_eq!(sent(&[(&[0], quota, 1), (&[0], quota, 1)]).len(), 2 * one);
        assert_eq!(sent(&[(&[0], quota, 1), (&[1], quota, 2)]).len(), 2 * one);
        assert_eq!(sent(&[(&[0], quota, 1), (&[1], quota.capacity(5), 1)]).len(), 2 * one);
        assert_eq!(sent(&[(&[0], quota, 1), (&[1, 2], quota, 1)]).len(), 2 * one + LINE);
        assert_eq!(sent(&[(&[0, 1], quota, 1), (&[2, 1], quota, 1)]).len(), 2 * (one + LINE));
        assert_eq!(sent(&[(&[0, 0], quota, 1), (&[1, 2], quota, 1)]).len(), 2 * (one + LINE));
        // So is what comes after something else.
        let all = vec![
            decide(&[0], quota, 1, true),
            operation(Kind::Reset { row: row(8) }),
            decide(&[1], quota, 1, true),
            decide(&[2], quota, 1, false),
            decide(&[2], quota, 1, true),
        ];
        assert_eq!(Batch::new(all).arguments().operations.len(), one + HEAD + 2 + one + one + one);
    }
}
