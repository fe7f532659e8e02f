//! Leases stay within the bound of their quota even if messages are delayed or lost. The tests run random histories of
//! a row, of the processes that hold leases on it, and of the messages between them.

use std::collections::BTreeMap;
use std::time::Duration;

use tollgate::algorithm::{Algorithm, ChargeRecord, lease, settle_leases, step};
use tollgate::algorithm::{Ask, LEASE_LIFE, Lease, LeaseId, LeaseReport, Micros, Outstanding, State};
use tollgate::{Quota, SECOND};

use crate::support::admitted::{AdmittedCharge, check};
use crate::support::model::Model;
use crate::support::random::Random;

/// A deliberate mistake in the lease rule. Each mistake must make some histories exceed their bound.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mistake {
    None,
    NoFloor,
    ReportsAppliedTwice,
    LifeFromTheReply,
    ExpiryInTheWrongOrder,
}

#[derive(Clone, Copy, Debug)]
struct HeldLease {
    id: LeaseId,
    tokens: u64,
    spent: u64,
    deadline: Micros,
}

#[derive(Clone, Debug)]
enum Event {
    /// A process spends tokens and possibly asks for a lease.
    Work(usize),
    /// A request that a process sent at the given time arrives at the row.
    Request(usize, Micros, [LeaseReport; 2], u64),
    /// The reply arrives at the process.
    Reply(usize, Micros, Lease),
    /// Callers try to charge the row directly, without a lease.
    Charge,
}

struct History {
    quota: Quota,
    mistake: Mistake,
    is_quiet: bool,
    random: Random,
    events: BTreeMap<(Micros, u64), Event>,
    next: u64,
    state: State,
    outstanding: Outstanding,
    held: Vec<Vec<HeldLease>>,
    admitted: Vec<AdmittedCharge>,
    leased: u64,
}

const BEGIN: Micros = Micros::new(1_700_000_000_000_000);

impl History {
    fn run(quota: Quota, seed: u64, mistake: Mistake) -> History {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let processes = 1 + random.below(5) as usize;
        let held = vec![Vec::new(); processes];
        let (events, admitted) = (BTreeMap::new(), Vec::new());
        let (state, outstanding) = (State::default(), Outstanding::default());
        let mut history = History {
            quota,
            mistake,
            is_quiet: seed % 3 == 0,
            random,
            events,
            next: 0,
            state,
            outstanding,
            held,
            admitted,
            leased: 0,
        };
        (0..processes).for_each(|process| history.at(BEGIN, Event::Work(process)));
        history.at(BEGIN, Event::Charge);
        while let Some(((now, _), event)) = history.events.pop_first() {
            if now > BEGIN + 15 * SECOND {
                break;
            }
            history.handle(now, event);
        }
        history
    }

    fn at(&mut self, time: Micros, event: Event) {
        self.next += 1;
        self.events.insert((time, self.next), event);
    }

    /// Draws a delay that is usually short, but sometimes longer than the lifetime of a lease.
    fn delay(&mut self) -> Duration {
        let longest = [1_000, 100_000, 1_000_000, 5_000_000][self.random.below(4) as usize];
        Duration::from_micros(1 + self.random.below(longest))
    }

    fn handle(&mut self, now: Micros, event: Event) {
        match event {
            Event::Work(process) => self.work(process, now),
            Event::Request(process, sent, reports, tokens) => {
                let lease = self.lease(now, &reports, tokens);
                let delay = self.delay();
                if self.random.below(8) > 0 {
                    self.at(now + delay, Event::Reply(process, sent, lease));
                }
            }
            Event::Reply(process, sent, lease) => {
                let begin = if self.mistake == Mistake::LifeFromTheReply { now } else { sent };
                let (id, tokens, deadline) = (lease.id, lease.tokens, begin + lease.life);
                self.leased += tokens;
                self.held[process].push(HeldLease { id, tokens, spent: 0, deadline });
            }
            Event::Charge => {
                let burst = [1, 1, 10][self.random.below(3) as usize];
                (0..burst).for_each(|_| self.charge(now));
                // In every third history, the row is often unused until all leases have ended.
                let delay = if self.is_quiet { self.delay() + 3 * SECOND } else { self.delay() };
                self.at(now + delay, Event::Charge);
            }
        }
    }

    fn work(&mut self, process: usize, now: Micros) {
        let spend = [1 + self.random.below(40), u64::MAX][usize::from(self.random.below(4) == 0)];
        let mut admitted = 0;
        for lease in self.held[process].iter_mut().filter(|lease| now < lease.deadline) {
            let tokens = lease.tokens.min(spend - admitted);
            (lease.tokens, lease.spent, admitted) = (lease.tokens - tokens, lease.spent + tokens, admitted + tokens);
        }
        self.admit(now, admitted);
        if self.random.below(if self.is_quiet { 12 } else { 2 }) == 0 {
            let returns = self.random.below(3) == 0;
            let mut reports = [LeaseReport::default(); 2];
            for (report, lease) in reports.iter_mut().zip(&mut self.held[process]) {
                let unused = if returns { lease.tokens } else { 0 };
                *report = LeaseReport { id: lease.id, spent: lease.spent, unused };
                (lease.spent, lease.tokens) = (0, lease.tokens - unused);
            }
            self.held[process].retain(|lease| lease.tokens > 0 || lease.spent > 0);
            let (delay, tokens) = (self.delay(), self.random.below(100));
            if self.random.below(8) > 0 {
                self.at(now + delay, Event::Request(process, now, reports, tokens));
            }
        }
        let pause = self.delay() / 4;
        self.at(now + pause, Event::Work(process));
    }

