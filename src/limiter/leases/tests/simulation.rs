//! A simulation of many processes that lease tokens of one key, in virtual time, with the real algebra and the real code
//! of the holders.
//!
//! `make simulate` prints the tables.

use std::collections::BTreeMap;
use std::time::Duration;

use super::holder::Holder;
use crate::algorithm::{
    Ask, Lease, LeaseReport, Micros, Outstanding, Quota, SECOND, State, Verdict, lease, settle_leases, step,
};

#[derive(Clone, Copy)]
struct Setting {
    processes: usize,
    /// Tokens per second, and the capacity.
    limit: u64,
    /// The requested tokens per second of all processes together, as a multiple of the limit.
    demand: f64,
    round_trip: Duration,
    leases: bool,
}

enum Event {
    /// A call arrives at a process.
    Arrival(usize),
    /// A call without a lease, with the reports that are sent before it, and the tokens to lease after it.
    Call(usize, [LeaseReport; 2], Option<([LeaseReport; 2], u64)>),
    /// A request for a lease while the last one lasts.
    Renewal(usize, Micros, [LeaseReport; 2], u64),
    Denied(usize, Duration),
    Granted(usize, Micros, Lease),
    Tick,
}

struct Process {
    holder: Holder,
    denied_until: Micros,
    used: Micros,
    admitted: u64,
}

struct Simulation {
    setting: Setting,
    quota: Quota,
    events: BTreeMap<(Micros, u64), Event>,
    next: u64,
    random: u64,
    row: (State, Outstanding),
    processes: Vec<Process>,
    calls: u64,
    decisions: u64,
    excess: (f64, Micros),
    most: f64,
    /// A bucket that decides all calls when they arrive.
    central: (State, u64),
}

struct Outcome {
    utilization: f64,
    /// The admitted calls of the process with the fewest, relative to an equal share.
    unluckiest: f64,
    calls_per_decision: f64,
    /// The most tokens that were admitted in any interval, beyond the bound.
    over: f64,
}

const BEGIN: Micros = Micros::new(1_700_000_000_000_000);
const WARM_UP: Duration = Duration::from_secs(2);
const TIME: Duration = Duration::from_secs(6);

impl Simulation {
    fn run(setting: Setting) -> Outcome {
        let quota = Quota::token_bucket(setting.limit, SECOND);
        let holder = || Holder::new(quota, 0, BEGIN);
        let process = |_| Process { holder: holder(), denied_until: BEGIN, used: BEGIN, admitted: 0 };
        let mut simulation = Simulation {
            setting,
            quota,
            events: BTreeMap::new(),
            next: 0,
            random: 0x9e37_79b9_7f4a_7c15,
            row: Default::default(),
            processes: (0..setting.processes).map(process).collect(),
            calls: 0,
            decisions: 0,
            excess: (0.0, BEGIN),
            most: 0.0,
            central: (State::default(), 0),
        };
        (0..setting.processes).for_each(|process| simulation.arrive(process, BEGIN));
        simulation.at(BEGIN, Event::Tick);
        let (begin, end) = (BEGIN + WARM_UP, BEGIN + WARM_UP + TIME);
        let mut is_warm = false;
        while let Some(((now, _), event)) = simulation.events.pop_first() {
            if now >= end {
                break;
            }
            if now >= begin && !is_warm {
                is_warm = true;
                (simulation.calls, simulation.decisions, simulation.central.1) = (0, 0, 0);
                simulation.processes.iter_mut().for_each(|process| process.admitted = 0);
            }
            simulation.handle(now, event);
        }
        let admitted: u64 = simulation.processes.iter().map(|process| process.admitted).sum();
        let least = simulation.processes.iter().map(|process| process.admitted).min().unwrap_or(0);
        Outcome {
            utilization: admitted as f64 / simulation.central.1 as f64,
            unluckiest: least as f64 * setting.processes as f64 / simulation.central.1 as f64,
            calls_per_decision: simulation.calls as f64 / simulation.decisions as f64,
            over: (simulation.most - setting.limit as f64).max(0.0),
        }
    }

    fn at(&mut self, time: Micros, event: Event) {
        self.next += 1;
        self.events.insert((time, self.next), event);
    }

    fn arrive(&mut self, process: usize, now: Micros) {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let unit = ((self.random >> 11) + 1) as f64 / (1u64 << 53) as f64;
        let Setting { processes, limit, demand, .. } = self.setting;
        let mean = processes as f64 / (limit as f64 * demand);
        self.at(now + Duration::from_secs_f64((-unit.ln() * mean).min(100.0)), Event::Arrival(process));
    }

    fn admit(&mut self, process: usize, now: Micros) {
        self.processes[process].admitted += 1;
        let (excess, last) = self.excess;
        let refilled = self.setting.limit as f64 * now.since(last).as_secs_f64();
        self.excess = ((excess - refilled).max(0.0) + 1.0, now);
        self.most = self.most.max(self.excess.0);
    }

