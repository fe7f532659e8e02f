//! Prints the crate's decisions on random requests as JSON. The client's tests compare these decisions with the
//! client's.
//!
//! The first argument is `rows` for decisions by the algebra on single rows, or `lists` for decisions by a limiter on
//! several quotas with shards. The second argument is the minimum number of decisions. The third is the random seed.

mod lists;
mod random;

use std::fmt::Debug;
use std::future::Future;
use std::io::{BufWriter, Write};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use random::{Random, ask, foreign, instant, next, quota, row};
use tollgate::algorithm::{self, Algorithm, Ask, Micros, State, Step, Verdict, step};
use tollgate::backend::{Adjustment, Backend, BackendFuture, RowId, Steps, Take};
use tollgate::{Policy, Quota, RateLimiter};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kind, count, seed] = &arguments[..] else { panic!("usage: tollgate-differential rows|lists COUNT SEED") };
    let count = count.parse().expect("COUNT must be a number");
    let mut random = Random(seed.parse().expect("SEED must be a number"));
    let mut out = BufWriter::new(std::io::stdout().lock());
    match kind.as_str() {
        "rows" => print_rows(count, &mut random, &mut out),
        "lists" => lists::print(count, &mut random, &mut out),
        _ => panic!("expected rows or lists, found {kind:?}"),
    }
}

/// Prints at least `count` decisions on single rows, one JSON object per line.
fn print_rows(count: u64, random: &mut Random, out: &mut impl Write) {
    let mut printed = 0;
    while printed < count {
        let Some(quota) = quota(random) else { continue };
        let reader = Reader::of(quota);
        // A sequence of decisions produces realistic rows. Some sequences start with an arbitrary or foreign row.
        let mut now = instant(random);
        let mut state = if random.one_in(2) { State::default() } else { row(random, &quota, now) };
        state.stamp = algorithm::stamp(&quota);
        if random.one_in(2) {
            state = foreign(random, &quota, now).unwrap_or(state);
        }
        for _ in 0..4 {
            let ask = ask(random, &quota, state.spent);
            let step = step(&quota, &state, now, ask);
            writeln!(out, "{}", line(&quota, &state, now, ask, &step, &reader)).expect("cannot write to stdout");
            printed += 1;
            if step.is_allowed() {
                state = step.state;
            }
            now = next(random, &quota, now, &step);
        }
    }
}

fn line(quota: &Quota, state: &State, now: Micros, ask: Ask, step: &Step, reader: &Reader) -> String {
    let algorithm = name(quota.algorithm());
    let (before, after) = (SnapshotFields::of(quota, state), SnapshotFields::of(quota, &step.state));
    let (verdict, time) = verdict(step);
    object(&[
        ("algorithm", format!("{algorithm:?}")),
        ("rate", quota.rate().to_string()),
        ("period", quota.period().as_micros().to_string()),
        ("capacity", quota.get_capacity().to_string()),
        ("start", quota.get_start().unwrap_or_default().as_micros().to_string()),
        ("max_reserved", or_null(quota.get_max_reserved())),
        ("spent", format!("{:?}", state.spent)),
        ("at", state.at.get().to_string()),
        ("carry", before.previous),
        ("clear", before.clear),
        ("written_by", before.written_by),
        ("now", now.get().to_string()),
        ("cost", ask.tokens().to_string()),
        // An unlimited `max_wait` is written as 2^53 µs, which is longer than any possible wait.
        ("max_wait", or_null(ask.max_wait().map(|wait| wait.as_micros().min(1 << 53)))),
        ("verdict", format!("{verdict:?}")),
        ("time", or_null(time)),
        ("spent_after", format!("{:?}", step.state.spent)),
        ("at_after", step.state.at.get().to_string()),
        ("carry_after", after.previous),
        ("clear_after", after.clear),
        ("written_by_after", after.written_by),
        ("available", reader.available(state, now).to_string()),
        ("remaining", reader.available(&step.state, now).to_string()),
    ])
}

