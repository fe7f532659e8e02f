//! Models of concurrent callers that share a queue.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Cmd, RedisResult, Value};
use smallvec::smallvec;
use tokio::sync::oneshot;

use super::super::batch::{Action, Operation, Outcome, RowKey};
use super::super::batcher::Batcher;
use super::super::link::{Link, UserConnection};
use crate::backend::Error;
use crate::sync::Mutex;
use crate::sync::model::orders_with_preemptions;
use crate::sync::tasks::Handle;

/// A server that replies to each call with an error, after a delay that loom varies.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<Log>>);

#[derive(Default)]
struct Log {
    in_flight: Vec<Vec<u8>>,
    answered: Vec<Vec<u8>>,
    calls: usize,
    /// The checks that failed. They are collected here because a panicking thread would leave the others blocked.
    failures: Vec<&'static str>,
}

impl UserConnection for Server {
    fn run<'a>(&'a self, command: &'a Cmd) -> Pin<Box<dyn Future<Output = RedisResult<Value>> + Send + 'a>> {
        let names: Vec<Vec<u8>> = command
            .args_iter()
            .map(|argument| match argument {
                redis::Arg::Simple(bytes) => bytes.to_vec(),
                _ => Vec::new(),
            })
            .collect();
        // The arguments are EVALSHA, the hash, the number of keys, and the keys.
        let count: usize = String::from_utf8_lossy(&names[2]).parse().expect("a number of keys");
        let rows = names[3..3 + count].to_vec();
        Box::pin(async move {
            {
                let mut log = self.0.lock().unwrap();
                if log.calls == 2 {
                    log.failures.push("a third call is in flight");
                }
                log.calls += 1;
                if rows.contains(&b"decided".to_vec()) && log.in_flight.contains(&b"reset".to_vec()) {
                    log.failures.push("a row was decided while its reset was in flight");
                }
                log.in_flight.extend(rows.iter().cloned());
            }
            let mut log = self.0.lock().unwrap();
            log.calls -= 1;
            log.in_flight.retain(|row| !rows.contains(row));
            log.answered.extend(rows);
            Err(redis::make_extension_error("NOPE".to_owned(), None))
        })
    }
}

fn batcher(server: &Server) -> Arc<Batcher> {
    let link = Link::UserProvided { connection: Box::new(server.clone()), is_cluster: false };
    Arc::new(Batcher::new(link, Duration::from_secs(3600), Handle::current()))
}

fn send(batcher: &Arc<Batcher>, action: Action) -> oneshot::Receiver<Result<Outcome, Error>> {
    let (sender, receiver) = oneshot::channel();
    batcher.send(0, Operation { action, began: Instant::now(), sender });
    receiver
}

fn decide(names: &[&str]) -> Action {
    Action::Decide { rows: names.iter().map(|name| row(name)).collect(), takes: smallvec![], store: true }
}

fn row(name: &str) -> RowKey {
    name.as_bytes().into()
}

fn wait_until_idle(batcher: &Batcher) {
    while !batcher.is_idle() {
        loom::thread::yield_now();
    }
}

#[test]
fn all_operations_complete_and_the_queue_is_empty_afterwards() {
    orders_with_preemptions(3, || {
        let server = Server::default();
        let batcher = batcher(&server);
        let answers = ["one", "two", "three"].map(|name| send(&batcher, decide(&[name])));
        let answers = answers.map(|answer| loom::future::block_on(answer).is_ok());
        wait_until_idle(&batcher);
        let log = server.0.lock().unwrap();
        assert_eq!((answers, log.answered.len(), &log.failures[..]), ([true; 3], 3, &[][..]));
    });
}

#[test]
fn a_decision_does_not_overtake_a_reset_of_its_row() {
    orders_with_preemptions(3, || {
        let server = Server::default();
        let batcher = batcher(&server);
        let reset = send(&batcher, Action::Reset { row: row("reset") });
        let decided = send(&batcher, decide(&["reset", "decided"]));
        let answers = [reset, decided].map(|answer| loom::future::block_on(answer).is_ok());
        wait_until_idle(&batcher);
        assert_eq!((answers, &server.0.lock().unwrap().failures[..]), ([true; 2], &[][..]));
    });
}
