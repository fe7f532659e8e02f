//! A simulation, in virtual time, of many processes that share one key's limit. It compares leases with calls to one
//! row, with shards, and with a fixed share for each process. `make simulate` writes the tables.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::shards::{draw, full_at};
use super::holder::Holder;
use crate::algorithm::{
    Ask, Lease, LeaseReport, Micros, Outstanding, Quota, SECOND, State, Step, Verdict, lease, settle_leases, step,
};

#[path = "faults.rs"]
mod faults;
#[path = "load.rs"]
mod load;
#[allow(unreachable_pub)] // Shared with the benchmarks.
#[path = "../../../../tests/support/plot.rs"]
mod plot;
#[path = "tables.rs"]
mod tables;

use self::faults::Fault;
use self::load::{Load, Random};

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Plain,
    Leases,
    Shards,
    /// Each process has its own bucket, with an equal share of the limit.
    Shares,
}

#[derive(Clone, Copy)]
struct Setting {
    mode: Mode,
    processes: usize,
    /// The number of tokens per second, which is also the capacity.
    limit: u64,
    load: Load,
    round_trip: Duration,
    fault: Option<Fault>,
}

enum Event {
    Arrival(usize),
    Message(usize, Micros, Message),
    Answer(usize, Micros, Answer),
    Tick,
}

enum Message {
    /// A call, the reports to apply before the call, and the lease request to handle after it.
    Call([LeaseReport; 2], Option<([LeaseReport; 2], u64)>),
    /// A request for the next lease, sent before the current lease is used up.
    Renewal([LeaseReport; 2], u64),
    Reports([LeaseReport; 2]),
    /// A call on a shard, and the shard to try if this one denies the call.
    OfShard(u8, Option<u8>),
}

enum Answer {
    Decided(Step),
    Granted(Lease),
    OfShard(u8, Step, Option<u8>),
    TimedOut,
}

struct Process {
    started: Micros,
    holder: Holder,
    /// For each shard: when it will be full, and until when this process denies calls on it. Modes without shards use
    /// the first entry.
    shards: Vec<(u64, Micros)>,
    share: State,
    used: Micros,
    arrived: u64,
    admitted: u64,
}

struct Simulation {
    setting: Setting,
    quota: Quota,
    /// The same quota with shards.
    divided: Quota,
    /// The quota of one process in [`Mode::Shares`].
    share: Quota,
    events: BTreeMap<(Micros, u64), Event>,
    next: u64,
    random: Random,
    row: (State, Outstanding),
    /// An earlier copy of the row, which a failover restores.
    replica: (State, Outstanding),
    shards: Vec<State>,
    processes: Vec<Process>,
    calls: u64,
    excess: (f64, Micros),
    most: f64,
    /// A bucket that decides all calls as soon as they arrive.
    central: (State, u64),
}

struct Outcome {
    /// The number of admitted calls, relative to that of one central bucket.
    utilization: f64,
    /// The lowest ratio of admitted calls to the fair share, among processes whose fair share is at least 20 calls.
    unluckiest: Option<f64>,
    calls_per_decision: f64,
    /// The largest number of calls admitted beyond the quota's bound in any interval.
    over: f64,
}

const BEGIN: Micros = Micros::new(1_700_000_000_000_000);
const WARM_UP: Duration = Duration::from_secs(2);
const TIME: Duration = Duration::from_secs(8);

/// Low limits are simulated for longer, because in a short run a handful of calls would skew the figures.
const TIME_OF_LOW_LIMITS: Duration = Duration::from_secs(80);

/// The time after which a message counts as lost.
const DEADLINE: Duration = Duration::from_millis(500);

impl Simulation {
    fn run(setting: Setting) -> Outcome {
        let Setting { processes, limit, .. } = setting;
        let quota = Quota::token_bucket(limit, SECOND);
        let divided = quota.shards((limit / 10).clamp(1, 16));
        let share = Quota::token_bucket(limit, processes as u32 * SECOND).capacity((limit / processes as u64).max(1));
        let mut simulation = Simulation {
            setting,
            quota,
            divided,
            share,
            events: BTreeMap::new(),
            next: 0,
            random: Random::new(),
            row: Default::default(),
            replica: Default::default(),
            shards: vec![State::default(); divided.get_shards() as usize],
            processes: (0..processes).map(|_| Process::new(divided, BEGIN)).collect(),
            calls: 0,
            excess: (0.0, BEGIN),
            most: 0.0,
            central: (State::default(), 0),
        };
        (0..processes).for_each(|process| simulation.arrive(process, BEGIN));
        simulation.at(BEGIN, Event::Tick);
        let time = if limit <= 100 { TIME_OF_LOW_LIMITS } else { TIME };
        let (begin, end) = (BEGIN + WARM_UP, BEGIN + WARM_UP + time);
        let mut is_warm = false;
        while let Some(((now, _), event)) = simulation.events.pop_first() {
            if now >= end {
                break;
            }
            if now >= begin && !is_warm {
                is_warm = true;
                (simulation.calls, simulation.central.1) = (0, 0);
                simulation.processes.iter_mut().for_each(|process| (process.arrived, process.admitted) = (0, 0));
            }
            simulation.handle(now, event);
        }
        simulation.outcome()
    }

