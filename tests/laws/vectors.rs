//! Checks test vectors: decisions that were computed in rational arithmetic, independently of this crate.
//!
//! To check another file in the same format, set `TOLLGATE_VECTORS` to its path.

use std::time::Duration;

use serde::Deserialize;
use tollgate::algorithm::{Algorithm, Ask, Micros, State, Verdict, step};
use tollgate::clock::ManualClock;
use tollgate::policy::Quotas;
use tollgate::{Charge, MemoryBackend, Policy, Quota, RateLimiter};

use crate::support::now;

#[derive(Deserialize)]
struct Line {
    r#type: String,
    id: String,
    algorithm: String,
    config: Config,
    rand: Option<f64>,
    // These fields are only in lines of type `single`.
    state_before: Option<Before>,
    now_ms: Option<i64>,
    count: Option<u64>,
    #[serde(default)]
    reserve: bool,
    expect: Option<Expect>,
    // These fields are only in lines of type `sequence`.
    #[serde(default)]
    steps: Vec<SequenceStep>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Config {
    rate: u64,
    period: i64,
    capacity: Option<u64>,
    max_reserved: Option<u64>,
    start: Option<i64>,
}

#[derive(Deserialize)]
struct Before {
    value: f64,
    ts: i64,
    aux_value: Option<f64>,
    aux_ts: Option<i64>,
}

#[derive(Deserialize)]
struct SequenceStep {
    op: String,
    now_ms: i64,
    #[serde(default)]
    count: u64,
    #[serde(default)]
    reserve: bool,
    expect: Option<Expect>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expect {
    /// Missing only for a `reset`.
    #[serde(default)]
    ok: bool,
    #[serde(default)]
    retry_after_ceil_ms: Retry,
    retry_after_exact: Option<String>,
    value_after: Option<String>,
    ts_after: Option<String>,
    remaining_exact: Option<String>,
    #[serde(default)]
    retry_after_tight_ms: Retry,
    window_start: Option<i64>,
}

#[derive(Deserialize, Default)]
#[serde(untagged)]
enum Retry {
    #[default]
    None,
    Millis(u64),
    Never(String),
}

#[test]
fn all_vectors_match() {
    let path = std::env::var("TOLLGATE_VECTORS")
        .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/exact.jsonl").into());
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let (singles, sequences) = check(&text);
    println!("{singles} single decisions and {sequences} sequences in {path}");
    assert!(singles + sequences > 0, "{path} is empty");
    if std::env::var_os("TOLLGATE_VECTORS").is_none() {
        assert_eq!((singles, sequences), (492, 38));
    }
}

/// Checks every line. Returns the number of single decisions and the number of sequences.
fn check(text: &str) -> (u32, u32) {
    let (mut singles, mut sequences) = (0, 0);
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let line: Line = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line}"));
        match line.r#type.as_str() {
            "single" => {
                single(&line);
                singles += 1;
            }
            "sequence" => {
                sequence(&line);
                sequences += 1;
            }
            other => panic!("{}: unknown type {other:?}", line.id),
        }
    }
    (singles, sequences)
}

