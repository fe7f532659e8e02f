//! Entry points for the fuzz targets that decode arbitrary replies.

use std::time::Instant;

use redis::{FromRedisValue, Value};
use tokio::sync::oneshot;

use super::batch::{Action, Batch, Operation as QueuedOperation, QueuedTake, RowKey};
use super::{error, notices};
use crate::algorithm::{Ask, ChargeRecord, Quota};
use crate::backend::{Error, Notice, Steps};
use crate::policy::MAX_WINDOWS;

/// An operation. Rows are identified by numbers.
#[derive(Clone, Debug)]
pub enum Operation {
    /// An acquire if the flag is set, and a peek otherwise.
    Decide(Vec<(u8, u8, Quota, Ask)>, bool),
    /// A settlement.
    Settle(u8, u8, Quota, ChargeRecord, u64),
    /// A reset.
    Reset(u8),
}

/// The outcomes of a script call.
pub type Answered = Vec<Result<Steps, Error>>;

/// Decodes `reply` as the server's reply to one script call with these operations.
pub fn decided(operations: &[Operation], reply: &[u8]) -> Answered {
    let (mut sent, mut receivers) = (Vec::new(), Vec::new());
    for operation in operations {
        let (sender, receiver) = oneshot::channel();
        sent.push(QueuedOperation { action: action(operation), began: Instant::now(), sender });
        receivers.push(receiver);
    }
    Batch::new(sent).complete(reply);
    let results = receivers.into_iter().map(|mut receiver| receiver.try_recv());
    let results = results.map(|result| result.unwrap_or_else(|_| Err(super::runtime_ended())));
    results.map(|result| result.map(|outcome| outcome.steps)).collect()
}

/// Reads the bytes of a reply.
pub fn value_of(reply: Value) -> Result<Vec<u8>, Error> {
    let bytes = || Ok(Vec::<u8>::from_redis_value(reply.extract_error()?)?);
    bytes().map_err(error::classify)
}

/// Decodes a reply from the notices script. Returns `None` if the reply is invalid.
pub fn notices(reply: Value) -> Option<Vec<Notice>> {
    notices::parse_reply(reply).map(|page| page.notices)
}

fn action(operation: &Operation) -> Action {
    let row = |number: u8| RowKey::from([number]);
    let queued = |(_, window, quota, ask): &(u8, u8, Quota, Ask)| QueuedTake {
        window: window % MAX_WINDOWS as u8,
        quota: *quota,
        ask: *ask,
    };
    match operation {
        Operation::Decide(takes, store) => Action::Decide {
            rows: takes.iter().map(|(number, ..)| row(*number)).collect(),
            takes: takes.iter().map(queued).collect(),
            store: *store,
        },
        Operation::Settle(number, window, quota, receipt, actual) => {
            let (row, window) = (row(*number), window % MAX_WINDOWS as u8);
            Action::Settle { row, window, quota: *quota, receipt: *receipt, actual: *actual }
        }
        Operation::Reset(number) => Action::Reset { row: row(*number) },
    }
}
