//! Operations that travel in one script call, each decided for itself, in the order in which they came.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use redis::Cmd;
use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::replay;
use super::script::Script;
use super::wire::{Arguments, Reply};
use crate::algorithm::{Ask, Quota, Receipt, State};
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
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Row(pub(super) Box<[u8]>);

impl Kind {
    pub(super) fn rows(&self) -> &[Row] {
        match self {
            Kind::Decide { rows, .. } => rows,
            Kind::Settle { row, .. } | Kind::Reset { row } => std::slice::from_ref(row),
        }
    }
}

/// As many rows are sooner compared than hashed.
const FEW: usize = 8;

/// What one script call does.
#[derive(Debug)]
pub(super) struct Batch {
    operations: Vec<Operation>,
    /// Each row once: the operation that named it first, and where.
    rows: Vec<(usize, usize)>,
    /// Of each operation, the places of its rows.
    places: Vec<SmallVec<[usize; 1]>>,
}

impl Batch {
    pub(super) fn new(operations: Vec<Operation>) -> Batch {
        let mut rows = Vec::with_capacity(operations.len());
        // Of many, looked up, not looked for: of three rows each, 128 operations are 70,000 comparisons.
        let few = operations.iter().map(|operation| operation.kind.rows().len()).sum::<usize>() <= FEW;
        let mut known: HashMap<&Row, usize> = HashMap::with_capacity(if few { 0 } else { operations.len() });
        let mut places = Vec::with_capacity(operations.len());
        for (i, operation) in operations.iter().enumerate() {
            let named = operation.kind.rows();
            let mut of = SmallVec::with_capacity(named.len());
            for (j, row) in named.iter().enumerate() {
                let next = rows.len();
                let place = if few {
                    let is_row = |(i, j): &(usize, usize)| operations[*i].kind.rows()[*j] == *row;
                    rows.iter().position(is_row).unwrap_or(next)
                } else {
                    *known.entry(row).or_insert(next)
                };
                if place == next {
                    rows.push((i, j));
                }
                of.push(place);
            }
            places.push(of);
        }
        Batch { operations, rows, places }
    }

    fn row(&self, (operation, row): (usize, usize)) -> &Row {
        &self.operations[operation].kind.rows()[row]
    }

    pub(super) fn len(&self) -> usize {
        self.operations.len()
    }

    /// The time since the oldest of them began.
    pub(super) fn age(&self) -> Duration {
        self.operations.first().map_or(Duration::ZERO, |operation| operation.began.elapsed())
    }

    /// The script's command, by its hash or in full.
    pub(super) fn command(&self, script: &Script, in_full: bool) -> Cmd {
        let mut arguments = Arguments::with_lines(self.places.first().map_or(0, SmallVec::len));
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
        let (quotas, operations) = arguments.finish();
        let rows = self.rows.iter().map(|row| &*self.row(*row).0);
        let bytes = rows.clone().map(<[u8]>::len).sum::<usize>() + quotas.len() + operations.len();
        let mut command = script.command(in_full, rows.len() + 3, bytes);
        command.arg(rows.len());
        rows.for_each(|row| _ = command.arg(row));
        command.arg(quotas).arg(operations);
        command
    }

    /// Tells everybody what the script's reply means for them.
    pub(super) fn answer(self, reply: &[u8]) {
        let Some(Reply { now, done, mut rows }) = Reply::read(reply, self.operations.len(), self.rows.len()) else {
            let message = format!(
                "a reply of {} bytes is none of the script's (rows: {}); check the address",
                reply.len(),
                self.rows.len()
            );
            return self.fail(|| Error::new(ErrorKind::Protocol, message.clone()));
        };
        for ((operation, places), done) in self.operations.into_iter().zip(self.places).zip(done) {
            let answer = match operation.kind {
                Kind::Decide { takes, store, .. } => {
                    let steps = replay::decide(&mut rows, &places, &takes, now, store);
                    if steps.all_granted() == done { Ok(steps) } else { Err(disagreement()) }
                }
                Kind::Settle { quota, receipt, actual, .. } => {
                    for place in places {
                        rows[place] = replay::settled(&quota, &rows[place], &receipt, now, actual);
                    }
                    Ok(Steps::default())
                }
                Kind::Reset { .. } => {
                    for place in places {
                        rows[place] = State::default();
                    }
                    Ok(Steps::default())
                }
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

#[cold]
fn disagreement() -> Error {
    Error::new(
        ErrorKind::Protocol,
        "the script decided otherwise than this version of the crate does; this is a bug, or another script answered",
    )
}
