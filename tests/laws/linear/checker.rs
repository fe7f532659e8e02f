//! Checks that concurrent operations are linearizable (Herlihy and Wing).
//!
//! A history is linearizable if its events can be put into an order with two properties: running them one by one gives
//! the recorded results, and each event precedes all events that began after it ended. The time of a decision may be
//! any reading of the clock since the decision began, because the clock is read before the rows.

use std::time::Duration;

use tollgate::algorithm::{Ask, ChargeRecord, Micros, State, Step, Verdict, settle, step};
use tollgate::backend::{Adjustment, Backend, RowId, Take};
use tollgate::{
    MINUTE, MemoryBackend, Quota,
    clock::{Clock, ManualClock},
    key::Digest,
    policy::PolicyName,
};

/// A logical clock that numbers the starts and ends of operations.
pub(crate) trait Ticks {
    fn tick(&self) -> u64;
}

#[derive(Debug)]
pub(crate) struct Event {
    began: u64,
    ended: u64,
    operation: Operation,
}

#[derive(Debug)]
enum Operation {
    Decide {
        /// The row and cost of each charge.
        charges: Vec<(usize, u64)>,
        store: bool,
        answers: Vec<Verdict>,
        now: Micros,
    },
    Settle {
        row: usize,
        receipt: ChargeRecord,
        actual: u64,
    },
    Reset {
        row: usize,
    },
    Advance {
        micros: u64,
    },
}

pub(crate) const ROWS: usize = 3;
pub(crate) const BEGIN: Micros = Micros::new(1_700_000_000_000_000);

/// Returns the quota of a row. Each row uses a different algorithm.
fn quota(row: usize) -> Quota {
    match row {
        0 => Quota::token_bucket(3, MINUTE),
        1 => Quota::fixed_window(3, MINUTE).start(Duration::ZERO),
        _ => Quota::sliding_window(3, MINUTE).start(Duration::ZERO),
    }
}

pub(crate) fn backend() -> (MemoryBackend, ManualClock) {
    let clock = ManualClock::at(BEGIN);
    (MemoryBackend::builder().max_rows(1000).clock(YieldingClock(clock.clone())).build(), clock)
}

/// A clock that yields to other threads each time it is read.
#[derive(Debug)]
struct YieldingClock(ManualClock);

impl Clock for YieldingClock {
    fn now(&self) -> Micros {
        let now = self.0.now();
        std::thread::yield_now();
        now
    }
}

/// Runs `count` random operations on the current thread. `random` is the seed.
pub(crate) fn run_operations(
    backend: &MemoryBackend,
    clock: &ManualClock,
    ticks: &impl Ticks,
    count: usize,
    mut random: u64,
) -> Vec<Event> {
    let mut below = |end: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % end
    };
    let policy = PolicyName::new("any");
    let id = |row: usize| RowId { policy: &policy, key: Digest::from_bits(0x9e37_79b9_7f4a_7c15 * (1 + row as u128)) };
    let mut receipts: Vec<(usize, ChargeRecord)> = Vec::new();
    let mut events = Vec::new();
    for _ in 0..count {
        let kind = below(10);
        let first = below(ROWS as u64) as usize;
        let began;
        let operation = match kind {
            7 if !receipts.is_empty() => {
                let (row, receipt) = receipts.swap_remove(below(receipts.len() as u64) as usize);
                let actual = below(4);
                let quota = Take::new(id(row), &quota(row), Ask::cost(0)).quota;
                began = ticks.tick();
                drop(backend.settle(&[Adjustment { row: id(row), window: 0, quota, receipt, actual }]));
                Operation::Settle { row, receipt, actual }
            }
            8 => {
                began = ticks.tick();
                drop(backend.reset(&[id(first)]));
                Operation::Reset { row: first }
            }
            9 => {
                let micros = below(40_000_000);
                began = ticks.tick();
                clock.advance(Duration::from_micros(micros));
                Operation::Advance { micros }
            }
            _ => {
                let (count, stride) = (1 + below(ROWS as u64) as usize, 1 + below(2) as usize);
                let charges: Vec<(usize, u64)> =
                    (0..count).map(|i| ((first + i * stride) % ROWS, 1 + below(2))).collect();
                let store = kind > 0;
                let takes: Vec<Take<'_>> =
                    charges.iter().map(|(row, cost)| Take::new(id(*row), &quota(*row), Ask::cost(*cost))).collect();
                began = ticks.tick();
                let answer = if store { backend.acquire(&takes) } else { backend.peek(&takes) };
                let steps = answer.try_ready().expect("expected a ready future").expect("expected a decision");
                if store && steps.all_granted() {
                    let granted = charges.iter().zip(steps.iter()).map(|((row, cost), step)| {
                        (*row, ChargeRecord::new(*cost, step).expect("expected a granted step"))
                    });
                    receipts.extend(granted);
                }
                let answers = steps.iter().map(|step| step.verdict).collect();
                Operation::Decide { charges, store, answers, now: steps[0].now }
            }
        };
        events.push(Event { began, ended: ticks.tick(), operation });
    }
    events
}