#[test]
fn vectors_before_1970_match() {
    // The lines cover instants before, at and after the epoch, and windows that begin before a line's first instant.
    let lines = r#"
{"type":"single","id":"b1","algorithm":"token_bucket","config":{"rate":10,"period":60000},"state_before":{"value":0,"ts":-9000},"now_ms":-3000,"count":1,"expect":{"ok":true,"retry_after_ceil_ms":null,"retry_after_exact":null,"value_after":"0","ts_after":"-3000"}}
{"type":"single","id":"b2","algorithm":"token_bucket","config":{"rate":10,"period":60000},"state_before":{"value":0,"ts":-5000},"now_ms":0,"count":1,"expect":{"ok":false,"retry_after_ceil_ms":1000,"retry_after_exact":"1000","value_after":"-1/6","ts_after":"0"}}
{"type":"single","id":"b3","algorithm":"fixed_window","config":{"rate":5,"period":7,"start":-3},"state_before":{"value":2,"ts":-10},"now_ms":-4,"count":3,"expect":{"ok":false,"retry_after_ceil_ms":1,"retry_after_exact":"1","value_after":"-1","ts_after":"-10"}}
{"type":"single","id":"b4","algorithm":"fixed_window","config":{"rate":5,"period":1000,"start":0},"state_before":null,"now_ms":-1,"count":5,"expect":{"ok":true,"retry_after_ceil_ms":null,"value_after":"0","ts_after":"-1000"}}
{"type":"single","id":"b5","algorithm":"sliding_window","config":{"rate":4,"period":1000},"state_before":{"value":0,"ts":-1000,"aux_value":4,"aux_ts":-2000},"now_ms":-500,"count":2,"expect":{"ok":true,"remaining_exact":"0","retry_after_tight_ms":null,"window_start":-1000}}
{"type":"single","id":"b6","algorithm":"sliding_window","config":{"rate":4,"period":1000},"state_before":{"value":0,"ts":-1000,"aux_value":4,"aux_ts":-2000},"now_ms":-501,"count":2,"expect":{"ok":false,"remaining_exact":"-1/250","retry_after_tight_ms":1,"window_start":-1000}}
{"type":"sequence","id":"b7","algorithm":"token_bucket","config":{"rate":1,"period":1000},"steps":[{"op":"limit","now_ms":-500,"count":1,"expect":{"ok":true,"retry_after_ceil_ms":null}},{"op":"limit","now_ms":0,"count":1,"expect":{"ok":false,"retry_after_ceil_ms":500}},{"op":"limit","now_ms":500,"count":1,"expect":{"ok":true,"retry_after_ceil_ms":null}}]}
{"type":"sequence","id":"b8","algorithm":"fixed_window","config":{"rate":1,"period":86400000,"start":3600000},"steps":[{"op":"limit","now_ms":-82800001,"count":1,"expect":{"ok":true,"retry_after_ceil_ms":null}},{"op":"limit","now_ms":-82800001,"count":1,"expect":{"ok":false,"retry_after_ceil_ms":1}},{"op":"limit","now_ms":-82800000,"count":1,"expect":{"ok":true,"retry_after_ceil_ms":null}}]}
"#;
    assert_eq!(check(lines), (6, 2));
}

#[test]
fn all_vectors_match_when_moved_before_1970() {
    // Move all instants of a line back by whole periods. Skip lines with very large instants, because moving an instant
    // that is out of range would make it valid.
    let text = include_str!("../vectors/exact.jsonl");
    let mut moved = String::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let mut line: serde_json::Value = serde_json::from_str(line).expect("expected a JSON object");
        let period = line["config"]["period"].as_i64().expect("expected a period");
        let mut latest = i64::MIN;
        instants(&mut line, &mut |ms| latest = latest.max(*ms));
        if latest > 4_000_000_000_000 || period > 1_000_000_000_000 {
            continue;
        }
        let back = latest.div_euclid(period) * period;
        instants(&mut line, &mut |ms| *ms -= back);
        instants(&mut line, &mut |ms| *ms -= period);
        moved += &format!("{line}\n");
    }
    let (singles, sequences) = check(&moved);
    println!("moved {singles} single decisions and {sequences} sequences to before 1970");
    assert!(singles > 400 && sequences > 30, "only {singles} single decisions and {sequences} sequences");
}

/// Applies `change` to every instant of a line. `ts_after` is stored as a string, and the others are stored as numbers.
fn instants(line: &mut serde_json::Value, change: &mut impl FnMut(&mut i64)) {
    match line {
        serde_json::Value::Object(fields) => {
            for (name, value) in fields {
                if matches!(name.as_str(), "now_ms" | "ts" | "aux_ts" | "ts_after" | "window_start" | "start") {
                    let is_text = value.is_string();
                    let text = value.as_str().map(str::to_owned).unwrap_or_else(|| value.to_string());
                    let Ok(mut ms) = text.parse::<i64>() else { continue };
                    change(&mut ms);
                    *value = if is_text { ms.to_string().into() } else { ms.into() };
                } else {
                    instants(value, change);
                }
            }
        }
        serde_json::Value::Array(values) => values.iter_mut().for_each(|value| instants(value, change)),
        _ => {}
    }
}