/// Returns the kind of verdict, and the wait or the retry time in microseconds.
fn verdict(step: &Step) -> (&'static str, Option<u128>) {
    match step.verdict {
        Verdict::Allow => ("allow", Some(0)),
        Verdict::Reserve { wait } => ("reserve", Some(wait.as_micros())),
        Verdict::Deny { retry } => ("deny", retry.map(|retry| retry.as_micros())),
    }
}

fn object(fields: &[(&str, String)]) -> String {
    let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name:?}:{value}")).collect();
    format!("{{{}}}", fields.join(","))
}

/// The fields of a snapshot that depend on which quota wrote the row.
struct SnapshotFields {
    previous: String,
    clear: String,
    written_by: String,
}

impl SnapshotFields {
    fn of(quota: &Quota, state: &State) -> SnapshotFields {
        let writer = writer(state.stamp);
        let owed = state.spent + if writer == Algorithm::SlidingWindow { state.carry } else { 0.0 };
        let is_foreign = state.stamp != algorithm::stamp(quota) && state.stamp != 0 && owed > 0.0;
        if !is_foreign {
            let previous = if quota.algorithm() == Algorithm::SlidingWindow { state.carry } else { 0.0 };
            return SnapshotFields {
                previous: format!("{previous:?}"),
                clear: "null".into(),
                written_by: "null".into(),
            };
        }
        let previous = if writer == Algorithm::SlidingWindow { state.carry } else { 0.0 };
        SnapshotFields {
            previous: format!("{previous:?}"),
            clear: state.clear.get().to_string(),
            written_by: format!("{:?}", name(writer)),
        }
    }
}

/// Returns the algorithm that the lowest three bits of a stamp encode.
fn writer(stamp: u32) -> Algorithm {
    match stamp & 7 {
        2 => Algorithm::FixedWindow,
        3 => Algorithm::SlidingWindow,
        _ => Algorithm::TokenBucket,
    }
}

fn name(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::TokenBucket => "token_bucket",
        Algorithm::FixedWindow => "fixed_window",
        Algorithm::SlidingWindow => "sliding_window",
        other => panic!("the client does not support {other:?}"),
    }
}

fn or_null(value: Option<impl Debug>) -> String {
    value.map_or("null".into(), |value| format!("{value:?}"))
}

// Available tokens

/// Computes the tokens available in any row. Only a limiter's snapshot has an `available` method, so the reader uses a
/// limiter whose backend returns the row in `stored`.
struct Reader {
    limiter: RateLimiter,
    policy: Policy,
    stored: Arc<Mutex<Option<Step>>>,
}

impl Reader {
    fn of(quota: Quota) -> Reader {
        let stored = Arc::new(Mutex::new(None));
        let limiter = RateLimiter::builder(FixedRow(Arc::clone(&stored))).build();
        Reader { limiter, policy: Policy::new("read", quota), stored }
    }

    fn available(&self, state: &State, now: Micros) -> u64 {
        *self.stored.lock().expect("one thread") = Some(Step { verdict: Verdict::Allow, state: *state, now });
        let future = std::pin::pin!(self.limiter.snapshot(&self.policy, 1u64));
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(snapshots)) => snapshots[0].available(now),
            other => panic!("expected immediate snapshots, found {other:?}"),
        }
    }
}

/// A backend that returns the same row for every key.
#[derive(Debug)]
struct FixedRow(Arc<Mutex<Option<Step>>>);

impl Backend for FixedRow {
    fn acquire(&self, takes: &[Take<'_>]) -> BackendFuture<Steps> {
        self.peek(takes)
    }

    fn peek(&self, _: &[Take<'_>]) -> BackendFuture<Steps> {
        let step = self.0.lock().expect("one thread").expect("a row was set");
        BackendFuture::ready(Ok(Steps::from(step)))
    }

    fn settle(&self, _: &[Adjustment<'_>]) -> BackendFuture<bool> {
        BackendFuture::ready(Ok(true))
    }

    fn reset(&self, _: &[RowId<'_>]) -> BackendFuture<usize> {
        BackendFuture::ready(Ok(0))
    }
}
