//! Random histories. The script and the algebra must compute the same decisions and rows, bit for bit.
//!
//! The tests read the resulting rows directly from the server. The backend does not receive these rows, but computes
//! them from the previous rows by repeating the script's operations.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::algorithm::{
    Algorithm, Ask, ChargeRecord, Line, Micros, State, Step, Verdict, settle, step, step_all, takes_effect,
};
use tollgate::backend::{Adjustment, Backend, BackendFuture, RedisBackend, RowId, Steps, Take};
use tollgate::{Quota, SECOND, key::Digest, policy::PolicyName};

use super::rows::{bytes, or_none, row, stored};
use super::set_clock::{SetClock, Window};
use crate::support::generators::{Raw, begin, cases, history, quota, sized, tiny};
use crate::support::server::Server;

#[test]
fn ordinary_quotas_match_the_algebra() {
    replay(1500, 40, prop_oneof![3 => quota(), 1 => tiny()], begin());
}

#[test]
fn tiny_quotas_match_the_algebra() {
    replay(2000, 40, tiny(), begin());
}

#[test]
fn extreme_quotas_match_the_algebra() {
    let ends = prop_oneof![
        begin(),
        sized(40).prop_map(|before| Micros::new(Micros::MAX.get() - before)),
        sized(53).prop_map(Micros::new)
    ];
    replay(1500, 25, extreme(), ends);
}

/// Every operation uses one of three quotas, and may read rows that were written under the other two.
#[test]
fn several_quotas_on_each_row_match_the_algebra() {
    let alike = prop_oneof![
        quota(),
        tiny(),
        (1..50u64).prop_map(|limit| Quota::sliding_window(limit, SECOND)),
        (1..50u64, 0..3u32).prop_map(|(rate, seconds)| {
            Quota::fixed_window(rate, 2 * SECOND).capacity(2 * rate).start(seconds * SECOND).max_reserved(rate)
        }),
        (1..1000u64).prop_map(|rate| Quota::token_bucket(rate, SECOND)),
    ];
    replay_with(2500, 40, alike, begin(), true);
}

/// Generates quotas whose numbers are mostly primes or the smallest or largest allowed values.
fn extreme() -> impl Strategy<Value = Quota> {
    let most = Quota::MAX_TOKENS;
    let tokens = prop::sample::select(vec![1, 2, 10, 999_999_937, most]);
    let micros = Duration::from_micros;
    let period = prop::sample::select(vec![micros(1), micros(7), micros(3_333_331), SECOND, Quota::MAX_PERIOD]);
    let capacity = prop::sample::select(vec![None, Some(0), Some(1), Some(1000), Some(most)]);
    let reserved = prop::sample::select(vec![Some(0), Some(1), Some(1000), Some(most), None]);
    (0..3u8, tokens, period, capacity, reserved).prop_filter_map(
        "invalid quota",
        |(kind, rate, period, capacity, reserved)| {
            let quota = match kind {
                0 => Quota::token_bucket(rate, period),
                1 => Quota::fixed_window(rate, period),
                _ => return Some(Quota::sliding_window(rate, period)),
            };
            let quota = capacity.map_or(Ok(quota), |tokens| quota.try_capacity(tokens)).ok()?;
            let quota = match reserved {
                Some(tokens) => quota.try_max_reserved(tokens).ok()?,
                None => quota.unlimited_reservations(),
            };
            tollgate::algorithm::validate(&quota).is_ok().then_some(quota)
        },
    )
}

fn replay(number: u32, length: usize, quotas: impl Strategy<Value = Quota>, begin: impl Strategy<Value = Micros>) {
    replay_with(number, length, quotas, begin, false);
}