fn single(line: &Line) {
    let id = &line.id;
    let (now_ms, count) =
        (line.now_ms.expect("expected the field `now_ms`"), line.count.expect("expected the field `count`"));
    let expect = line.expect.as_ref().expect("expected the field `expect`");
    let quota = quota(line, line.state_before.as_ref().map_or(random_start(line, now_ms), |before| before.ts));
    let clock = Clock::of(line);
    let now = clock.instant(now_ms);
    let state = before(line, &quota, &clock);

    let ask = if line.reserve { Ask::cost(count).reserve() } else { Ask::cost(count) };
    let step = step(&quota, &state, now, ask);
    verdict(id, &step.verdict, expect);
    if let Verdict::Allow | Verdict::Reserve { .. } = step.verdict {
        tight(id, &quota, &state, now, ask, &step.verdict);
    }

    // The row after the call or, for a denial, the row that would have resulted if the tokens had been spent.
    let mut after = step.state;
    if !step.is_allowed() {
        after.spent += count as f64;
    }
    if let Some(value) = &expect.value_after {
        let ts: i64 = expect
            .ts_after
            .as_ref()
            .expect("expected the field `ts_after`")
            .parse()
            .expect("expected an integer in the field `ts_after`");
        match quota.algorithm() {
            Algorithm::TokenBucket => assert_eq!(clock.instant(ts), now, "{id}: ts_after"),
            // One vector is dated 3871. Its time is clamped to the last representable instant, in the year 2255.
            _ if clock.instant(ts) == Micros::MAX => {
                assert!(after.at + quota.period() >= Micros::MAX, "{id}: ts_after")
            }
            _ => assert_eq!(after.at, clock.instant(ts), "{id}: ts_after"),
        }
        let left = quota.get_capacity() as f64 - spent_at(&quota, &after, now);
        close(id, left, value);
    }
    if let Some(remaining) = &expect.remaining_exact {
        // `remaining` is the number of tokens left at `now` minus `count`, even if `count` was not charged.
        close(id, quota.get_capacity() as f64 - spent_at(&quota, &after, now), remaining);
        assert_eq!(
            after.at,
            clock.instant(expect.window_start.expect("expected the field `window_start`")),
            "{id}: window_start"
        );
    }
}

fn sequence(line: &Line) {
    let first = line.steps.first().expect("expected a step").now_ms;
    let quota = quota(line, random_start(line, first));
    let clock = Clock::of(line);
    let mut state = State::default();
    for (i, operation) in line.steps.iter().enumerate() {
        let id = format!("{} step {i}", line.id);
        let now = clock.instant(operation.now_ms);
        let ask = Ask::cost(operation.count);
        let ask = if operation.reserve { ask.reserve() } else { ask };
        match operation.op.as_str() {
            "reset" => state = State::default(),
            op @ ("limit" | "check") => {
                let step = step(&quota, &state, now, ask);
                verdict(&id, &step.verdict, operation.expect.as_ref().expect("expected the field `expect`"));
                tight(&id, &quota, &state, now, ask, &step.verdict);
                if op == "limit" && step.is_allowed() {
                    state = step.state;
                }
            }
            other => panic!("{id}: unknown operation {other:?}"),
        }
    }
    for others in 0..Quotas::MAX {
        sequence_of_limiter(line, quota, &clock, others);
    }
}

