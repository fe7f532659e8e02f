//! What callers do to a lane at once: nothing is lost, nothing overtakes what was posted, two calls at most.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Cmd, RedisResult, Value};
use smallvec::smallvec;
use tokio::sync::oneshot;

use super::super::batch::{Answer, Kind, Operation, Row};
use super::super::lanes::Lanes;
use super::super::link::{Given, Link};
use crate::backend::Error;
use crate::sync::Mutex;
use crate::sync::model::orders_with_interruptions;
use crate::sync::tasks::Handle;

/// A server that answers each call with an error, which is an answer as good as any for whoever waits. A call is there
/// for as long as the checker likes.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    under_way: Vec<Vec<u8>>,
    answered: Vec<Vec<u8>>,
    calls: usize,
    /// Told at the end: a thread that panics leaves others in the midst of what they do.
    faults: Vec<&'static str>,
}

impl Given for Server {
    fn run<'a>(&'a self, command: &'a Cmd) -> Pin<Box<dyn Future<Output = RedisResult<Value>> + Send + 'a>> {
        let names: Vec<Vec<u8>> = command
            .args_iter()
            .map(|argument| match argument {
                redis::Arg::Simple(bytes) => bytes.to_vec(),
                _ => Vec::new(),
            })
            .collect();
        // EVALSHA, the hash, how many keys, the keys.
        let count: usize = String::from_utf8_lossy(&names[2]).parse().expect("a number of keys");
        let rows = names[3..3 + count].to_vec();
        Box::pin(async move {
            {
                let mut seen = self.0.lock().unwrap();
                if seen.calls == 2 {
                    seen.faults.push("a third call is under way");
                }
                seen.calls += 1;
                if rows.contains(&b"asked".to_vec()) && seen.under_way.contains(&b"posted".to_vec()) {
                    seen.faults.push("asked while it is being reset");
                }
                seen.under_way.extend(rows.iter().cloned());
            }
            let mut seen = self.0.lock().unwrap();
            seen.calls -= 1;
            seen.under_way.retain(|row| !rows.contains(row));
            seen.answered.extend(rows);
            Err(redis::make_extension_error("NOPE".to_owned(), None))
        })
    }
}

fn lanes(server: &Server) -> Arc<Lanes> {
    let link = Link::Given { connection: Box::new(server.clone()), is_cluster: false };
    Arc::new(Lanes::new(link, Duration::from_secs(3600), Handle::current()))
}

fn send(lanes: &Arc<Lanes>, kind: Kind) -> oneshot::Receiver<Result<Answer, Error>> {
    let (answer, answered) = oneshot::channel();
    lanes.send(0, Operation { kind, began: Instant::now(), answer });
    answered
}

fn decide(names: &[&str]) -> Kind {
    Kind::Decide { rows: names.iter().map(|name| row(name)).collect(), takes: smallvec![], store: true }
}

fn row(name: &str) -> Row {
    name.as_bytes().into()
}

fn empty(lanes: &Lanes) {
    while !lanes.is_idle() {
        loom::thread::yield_now();
    }
}

/// Who comes while the last call ends is not left behind by it.
#[test]
fn everybody_is_answered_and_the_lane_is_empty_then() {
    orders_with_interruptions(3, || {
        let server = Server::default();
        let lanes = lanes(&server);
        let answers = ["one", "two", "three"].map(|name| send(&lanes, decide(&[name])));
        // One who is not answered hangs, and the checker says so.
        let answers = answers.map(|answer| loom::future::block_on(answer).is_ok());
        empty(&lanes);
        let seen = server.0.lock().unwrap();
        assert_eq!((answers, seen.answered.len(), &seen.faults[..]), ([true; 3], 3, &[][..]));
    });
}

/// Whoever posted a reset and asks then is answered after it.
#[test]
fn nobody_overtakes_what_was_posted_on_the_same_row() {
    orders_with_interruptions(3, || {
        let server = Server::default();
        let lanes = lanes(&server);
        let reset = send(&lanes, Kind::Reset { row: row("posted") });
        let asked = send(&lanes, decide(&["posted", "asked"]));
        let answers = [reset, asked].map(|answer| loom::future::block_on(answer).is_ok());
        empty(&lanes);
        assert_eq!((answers, &server.0.lock().unwrap().faults[..]), ([true; 2], &[][..]));
    });
}
