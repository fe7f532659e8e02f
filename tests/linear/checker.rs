//! What threads did at once, and whether it could have been done one after the other.
//!
//! A history is right if its events have an order in which each comes after those that had ended when it began, and in
//! which the algebra alone gives every answer that was given (linearizability, as Herlihy and Wing have it). A decision may
//! be of any instant that the clock showed since it began: it looks at the clock first, and at its rows then.

use std::time::Duration;

use tollgate::algorithm::{Ask, ChargeRecord, Micros, State, Step, Verdict, settle, step};
use tollgate::backend::{Adjustment, Backend, RowId, Take};
use tollgate::{
    MINUTE, MemoryBackend, Quota,
    clock::{Clock, ManualClock},
    key::Digest,
    policy::PolicyName,
};

/// The numbers of a clock that counts what begins and what ends, in the order in which that happens.
pub(crate) trait Ticks {
    fn tick(&self) -> u64;
}

/// What somebody did, and when.
#[derive(Debug)]
pub(crate) struct Event {
    began: u64,
    ended: u64,
    what: What,
}

#[derive(Debug)]
enum What {
    /// Of each charge the row and the cost, and what was answered at which time.
    Decide {
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
    /// The clock moved on.
    Pass {
        micros: u64,
    },
}

pub(crate) const ROWS: usize = 3;
pub(crate) const BEGIN: Micros = Micros::new(1_700_000_000_000_000);

/// A bucket, a window, a sliding window: of each row its own.
fn quota(row: usize) -> Quota {
    match row {
        0 => Quota::token_bucket(3, MINUTE),
        1 => Quota::fixed_window(3, MINUTE).start(Duration::ZERO),
        _ => Quota::sliding_window(3, MINUTE).start(Duration::ZERO),
    }
}

pub(crate) fn backend() -> (MemoryBackend, ManualClock) {
    let clock = ManualClock::at(BEGIN);
    (MemoryBackend::builder().max_rows(1000).clock(Slow(clock.clone())).build(), clock)
}

/// Who looks at it lets others go on first: the backend does so in the midst of a decision.
#[derive(Debug)]
struct Slow(ManualClock);

impl Clock for Slow {
    fn now(&self) -> Micros {
        let now = self.0.now();
        std::thread::yield_now();
        now
    }
}

/// What one thread does, `acts` things drawn from `dice`.
pub(crate) fn act(
    backend: &MemoryBackend,
    clock: &ManualClock,
    ticks: &impl Ticks,
    acts: usize,
    mut dice: u64,
) -> Vec<Event> {
    let mut below = |end: u64| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (dice >> 33) % end
    };
    let policy = PolicyName::new("any");
    let id = |row: usize| RowId { policy: &policy, key: Digest::from_bits(0x9e37_79b9_7f4a_7c15 * (1 + row as u128)) };
    let mut open: Vec<(usize, ChargeRecord)> = Vec::new();
    let mut events = Vec::new();
    for _ in 0..acts {
        let kind = below(10);
        let first = below(ROWS as u64) as usize;
        let began;
        let what = match kind {
            7 if !open.is_empty() => {
                let (row, receipt) = open.swap_remove(below(open.len() as u64) as usize);
                let actual = below(4);
                let quota = Take::new(id(row), &quota(row), Ask::cost(0)).quota;
                began = ticks.tick();
                drop(backend.settle(&[Adjustment { row: id(row), quota, receipt, actual }]));
                What::Settle { row, receipt, actual }
            }
            8 => {
                began = ticks.tick();
                drop(backend.reset(&[id(first)]));
                What::Reset { row: first }
            }
            9 => {
                let micros = below(40_000_000);
                began = ticks.tick();
                clock.advance(Duration::from_micros(micros));
                What::Pass { micros }
            }
            _ => {
                // Rows in any order, beginning anywhere.
                let (count, stride) = (1 + below(ROWS as u64) as usize, 1 + below(2) as usize);
                let charges: Vec<(usize, u64)> =
                    (0..count).map(|i| ((first + i * stride) % ROWS, 1 + below(2))).collect();
                let store = kind > 0;
                let takes: Vec<Take<'_>> =
                    charges.iter().map(|(row, cost)| Take::new(id(*row), &quota(*row), Ask::cost(*cost))).collect();
                began = ticks.tick();
                let answer = if store { backend.acquire(&takes) } else { backend.peek(&takes) };
                let steps = answer.try_ready().expect("in memory").expect("it decides");
                if store && steps.all_granted() {
                    let receipts = charges
                        .iter()
                        .zip(steps.iter())
                        .map(|((row, cost), step)| (*row, ChargeRecord::new(*cost, step).expect("it was granted")));
                    open.extend(receipts);
                }
                let answers = steps.iter().map(|step| step.verdict).collect();
                What::Decide { charges, store, answers, now: steps[0].now }
            }
        };
        events.push(Event { began, ended: ticks.tick(), what });
    }
    events
}

/// An order in which the algebra answers the same; `None` if there is none.
pub(crate) fn order(events: &[Event]) -> Option<Vec<usize>> {
    let mut order = Vec::new();
    search(events, &[Table { rows: Default::default(), now: BEGIN }], &mut order).then_some(order)
}

/// How many pairs of events were under way at once: of none there is nothing to be seen.
pub(crate) fn overlaps(events: &[Event]) -> usize {
    let pairs = events.iter().enumerate().flat_map(|(i, one)| events[..i].iter().map(move |other| (one, other)));
    pairs.filter(|(one, other)| one.began < other.ended && other.began < one.ended).count()
}

/// `tables`: what it was before each event of the order, and after the last.
fn search(events: &[Event], tables: &[Table], order: &mut Vec<usize>) -> bool {
    if order.len() == events.len() {
        return true;
    }
    let left: Vec<usize> = (0..events.len()).filter(|i| !order.contains(i)).collect();
    let first_end = left.iter().map(|i| events[*i].ended).min().unwrap_or(u64::MAX);
    for i in left {
        if events[i].began > first_end {
            continue;
        }
        let over = order.iter().rposition(|other| events[*other].ended < events[i].began).map_or(0, |last| last + 1);
        let shown: Vec<Micros> = tables[over..].iter().map(|table| table.now).collect();
        if let Some(next) = tables[order.len()].after(&events[i].what, &shown) {
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

/// The rows by the algebra alone.
#[derive(Clone)]
struct Table {
    rows: [State; ROWS],
    now: Micros,
}

impl Table {
    /// The table after it, if it answers this. `shown`: by the clock, since it began.
    fn after(&self, what: &What, shown: &[Micros]) -> Option<Table> {
        let mut next = self.clone();
        match what {
            What::Decide { charges, store, answers, now } => {
                let steps: Vec<Step> = charges
                    .iter()
                    .map(|(row, cost)| step(&quota(*row), &self.rows[*row], *now, Ask::cost(*cost)))
                    .collect();
                if !shown.contains(now) || !steps.iter().map(|step| step.verdict).eq(answers.iter().copied()) {
                    return None;
                }
                if *store && steps.iter().all(Step::is_allowed) {
                    charges.iter().zip(&steps).for_each(|((row, _), step)| next.rows[*row] = step.state);
                }
            }
            What::Settle { row, receipt, actual } => {
                next.rows[*row] = settle(&quota(*row), &self.rows[*row], receipt, self.now, *actual);
            }
            What::Reset { row } => next.rows[*row] = State::default(),
            What::Pass { micros } => next.now = self.now + Duration::from_micros(*micros),
        }
        Some(next)
    }
}