    fn lease(&mut self, now: Micros, reports: &[LeaseReport; 2], tokens: u64) -> Lease {
        let twice = [*reports, *reports];
        let reports = match self.mistake {
            Mistake::ReportsAppliedTwice => twice.as_flattened(),
            _ => reports,
        };
        if self.mistake == Mistake::NoFloor {
            let settled = |report: &LeaseReport| LeaseReport { spent: 0, ..*report };
            let returns: Vec<LeaseReport> = reports.iter().map(settled).collect();
            let row = step(&self.quota, &self.state, now, Ask::cost(0)).state;
            let unused: u64 = returns.iter().map(|report| report.unused).sum();
            self.state = State { spent: (row.spent - unused as f64).max(0.0), ..row };
            let lease = lease(&self.quota, &self.state, &Outstanding::default(), now, &[], tokens);
            self.state = lease.state;
            return lease;
        }
        self.expire_late(now);
        let lease = lease(&self.quota, &self.state, &self.outstanding, now, reports, tokens);
        (self.state, self.outstanding) = (lease.state, lease.outstanding);
        lease
    }

    /// For `Mistake::ExpiryInTheWrongOrder`, removes expired leases before anything is repaid.
    fn expire_late(&mut self, now: Micros) {
        if self.mistake == Mistake::ExpiryInTheWrongOrder && self.outstanding.turn + LEASE_LIFE <= now {
            self.outstanding = Outstanding::default();
        }
    }

    fn charge(&mut self, now: Micros) {
        self.expire_late(now);
        let cost = 1 + self.random.below(self.quota.get_capacity() / 3 + 1);
        let (state, outstanding) = settle_leases(&self.quota, &self.state, &self.outstanding, now);
        let step = step(&self.quota, &state, now, Ask::cost(cost));
        if step.is_allowed() {
            (self.state, self.outstanding) = (step.state, outstanding);
            self.admit(now, cost);
        }
    }

    fn admit(&mut self, now: Micros, cost: u64) {
        if cost > 0 {
            let receipt = ChargeRecord { cost, state: State::default(), due: now };
            self.admitted.push(AdmittedCharge::of(&receipt, now));
        }
    }

    fn is_within_bound(&self) -> Result<(), String> {
        check(&Model::of(&self.quota), &self.admitted)
    }
}

fn quota(algorithm: Algorithm, random: &mut Random) -> Quota {
    let period = Duration::from_millis([7, 100, 333, 1000, 2500, 9000][random.below(6) as usize]);
    let most = [20, 300][random.below(2) as usize];
    let per_second = 5 + random.below(most);
    let rate = (per_second * period.as_millis() as u64 / 1000).max(1);
    match algorithm {
        Algorithm::TokenBucket => Quota::token_bucket(rate, period).capacity(4 + random.below(300)),
        Algorithm::FixedWindow => Quota::fixed_window(rate, period).capacity(rate + random.below(100)).start(SECOND),
        _ => Quota::sliding_window(rate, period).start(SECOND),
    }
}

const ALGORITHMS: [Algorithm; 3] = [Algorithm::TokenBucket, Algorithm::FixedWindow, Algorithm::SlidingWindow];

/// Returns how many histories exceed the bound, and how many tokens were leased.
fn broken(histories: u64, algorithm: Algorithm, mistake: Mistake) -> (usize, u64) {
    let (mut broken, mut leased) = (0, 0);
    for seed in 1..=histories {
        let quota = quota(algorithm, &mut Random(seed << 20 | 1));
        let history = History::run(quota, seed, mistake);
        let result = history.is_within_bound();
        if mistake == Mistake::None {
            assert_eq!(result, Ok(()), "seed {seed}, {quota:?}");
        }
        (broken, leased) = (broken + usize::from(result.is_err()), leased + history.leased);
    }
    (broken, leased)
}

#[test]
fn leases_stay_within_the_bound() {
    for algorithm in ALGORITHMS {
        let (broken, leased) = broken(600, algorithm, Mistake::None);
        println!("{algorithm:?}: 600 histories, {leased} tokens leased, {broken} histories beyond the bound");
        assert!(leased > 20_000, "{algorithm:?}: only {leased} tokens were leased");
    }
}

#[test]
fn each_mistake_in_the_lease_rule_is_detected() {
    use Mistake::*;
    for mistake in [NoFloor, ReportsAppliedTwice, LifeFromTheReply, ExpiryInTheWrongOrder] {
        let found: Vec<usize> = ALGORITHMS.map(|algorithm| broken(3000, algorithm, mistake).0).to_vec();
        println!("{mistake:?}: {found:?} of 3000 histories beyond the bound");
        assert!(found.iter().sum::<usize>() > 2, "at most two histories exceeded their bound with {mistake:?}");
    }
}