/// Runs a sequence through a limiter, under a policy with `others` additional quotas that never deny.
fn sequence_of_limiter(line: &Line, quota: Quota, clock: &Clock, others: usize) {
    let mut quotas = Quotas::from(quota);
    for seconds in [61, 3607, 86_413].into_iter().take(others) {
        let other = Quota::token_bucket(Quota::MAX_TOKENS, Duration::from_secs(seconds));
        quotas = quotas.try_and(other).expect("expected a different period");
    }
    let policy = Policy::try_new("vector", quotas).expect("expected a valid policy");
    let time = ManualClock::new();
    let limiter = RateLimiter::new(MemoryBackend::builder().clock(time.clone()).build());
    for (i, operation) in line.steps.iter().enumerate() {
        let id = format!("{} step {i} with {others} other quotas", line.id);
        time.set(clock.instant(operation.now_ms));
        let charge = Charge::new(&policy, "ada").cost(operation.count);
        let reserves = operation.reserve && quota.get_max_reserved() != Some(0);
        let charge = if reserves { charge.reserve() } else { charge };
        let decisions = match operation.op.as_str() {
            "reset" => {
                let _ = now(limiter.reset(&policy, "ada"));
                continue;
            }
            "check" => now(limiter.try_check_all([charge])),
            _ => match now(async { Ok::<_, ()>(limiter.hold_all([charge]).await) }) {
                Ok(reservation) => reservation.into_receipt().decisions().clone(),
                Err(error) => error.denied().expect("expected a denial").decisions().clone(),
            },
        };
        assert_eq!(decisions.iter().count(), others + 1, "{id}");
        let step = decisions.get(0).expect("expected a decision").step();
        verdict(&id, &step.verdict, operation.expect.as_ref().expect("expected the field `expect`"));
    }
}

/// Returns the start of the first window, which is `rand` periods before `first_ms`.
fn random_start(line: &Line, first_ms: i64) -> i64 {
    first_ms - (line.rand.unwrap_or(0.0) * line.config.period as f64).floor() as i64
}

fn quota(line: &Line, anchor_ms: i64) -> Quota {
    let config = &line.config;
    let period = Duration::from_millis(config.period as u64);
    let mut quota = match line.algorithm.as_str() {
        "token_bucket" => Quota::token_bucket(config.rate, period),
        "fixed_window" => Quota::fixed_window(config.rate, period),
        "sliding_window" => return Quota::sliding_window(config.rate, period),
        other => panic!("{}: unknown algorithm {other:?}", line.id),
    };
    if let Some(capacity) = config.capacity {
        quota = quota.capacity(capacity);
    }
    quota = match config.max_reserved {
        Some(tokens) => quota.max_reserved(tokens),
        None => quota.unlimited_reservations(),
    };
    let start = config.start.unwrap_or(anchor_ms);
    quota.start(Duration::from_millis(start.rem_euclid(config.period) as u64))
}

fn before(line: &Line, quota: &Quota, clock: &Clock) -> State {
    let Some(before) = &line.state_before else { return State::default() };
    let at = clock.instant(before.ts);
    match quota.algorithm() {
        Algorithm::SlidingWindow => {
            let mut carry = before.aux_value.unwrap_or(0.0);
            if before.aux_ts.is_some_and(|ts| ts + line.config.period != before.ts) {
                carry = 0.0;
            }
            State { spent: before.value, at, carry, stamp: tollgate::algorithm::stamp(quota), ..State::default() }
        }
        _ => State {
            spent: quota.get_capacity() as f64 - before.value,
            at,
            stamp: tollgate::algorithm::stamp(quota),
            ..State::default()
        },
    }
}