fn replay_with(
    number: u32,
    length: usize,
    quotas: impl Strategy<Value = Quota>,
    begin: impl Strategy<Value = Micros>,
    mixed: bool,
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = Server::start();
    let clock = runtime.block_on(SetClock::on(&server));
    let histories = (prop::array::uniform3(quotas), begin, history(length));
    let mut runner = proptest::test_runner::TestRunner::new(cases(number));
    let outcome = runner.run(&histories, |(quotas, begin, history)| {
        runtime.block_on(async {
            let history_of = History { mixed, ..History::new(&server, &clock, quotas, begin) };
            history_of.play(&history).await
        });
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}

/// Six rows, and their states according to the algebra. The last three rows have the same policies as the first three,
/// but different keys. Operation 2 charges one or more of the first three rows, and then their counterparts.
struct History<'a> {
    backend: RedisBackend,
    clock: &'a SetClock,
    window: Window,
    quotas: [Quota; 3],
    names: Vec<String>,
    model: [State; ROWS],
    /// Whether each row has been written since the last comparison with the server.
    dirty: [bool; ROWS],
    /// The quota under which each row was last written.
    by: [Quota; ROWS],
    /// The second at which the server drops each row.
    expires: [u32; ROWS],
    receipts: Vec<(usize, Quota, ChargeRecord)>,
    now: Micros,
    promised: Micros,
    mixed: bool,
}

const ROWS: usize = 6;

static POLICIES: [PolicyName; 3] = [PolicyName::new("a"), PolicyName::new("a"), PolicyName::new("b")];

const KEYS: [u128; ROWS] = [1, 2, 1, 3, 4, 3];

enum Sent {
    Takes { expected: Vec<Step>, answer: BackendFuture<Steps> },
    Settled { expected: bool, answer: BackendFuture<bool> },
    Reset(BackendFuture<usize>),
}

impl<'a> History<'a> {
    fn new(server: &Server, clock: &'a SetClock, quotas: [Quota; 3], begin: Micros) -> History<'a> {
        let backend = clock.backend();
        let names = (0..ROWS).map(|row| backend.row_key(id(row).policy, id(row).key)).collect();
        let mut window = Window::to(server);
        window.clear();
        clock.set(begin);
        History {
            backend,
            clock,
            window,
            quotas,
            names,
            model: [State::default(); ROWS],
            dirty: [false; ROWS],
            by: std::array::from_fn(|row| quotas[row % 3]),
            expires: [0; ROWS],
            receipts: Vec::new(),
            now: begin,
            promised: begin,
            mixed: false,
        }
    }

    async fn play(mut self, history: &[Raw]) {
        let mut burst = Vec::new();
        for raw in history {
            self.send(raw, &mut burst);
            // Operations that are sent without a pause share a script call.
            if raw.step.1 >> 40 & 3 == 0 {
                self.compare(std::mem::take(&mut burst)).await;
                self.move_clock(raw);
            }
        }
        self.compare(burst).await;
    }

    fn send(&mut self, raw: &Raw, burst: &mut Vec<Sent>) {
        let (what, which) = raw.what;
        let row = which as usize % ROWS;
        let rows: Vec<usize> = match what {
            2 => (0..=which as usize % 3).collect(),
            3 | 4 | 6 => [which >> 8, which >> 11, which >> 14].map(|i| i as usize % ROWS).into(),
            11 if which >> 60 < 5 => return burst.push(self.reset(row)),
            10 => return burst.push(self.credit(raw, row)),
            8.. if !self.receipts.is_empty() => return burst.push(self.settle(raw)),
            _ => vec![row],
        };
        burst.push(self.take(raw, &rows));
        if what == 2 {
            let twins: Vec<usize> = rows.iter().map(|row| row + 3).collect();
            burst.push(self.take(raw, &twins));
        }
    }

    fn take(&mut self, raw: &Raw, rows: &[usize]) -> Sent {
        let (what, _) = raw.what;
        let take = |(i, row): (usize, &usize)| {
            // Operation 7 charges under another row's quota.
            let other = if self.mixed { (raw.how.1 >> 20) as usize % 3 } else { usize::from(what == 7) };
            let quota = self.quotas[(row + other) % 3];
            let ask = raw.ask(&quota);
            let ask = ask.for_cost(ask.tokens() / (i as u64 + 1));
            let huge = raw.cost.1 >> 59 == 0;
            Take::new(id(*row), &quota, if huge { ask.for_cost(u64::MAX - raw.cost.1 % 2) } else { ask })
        };
        let takes: Vec<Take<'_>> = rows.iter().enumerate().map(take).collect();
        let store = !matches!(what, 5 | 6);
        let expected = self.decide(rows, &takes, store);
        let answer = if store { self.backend.acquire(&takes) } else { self.backend.peek(&takes) };
        Sent::Takes { expected, answer }
    }

    /// Computes the expected decisions with the algebra. Each take is decided as if the earlier takes had been made.
    /// The takes are actually made only if all of them are granted.
    fn decide(&mut self, rows: &[usize], takes: &[Take<'_>], store: bool) -> Vec<Step> {
        let mut tried = self.model;
        let mut steps = Vec::new();
        for (row, take) in rows.iter().zip(takes) {
            let step = step(&take.quota, &tried[*row], self.now, take.ask);
            if step.is_allowed() {
                tried[*row] = or_none(step.state);
            }
            steps.push(step);
        }
        for (step, take) in steps.iter().zip(takes) {
            if let Verdict::Reserve { wait: time } | Verdict::Deny { retry: Some(time) } = step.verdict {
                self.promised = self.now + time;
            }
            if let Some(receipt) = ChargeRecord::new(take.ask.tokens(), step) {
                // Receipts from denied calls are kept too, to test that settling such a receipt refunds nothing.
                let row = rows[steps.iter().position(|other| std::ptr::eq(other, step)).unwrap()];
                self.receipts.push((row, take.quota, receipt));
            }
        }
        if steps.iter().all(Step::is_allowed) {
            if store {
                self.model = tried;
                for (row, take) in rows.iter().zip(takes) {
                    (self.dirty[*row], self.by[*row]) = (true, take.quota);
                }
            }
            return steps;
        }
        for i in 0..steps.len() {
            let same: Vec<usize> = (0..rows.len()).filter(|other| rows[*other] == rows[i]).collect();
            let before = self.model[rows[i]];
            if !steps[i].is_allowed() && same.len() > 1 {
                let lines = rows.iter().zip(takes);
                let lines: Vec<_> =
                    lines.map(|(row, take)| Line { row: *row, quota: &take.quota, ask: take.ask }).collect();
                steps[i].verdict = step_all(&mut self.model.clone(), &lines, self.now)[i].verdict;
            }
            if rows.len() > 1 {
                // The backend may return the row as it was stored or as it is at the time of the call.
                steps[i].state = State { spent: f64::NAN, ..before };
            }
        }
        steps
    }

    /// Settles one of the earlier charges. Its row may have changed since, and the charge may already be settled.
    fn settle(&mut self, raw: &Raw) -> Sent {
        let last = self.receipts.len() - 1;
        let most = if raw.what.1 >> 63 == 0 { last } else { last.min(2) };
        let (row, mut quota, receipt) = self.receipts[last - (raw.what.1 >> 16) as usize % (most + 1)];
        if raw.what.1 >> 32 & 15 == 0 {
            quota = Take::new(id(row), &self.quotas[(row + 1) % 3], Ask::cost(0)).quota;
        }
        let actual = match raw.cost.0 {
            0..=2 => 0,
            3..=5 => raw.cost.1 % receipt.cost.saturating_add(1),
            6 => receipt.cost,
            7 => receipt.cost.saturating_add(raw.cost.1 % 100),
            _ => raw.cost.1,
        };
        let expected = takes_effect(&quota, &self.model[row], &receipt, self.now, actual);
        self.model[row] = or_none(settle(&quota, &self.model[row], &receipt, self.now, actual));
        (self.dirty[row], self.by[row]) = (true, quota);
        let answer = self.backend.settle(&[Adjustment { row: id(row), window: 0, quota, receipt, actual }]);
        Sent::Settled { expected, answer }
    }

    /// Credits a row under one of the three quotas.
    fn credit(&mut self, raw: &Raw, row: usize) -> Sent {
        let other = if self.mixed { (raw.how.1 >> 20) as usize % 3 } else { 0 };
        let quota = Take::new(id(row), &self.quotas[(row + other) % 3], Ask::cost(0)).quota;
        let huge = raw.cost.1 >> 60 == 0;
        let receipt = ChargeRecord::credit(if huge { u64::MAX } else { 1 + raw.cost.1 % (2 + quota.get_capacity()) });
        let expected = takes_effect(&quota, &self.model[row], &receipt, self.now, 0);
        self.model[row] = or_none(settle(&quota, &self.model[row], &receipt, self.now, 0));
        (self.dirty[row], self.by[row]) = (true, quota);
        let answer = self.backend.settle(&[Adjustment { row: id(row), window: 0, quota, receipt, actual: 0 }]);
        Sent::Settled { expected, answer }
    }

    fn reset(&mut self, row: usize) -> Sent {
        (self.model[row], self.dirty[row]) = (State::default(), true);
        Sent::Reset(self.backend.reset(&[id(row)]))
    }

    async fn compare(&mut self, burst: Vec<Sent>) {
        let alone = burst.len() == 1;
        for sent in burst {
            match sent {
                Sent::Settled { expected, answer } => assert_eq!(answer.await.unwrap(), expected),
                Sent::Reset(found) => assert!(found.await.unwrap() <= 1),
                Sent::Takes { expected, answer } => {
                    let answer = answer.await.unwrap();
                    assert_eq!(answer.len(), expected.len());
                    for (answer, expected) in answer.iter().zip(&expected) {
                        assert_eq!((answer.verdict, answer.now), (expected.verdict, self.now));
                        if !expected.state.spent.is_nan() {
                            assert_eq!(bytes(&answer.state), bytes(&expected.state), "{answer:?}, {expected:?}");
                        }
                    }
                }
            }
        }
        let (rows, expiries) = (self.window.rows(&self.names), self.window.expiries());
        for (name, expires) in expiries {
            let i = self.names.iter().position(|other| *other == name).unwrap();
            assert!(self.dirty[i], "the server must not write a row that did not change");
            self.expires[i] = expires;
            // In a burst, an earlier operation may have required a later expiry.
            assert!(
                !alone || !is_dropped_late(&self.by[i], &self.model[i], self.now, expires),
                "the row expires too late, at second {expires}: {:?}",
                self.model[i]
            );
        }
        for (i, stored) in rows.iter().enumerate() {
            let model = &self.model[i];
            assert_eq!(stored.is_some(), *model != State::default(), "expected {model:?}, found {stored:?}");
            let Some((stored, expires)) = stored.as_deref().map(row) else { continue };
            assert_eq!(bytes(&stored), bytes(model), "expected {model:?}, found {stored:?}");
            assert_eq!(stored.clear, model.clear, "expected {model:?}, found {stored:?}");
            assert_eq!(expires, self.expires[i], "the row's header and the server's expiry differ");
            assert!(
                !self.dirty[i] || !is_dropped_early(&self.by[i], model, self.now, expires),
                "the row expires too early, at second {expires}: {model:?}"
            );
        }
        self.dirty = [false; ROWS];
    }

    fn move_clock(&mut self, raw: &Raw) {
        let quota = self.quotas[(raw.what.1 % 3) as usize];
        let moved = raw.moved(&quota, self.now, self.promised);
        let step = moved.since(self.now);
        let back = |step: Duration| Micros::new(self.now.get().saturating_sub(step.as_micros() as u64));
        // The clock sometimes moves back, by a little or a lot, and sometimes jumps far ahead.
        self.now = match raw.how.1 >> 60 {
            0 | 1 => back(Duration::from_micros(step.as_micros() as u64 % (2 * quota.period().as_micros() as u64))),
            2 => back(step),
            3 => self.now + step.saturating_mul(1 + (raw.how.1 >> 50 & 31) as u32),
            _ => moved,
        };
        self.clock.set(self.now);
        if raw.step.1 >> 44 & 15 == 0 {
            self.tamper(raw.step.1 as usize % ROWS, moved);
        }
    }

    /// Replaces a row's write time with an arbitrary instant, even an impossible one.
    fn tamper(&mut self, i: usize, at: Micros) {
        if self.model[i] == State::default() {
            return;
        }
        self.model[i].at = at;
        self.window.write(&self.names[i], &stored(&self.model[i], self.expires[i]));
    }
}

fn id(row: usize) -> RowId<'static> {
    RowId { policy: &POLICIES[row % 3], key: Digest::from_bits(KEYS[row]) }
}

/// Returns whether the server drops a row before the row is fully refilled.
fn is_dropped_early(quota: &Quota, row: &State, now: Micros, expires: u32) -> bool {
    // A row that was settled under another tier keeps its stamp, but the quota of the other tier determined its expiry.
    row.stamp == tollgate::algorithm::stamp(quota)
        && expires_at(quota, row, now).is_none_or(|clear| f64::from(expires) * 1e6 < clear)
        && expires < u32::MAX
}

/// Returns whether the server keeps a row for longer than two seconds plus twice the time that a full refill takes.
/// Partial windows are counted as whole windows. Rows that are ahead of the clock are not checked, because they are
/// kept in case the clock is corrected.
fn is_dropped_late(quota: &Quota, row: &State, now: Micros, expires: u32) -> bool {
    if row.stamp != tollgate::algorithm::stamp(quota) {
        return false;
    }
    let slack = if quota.algorithm() == Algorithm::FixedWindow { quota.period().as_micros() as f64 } else { 0.0 };
    let latest = |clear: f64| now.get() as f64 + 2.0 * (clear + slack - now.get() as f64) + 2e6;
    row.at <= now
        && row.at > Micros::EPOCH
        && expires_at(quota, row, now).is_some_and(|clear| f64::from(expires) * 1e6 > latest(clear))
}

/// Returns when a row is fully refilled. Refunded tokens are counted as spent, because unsettled receipts may refer to
/// them.
fn expires_at(quota: &Quota, row: &State, now: Micros) -> Option<f64> {
    if quota.algorithm() == Algorithm::SlidingWindow {
        return Some((row.at.get() + 2 * quota.period().as_micros() as u64) as f64);
    }
    let paid = |owed: State| match step(quota, &owed, now, Ask::cost(quota.get_capacity())).verdict {
        Verdict::Deny { retry } => retry.map(|retry| (now + retry).get() as f64),
        _ => Some(now.get() as f64),
    };
    let owed = paid(State { carry: 0.0, ..*row })?;
    if row.carry == 0.0 {
        return Some(owed);
    }
    // No receipt exceeds the capacity plus the maximum number of reserved tokens.
    let most = quota.get_max_reserved().map_or(f64::MAX, |reserved| (quota.get_capacity() + reserved) as f64);
    let receipts = State { spent: (row.spent + row.carry).min(most), at: now, carry: 0.0, ..*row };
    Some(owed.max(paid(receipts)?))
}