/// Returns an order that shows that the events are linearizable, or `None` if there is no such order.
pub(crate) fn order(events: &[Event]) -> Option<Vec<usize>> {
    let mut order = Vec::new();
    search(events, &[Table { rows: Default::default(), now: BEGIN }], &mut order).then_some(order)
}

pub(crate) fn overlaps(events: &[Event]) -> usize {
    let pairs = events.iter().enumerate().flat_map(|(i, one)| events[..i].iter().map(move |other| (one, other)));
    pairs.filter(|(one, other)| one.began < other.ended && other.began < one.ended).count()
}

/// Extends `order` to all events, if possible. `tables` contains the state before each event of `order`, and the state
/// after the last event.
fn search(events: &[Event], tables: &[Table], order: &mut Vec<usize>) -> bool {
    if order.len() == events.len() {
        return true;
    }
    let remaining: Vec<usize> = (0..events.len()).filter(|i| !order.contains(i)).collect();
    let first_end = remaining.iter().map(|i| events[*i].ended).min().unwrap_or(u64::MAX);
    for i in remaining {
        if events[i].began > first_end {
            continue;
        }
        let over = order.iter().rposition(|other| events[*other].ended < events[i].began).map_or(0, |last| last + 1);
        let readings: Vec<Micros> = tables[over..].iter().map(|table| table.now).collect();
        if let Some(next) = tables[order.len()].after(&events[i].operation, &readings) {
            order.push(i);
            let tables: Vec<Table> = tables.iter().cloned().chain([next]).collect();
            if search(events, &tables, order) {
                return true;
            }
            order.pop();
        }
    }
    false
}

#[derive(Clone)]
struct Table {
    rows: [State; ROWS],
    now: Micros,
}

impl Table {
    /// Returns the table after an operation, or `None` if the results differ from the recorded ones.
    /// `readings` contains all readings of the clock since the operation began.
    fn after(&self, operation: &Operation, readings: &[Micros]) -> Option<Table> {
        let mut next = self.clone();
        match operation {
            Operation::Decide { charges, store, answers, now } => {
                let steps: Vec<Step> = charges
                    .iter()
                    .map(|(row, cost)| step(&quota(*row), &self.rows[*row], *now, Ask::cost(*cost)))
                    .collect();
                if !readings.contains(now) || !steps.iter().map(|step| step.verdict).eq(answers.iter().copied()) {
                    return None;
                }
                if *store && steps.iter().all(Step::is_allowed) {
                    charges.iter().zip(&steps).for_each(|((row, _), step)| next.rows[*row] = step.state);
                }
            }
            Operation::Settle { row, receipt, actual } => {
                next.rows[*row] = settle(&quota(*row), &self.rows[*row], receipt, self.now, *actual);
            }
            Operation::Reset { row } => next.rows[*row] = State::default(),
            Operation::Advance { micros } => next.now = self.now + Duration::from_micros(*micros),
        }
        Some(next)
    }
}