    fn outcome(&self) -> Outcome {
        let sum = |of: fn(&Process) -> u64| self.processes.iter().map(of).sum::<u64>() as f64;
        let (arrived, central) = (sum(|process| process.arrived), self.central.1 as f64);
        let part = |process: &Process| {
            let fair = central * process.arrived as f64 / arrived;
            (fair >= 20.0).then(|| process.admitted as f64 / fair)
        };
        Outcome {
            utilization: sum(|process| process.admitted) / central,
            unluckiest: self.processes.iter().filter_map(part).reduce(f64::min),
            calls_per_decision: self.calls as f64 / arrived,
            over: (self.most - self.setting.limit as f64).max(0.0),
        }
    }

    fn at(&mut self, time: Micros, event: Event) {
        self.next += 1;
        self.events.insert((time, self.next), event);
    }

    fn arrive(&mut self, process: usize, now: Micros) {
        let Setting { load, processes, limit, .. } = self.setting;
        let next = load.next_arrival(process, processes, limit, now.since(BEGIN), &mut self.random);
        self.at(BEGIN + next, Event::Arrival(process));
    }

    /// Sends a message to the server, unless it is lost.
    fn send(&mut self, process: usize, now: Micros, message: Message) {
        if self.loses(process, now) {
            return self.at(now + DEADLINE, Event::Answer(process, now, Answer::TimedOut));
        }
        self.at(now + self.setting.round_trip / 2, Event::Message(process, now, message));
    }

    /// Sends an answer to a process, unless it is lost. Returns whether the answer will arrive.
    fn answer(&mut self, process: usize, sent: Micros, now: Micros, answer: Answer) -> bool {
        let is_lost = self.loses(process, now) || sent < self.processes[process].started;
        let (time, answer) =
            if is_lost { (sent + DEADLINE, Answer::TimedOut) } else { (now + self.setting.round_trip / 2, answer) };
        self.at(time.max(now), Event::Answer(process, sent, answer));
        !is_lost
    }

    fn admit(&mut self, process: usize, now: Micros) {
        self.processes[process].admitted += 1;
        let (excess, last) = self.excess;
        let refilled = self.setting.limit as f64 * now.since(last).as_secs_f64();
        self.excess = ((excess - refilled).max(0.0) + 1.0, now);
        self.most = self.most.max(self.excess.0);
    }

    fn handle(&mut self, now: Micros, event: Event) {
        match event {
            Event::Arrival(process) => {
                self.arrive(process, now);
                let central = step(&self.quota, &self.central.0, now, Ask::cost(1));
                if central.is_allowed() {
                    self.central = (central.state, self.central.1 + 1);
                }
                self.processes[process].arrived += 1;
                self.call(process, now);
            }
            Event::Message(process, sent, message) => {
                self.calls += u64::from(!matches!(message, Message::Reports(_)));
                self.receive(process, sent, now, message);
            }
            Event::Answer(process, sent, answer) => {
                if sent >= self.processes[process].started {
                    self.answered(process, sent, now, answer);
                }
            }
            Event::Tick => {
                self.at(now + SECOND / 10, Event::Tick);
                self.suffer(now);
                self.replica = self.row;
                for process in 0..self.processes.len() {
                    let (local, one) = (self.local(process, now), &mut self.processes[process]);
                    if local.since(one.used) >= SECOND && !one.holder.is_asking && !one.holder.is_empty() {
                        let reports = one.holder.report(true, 0, local);
                        self.calls += 1;
                        self.send(process, now, Message::Reports(reports));
                    }
                }
            }
        }
    }

