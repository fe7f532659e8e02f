//! What fuzz targets see of the client for Redis: what becomes of a reply, whatever it is.

use std::time::Instant;

use redis::{FromRedisValue, Value};
use tokio::sync::oneshot;

use super::batch::{Batch, Kind, Operation as Sent, Row};
use super::{error, notices};
use crate::algorithm::{Ask, ChargeRecord, Quota};
use crate::backend::{Error, Notice, Steps};

/// What is asked of rows, which are told apart by a number.
#[derive(Clone, Debug)]
pub enum Operation {
    /// An acquire, or a peek.
    Decide(Vec<(u8, Quota, Ask)>, bool),
    /// A settlement.
    Settle(u8, Quota, ChargeRecord, u64),
    /// A reset.
    Reset(u8),
}

/// What each operation of a call is answered.
pub type Answered = Vec<Result<Steps, Error>>;

/// What becomes of operations that were sent together, if this is the server's reply.
pub fn decided(operations: &[Operation], reply: &[u8]) -> Answered {
    let (mut sent, mut answers) = (Vec::new(), Vec::new());
    for operation in operations {
        let (answer, receiver) = oneshot::channel();
        sent.push(Sent { kind: kind(operation), began: Instant::now(), answer });
        answers.push(receiver);
    }
    Batch::new(sent).answer(reply);
    let answered = answers.into_iter().map(|mut answer| answer.try_recv().unwrap_or_else(|_| Err(super::ended())));
    answered.map(|answer| answer.map(|answer| answer.steps)).collect()
}

/// The bytes of a script's reply, or the error that it is.
pub fn value_of(reply: Value) -> Result<Vec<u8>, Error> {
    let bytes = || Ok(Vec::<u8>::from_redis_value(reply.extract_error()?)?);
    bytes().map_err(error::classify)
}

/// What a board of notices says; `None` if it is none.
pub fn notices(reply: Value) -> Option<Vec<Notice>> {
    notices::page(reply).map(|page| page.notices)
}

fn kind(operation: &Operation) -> Kind {
    let row = |number: u8| Row::from([number]);
    match operation {
        Operation::Decide(takes, store) => Kind::Decide {
            rows: takes.iter().map(|(number, ..)| row(*number)).collect(),
            takes: takes.iter().map(|(_, quota, ask)| (*quota, *ask)).collect(),
            store: *store,
        },
        Operation::Settle(number, quota, receipt, actual) => {
            Kind::Settle { row: row(*number), quota: *quota, receipt: *receipt, actual: *actual }
        }
        Operation::Reset(number) => Kind::Reset { row: row(*number) },
    }
}