    fn handle(&mut self, now: Micros, event: Event) {
        let half = self.setting.round_trip / 2;
        match event {
            Event::Arrival(number) => {
                self.arrive(number, now);
                self.decisions += 1;
                let central = step(&self.quota, &self.central.0, now, Ask::cost(1));
                if central.is_allowed() {
                    self.central = (central.state, self.central.1 + 1);
                }
                let leases = self.setting.leases;
                let process = &mut self.processes[number];
                process.used = now;
                process.holder.demand(1, now);
                if leases && process.holder.spend(1, now) {
                    let asked = if process.holder.is_low(now) { process.holder.ask(0, now) } else { None };
                    if let Some((reports, wanted)) = asked {
                        self.at(now + half, Event::Renewal(number, now, reports, wanted));
                    }
                    return self.admit(number, now);
                }
                if now < process.denied_until || leases && process.holder.is_paused(now) {
                    return;
                }
                let before = process.holder.report(true, 0, now);
                let asks = if leases { process.holder.ask(0, now) } else { None };
                self.at(now + half, Event::Call(number, before, asks));
            }
            Event::Call(number, before, asks) => {
                self.calls += 1;
                let sent = Micros::new(now.get() - half.as_micros() as u64);
                let given_back = lease(&self.quota, &self.row.0, &self.row.1, now, &before, 0);
                self.row = (given_back.state, given_back.outstanding);
                let (state, outstanding) = settle_leases(&self.quota, &self.row.0, &self.row.1, now);
                let decided = step(&self.quota, &state, now, Ask::cost(1));
                match decided.verdict {
                    Verdict::Deny { retry } => self.at(now + half, Event::Denied(number, retry.unwrap_or(SECOND))),
                    _ => {
                        self.row = (decided.state, outstanding);
                        self.admit(number, now);
                    }
                }
                if let Some((reports, tokens)) = asks {
                    self.grant(number, sent, now, &reports, tokens);
                }
            }
            Event::Renewal(number, sent, reports, tokens) => {
                self.calls += 1;
                self.grant(number, sent, now, &reports, tokens);
            }
            Event::Denied(number, retry) => {
                let process = &mut self.processes[number];
                let pause = if self.setting.leases { process.holder.pause(now) } else { Duration::ZERO };
                // The row was read half a round trip ago.
                process.denied_until = now + retry.saturating_sub(half).max(pause).min(SECOND);
            }
            Event::Granted(number, sent, lease) => {
                let holder = &mut self.processes[number].holder;
                holder.is_asking = false;
                assert_eq!(holder.granted(&lease, sent, now), None);
            }
            Event::Tick => {
                self.at(now + SECOND / 10, Event::Tick);
                for number in 0..self.processes.len() {
                    let process = &mut self.processes[number];
                    if now.since(process.used) >= SECOND && !process.holder.is_asking && !process.holder.is_empty() {
                        let reports = process.holder.report(true, 0, now);
                        let given_back = lease(&self.quota, &self.row.0, &self.row.1, now, &reports, 0);
                        self.row = (given_back.state, given_back.outstanding);
                        self.calls += 1;
                    }
                }
            }
        }
    }

    fn grant(&mut self, number: usize, sent: Micros, now: Micros, reports: &[LeaseReport], tokens: u64) {
        let lease = lease(&self.quota, &self.row.0, &self.row.1, now, reports, tokens);
        self.row = (lease.state, lease.outstanding);
        self.at(now + self.setting.round_trip / 2, Event::Granted(number, sent, lease));
    }
}

#[test]
fn leases_of_many_processes_keep_the_bound_and_use_the_limit() {
    for (processes, limit) in [(1, 100), (8, 1000), (64, 10_000)] {
        let round_trip = Duration::from_millis(1);
        let outcome = Simulation::run(Setting { processes, limit, demand: 2.0, round_trip, leases: true });
        assert!(outcome.over < 1e-6, "{processes} processes, {limit}: {} too many", outcome.over);
        assert!(outcome.utilization > 0.9, "{processes} processes, {limit}: {}", outcome.utilization);
        let (calls, least) = (outcome.calls_per_decision, outcome.unluckiest);
        assert!(calls < 0.1 && least > 0.5, "{processes} processes, {limit}: {calls} calls, {least} of an equal share");
    }
}

#[test]
#[ignore = "takes minutes; prints tables"]
fn tables() {
    for demand in [0.5, 1.0, 2.0] {
        for round_trip in [Duration::from_micros(200), Duration::from_millis(50)] {
            println!(
                "\nDemand {demand} times the limit, round trip {round_trip:?}. Each cell has the admitted calls relative"
            );
            println!(
                "to one central bucket, those of the unluckiest process relative to an equal share, and the calls to"
            );
            println!(
                "the server per decision; first without and then with leases. `!` marks more calls than the bound.\n"
            );
            println!(
                "| processes | 10/s | 100/s | 1,000/s | 10,000/s | 100,000/s |\n| ---: | --- | --- | --- | --- | --- |"
            );
            for processes in [1, 8, 64, 512, 1000] {
                let mut line = format!("| {processes} |");
                for limit in [10, 100, 1000, 10_000, 100_000] {
                    for leases in [false, true] {
                        let o = Simulation::run(Setting { processes, limit, demand, round_trip, leases });
                        let (used, least, calls) = (o.utilization, o.unluckiest, o.calls_per_decision);
                        line += &format!(" {used:.2} {least:.2} {calls:.3}");
                        line += if o.over > 1e-6 { "!" } else { "" };
                        line += if leases { " |" } else { " →" };
                    }
                }
                println!("{line}");
            }
        }
    }
}