fn verdict(id: &str, verdict: &Verdict, expect: &Expect) {
    let retry = match (&expect.retry_after_ceil_ms, &expect.retry_after_tight_ms) {
        (Retry::None, other) => other,
        (other, _) => other,
    };
    let wait = match (verdict, expect.ok, retry) {
        (Verdict::Allow, true, Retry::None) => return,
        (Verdict::Deny { retry: None }, false, Retry::Never(text)) if text == "Infinity" => return,
        (Verdict::Reserve { wait }, true, Retry::Millis(ms)) => (wait, ms),
        (Verdict::Deny { retry: Some(wait) }, false, Retry::Millis(ms)) => (wait, ms),
        (verdict, ok, _) => panic!("{id}: expected ok = {ok} with the vector's retry time, found {verdict:?}"),
    };
    // In the vectors, waits are rounded up to milliseconds.
    let (wait, ms) = wait;
    assert_eq!(wait.as_micros().div_ceil(1000), u128::from(*ms), "{id}: wait {wait:?}");
    if let Some(exact) = &expect.retry_after_exact {
        // The wait may be up to one microsecond too long, but never too short.
        let exact = rational(exact);
        let micros = wait.as_micros() as f64 / 1000.0;
        assert!(micros >= exact - 1e-9 && micros <= exact + 0.001 + 1e-9, "{id}: expected {exact} ms, found {micros}");
    }
}

/// Checks that `ask` is granted at the retry time or due time, but not a microsecond earlier.
fn tight(id: &str, quota: &Quota, state: &State, now: Micros, ask: Ask, verdict: &Verdict) {
    let plain = Ask::cost(ask.tokens());
    match *verdict {
        Verdict::Deny { retry: Some(retry) } => {
            assert!(step(quota, state, now + retry, ask).is_allowed(), "{id}: still denied after {retry:?}");
            let before = now + (retry - Duration::from_micros(1));
            assert!(!step(quota, state, before, ask).is_allowed(), "{id}: granted a microsecond before {retry:?}");
        }
        Verdict::Reserve { wait } if ask.tokens() <= quota.get_capacity() => {
            assert!(
                step(quota, state, now + wait, plain).is_allowed(),
                "{id}: the due time (in {wait:?}) is too early"
            );
            let before = now + (wait - Duration::from_micros(1));
            assert!(!step(quota, state, before, plain).is_allowed(), "{id}: the due time (in {wait:?}) is too late");
        }
        _ => {}
    }
}

/// Returns the number of tokens spent at `now`, computed from the definitions and independently of the crate.
fn spent_at(quota: &Quota, state: &State, now: Micros) -> f64 {
    let (rate, period) = (quota.rate() as f64, quota.period().as_micros() as f64);
    let elapsed = now.since(state.at).as_micros() as f64;
    match quota.algorithm() {
        Algorithm::TokenBucket => (state.spent - elapsed * rate / period).max(0.0),
        Algorithm::SlidingWindow => state.spent + state.carry * (period - elapsed) / period,
        _ => state.spent,
    }
}

fn close(id: &str, value: f64, exact: &str) {
    let exact = rational(exact);
    assert!((value - exact).abs() <= 1e-9 * exact.abs().max(1.0), "{id}: expected {exact}, found {value}");
}

fn rational(text: &str) -> f64 {
    match text.split_once('/') {
        Some((n, d)) => n.parse::<f64>().expect("expected a number") / d.parse::<f64>().expect("expected a number"),
        None => text.parse().expect("expected a number"),
    }
}

/// Moves all instants of a line forward by whole periods if necessary, so that none is before the epoch. This does not
/// change any decision.
struct Clock {
    moved_ms: i64,
}

impl Clock {
    fn of(line: &Line) -> Clock {
        let mut earliest = line.steps.iter().map(|step| step.now_ms).chain(line.now_ms).min().expect("expected a time");
        if let Some(before) = &line.state_before {
            earliest = earliest.min(before.ts - line.config.period);
        }
        if earliest < 0 {
            earliest -= 2 * line.config.period;
        }
        let periods = (-earliest).max(0) as u64;
        Clock { moved_ms: periods.div_ceil(line.config.period as u64) as i64 * line.config.period }
    }

    fn instant(&self, ms: i64) -> Micros {
        Micros::new(
            u64::try_from(ms + self.moved_ms).expect("expected an instant after the epoch").saturating_mul(1000),
        )
    }
}
