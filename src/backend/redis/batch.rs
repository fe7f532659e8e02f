//! Operations that travel in one script call, each decided for itself, in the order in which they came.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::Cmd;
use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::script::DECISIONS;
use super::wire::{Arguments, Foreign, Reply};
use crate::algorithm::{Ask, Line, Quota, Receipt, State, settle, step_all};
use crate::backend::{Error, ErrorKind, Steps};

/// An operation on its way, and who waits for its answer.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) kind: Kind,
    pub(super) began: Instant,
    pub(super) answer: oneshot::Sender<Result<Steps, Error>>,
}

impl Operation {
    /// Whether it is carried out whether or not somebody waits for it, however late: a settlement, a reset.
    pub(super) fn is_posted(&self) -> bool {
        !matches!(self.kind, Kind::Decide { .. })
    }

    /// Whether there is nobody left to carry it out for.
    pub(super) fn is_abandoned(&self) -> bool {
        !self.is_posted() && self.answer.is_closed()
    }
}

/// What is asked of which rows. A settlement or a reset of several rows is several operations.
#[derive(Debug)]
pub(super) enum Kind {
    Decide { rows: SmallVec<[Row; 1]>, takes: SmallVec<[(Quota, Ask); 1]>, store: bool },
    Settle { row: Row, quota: Quota, receipt: Receipt, actual: u64 },
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

    /// Whether it may be carried out on a row that is none. A reset removes a damaged row, but not what may be somebody
    /// else's.
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
        let mut arguments = Arguments::default();
        for (operation, places) in self.operations.iter().zip(&self.places) {
            match &operation.kind {
                Kind::Decide { takes, store: true, .. } => arguments.acquire(places, takes),
                Kind::Decide { takes, store: false, .. } => arguments.peek(places, takes),
                Kind::Settle { quota, receipt, actual, .. } => {
                    arguments.settlement(places[0], quota, receipt, *actual);
                }
                Kind::Reset { .. } => arguments.reset(places[0]),
            }
        }
        let mut command = DECISIONS.command(in_full);
        command.arg(self.rows.len());
        self.rows.iter().for_each(|row| _ = command.arg(&**row));
        command.arg(arguments.quotas).arg(arguments.operations);
        command
    }

    /// Tells everybody what the script's reply means for them.
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
            // Whoever does not wait any more has left.
            let _ = operation.answer.send(answer);
        }
    }

    /// Tells everybody that it failed.
    pub(super) fn fail(self, error: impl Fn() -> Error) {
        for operation in self.operations {
            let _ = operation.answer.send(Err(error()));
        }
    }
}

/// What the script did, done again on the rows as they were: waits, retry times and rows follow from the same arithmetic
/// that every other backend uses. If that would have decided otherwise, the answer is an error rather than a guess.
fn replayed(kind: &Kind, places: &[usize], reply: &mut Reply, done: bool) -> Result<Steps, Error> {
    let Reply { now, rows, foreign, .. } = reply;
    let mut steps = Steps::default();
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
            *row = settle(quota, row, receipt, *now, *actual).or_none();
        }
        Kind::Reset { .. } => {
            rows[places[0]] = State::default();
            foreign.retain(|(place, _)| *place != places[0]);
        }
    }
    if steps.all_granted() == done { Ok(steps) } else { Err(disagreement()) }
}

#[cold]
fn disagreement() -> Error {
    Error::new(
        ErrorKind::Protocol,
        "the script decided otherwise than this version of the crate does; this is a bug, or another script answered",
    )
}