    /// Decides a call locally in process number `process`, or sends it to the server.
    fn call(&mut self, process: usize, now: Micros) {
        let (mode, local) = (self.setting.mode, self.local(process, now));
        let drawn = draw(self.divided.get_shards() as u8, self.random.bits());
        let one = &mut self.processes[process];
        one.used = local;
        let message = match mode {
            Mode::Plain if local < one.shards[0].1 => return,
            Mode::Plain => Message::Call([LeaseReport::default(); 2], None),
            Mode::Leases => {
                one.holder.demand(1, local);
                if one.holder.spend(1, local) {
                    let asked = if one.holder.is_low(local) { one.holder.ask(0, local) } else { None };
                    if let Some((reports, wanted)) = asked {
                        self.send(process, now, Message::Renewal(reports, wanted));
                    }
                    return self.admit(process, now);
                }
                if local < one.shards[0].1 || one.holder.is_paused(local) {
                    return;
                }
                let before = one.holder.report(true, 0, local);
                Message::Call(before, one.holder.ask(0, local))
            }
            Mode::Shards => {
                let mut pair = drawn.map(|shard| (one.shards[usize::from(shard)], shard));
                pair.sort_unstable();
                let mut open =
                    pair.iter().filter(|((_, denies_until), _)| local >= *denies_until).map(|(_, shard)| *shard);
                let Some(first) = open.next() else { return };
                Message::OfShard(first, open.next().filter(|second| *second != first))
            }
            Mode::Shares => {
                let decided = step(&self.share, &one.share, local, Ask::cost(1));
                if decided.is_allowed() {
                    one.share = decided.state;
                    self.admit(process, now);
                }
                return;
            }
        };
        self.send(process, now, message);
    }

    fn receive(&mut self, process: usize, sent: Micros, now: Micros, message: Message) {
        match message {
            Message::Call(before, asks) => {
                self.lease(now, &before, 0);
                let (state, outstanding) = settle_leases(&self.quota, &self.row.0, &self.row.1, now);
                let decided = step(&self.quota, &state, now, Ask::cost(1));
                if decided.is_allowed() {
                    self.row = (decided.state, outstanding);
                }
                if self.answer(process, sent, now, Answer::Decided(decided)) && decided.is_allowed() {
                    self.admit(process, now);
                }
                if let Some((reports, tokens)) = asks {
                    let lease = self.lease(now, &reports, tokens);
                    self.answer(process, sent, now, Answer::Granted(lease));
                }
            }
            Message::Renewal(reports, tokens) => {
                let lease = self.lease(now, &reports, tokens);
                self.answer(process, sent, now, Answer::Granted(lease));
            }
            Message::Reports(reports) => _ = self.lease(now, &reports, 0),
            Message::OfShard(shard, other) => {
                let row = &mut self.shards[usize::from(shard)];
                let decided = step(&self.divided.shard(shard), row, now, Ask::cost(1));
                *row = decided.state;
                if self.answer(process, sent, now, Answer::OfShard(shard, decided, other)) && decided.is_allowed() {
                    self.admit(process, now);
                }
            }
        }
    }

    fn lease(&mut self, now: Micros, reports: &[LeaseReport], tokens: u64) -> Lease {
        let lease = lease(&self.quota, &self.row.0, &self.row.1, now, reports, tokens);
        self.row = (lease.state, lease.outstanding);
        lease
    }

    fn answered(&mut self, process: usize, sent: Micros, now: Micros, answer: Answer) {
        let (sent_locally, local) = (self.local(process, sent), self.local(process, now));
        let age = self.setting.round_trip / 2;
        let retry = |step: &Step| match step.verdict {
            // The row was read half a round trip ago.
            Verdict::Deny { retry } => retry.unwrap_or(SECOND).saturating_sub(age),
            _ => Duration::ZERO,
        };
        let Process { holder, shards, .. } = &mut self.processes[process];
        match answer {
            Answer::Decided(step) if step.is_allowed() => {}
            Answer::Decided(step) => {
                let pause = if self.setting.mode == Mode::Leases { holder.pause(local) } else { Duration::ZERO };
                shards[0].1 = local + retry(&step).max(pause).min(SECOND);
            }
            Answer::Granted(lease) => {
                holder.is_asking = false;
                if let Some(unused) = holder.granted(&lease, sent_locally, local) {
                    self.send(process, now, Message::Reports([unused, LeaseReport::default()]));
                }
            }
            Answer::OfShard(shard, step, other) => {
                shards[usize::from(shard)] = (full_at(&self.divided.shard(shard), &step.state), local + retry(&step));
                if let (false, Some(other)) = (step.is_allowed(), other) {
                    self.send(process, now, Message::OfShard(other, None));
                }
            }
            Answer::TimedOut => holder.is_asking = false,
        }
    }
}

impl Process {
    fn new(divided: Quota, now: Micros) -> Process {
        let shards = vec![(0, now); divided.get_shards() as usize];
        let holder = Holder::new(divided.shards(1), 0, now);
        Process { started: now, holder, shards, share: State::default(), used: now, arrived: 0, admitted: 0 }
    }
}
