//! The callers in a log, and their requests and refusals. Memory use depends only on the number of callers.

use indexmap::IndexSet;
use tollgate::Key;

use super::timeline::Timeline;
use crate::caller::Caller;

#[derive(Debug)]
pub struct Callers {
    names: IndexSet<Caller>,
    max: usize,
    requests: Vec<Requests>,
    /// The refused requests of each caller at each gate.
    refusals: Vec<Refusals>,
    gates: usize,
    /// The refused requests at each gate over time.
    pub timelines: Vec<Timeline>,
    /// The number of requests from callers beyond the maximum.
    pub beyond: u64,
    pub first_second: Option<u64>,
    pub last_second: u64,
}

/// The requests of a caller.
#[derive(Clone, Copy, Debug, Default)]
struct Requests {
    total: u32,
    second: Busiest,
    minute: Busiest,
    /// How many requests in the last second have been assigned a time.
    placed: u32,
}

/// The number of requests in the last period and in the busiest period.
#[derive(Clone, Copy, Debug, Default)]
struct Busiest {
    period: u32,
    count: u32,
    max: u32,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Refusals {
    pub count: u32,
    pub first_second: u32,
}

impl Callers {
    pub fn new(max: u32, gates: usize) -> Callers {
        let (names, max) = (IndexSet::new(), max as usize);
        let (requests, refusals) = (Vec::new(), Vec::new());
        Callers {
            names,
            max,
            requests,
            refusals,
            gates,
            timelines: Vec::new(),
            beyond: 0,
            first_second: None,
            last_second: 0,
        }
    }

    /// Returns the number that identifies a caller, or `None` if there are too many callers.
    pub fn number(&mut self, caller: Caller) -> Option<u32> {
        if self.names.len() >= self.max && !self.names.contains(&caller) {
            self.beyond += 1;
            return None;
        }
        let (number, is_new) = self.names.insert_full(caller);
        if is_new {
            self.requests.push(Requests::default());
            self.refusals.resize(self.requests.len() * self.gates, Refusals::default());
        }
        u32::try_from(number).ok()
    }

    pub fn key(&self, caller: u32) -> Key {
        self.names[caller as usize].key()
    }

    pub fn arrived(&mut self, caller: u32, second: u64) {
        if self.first_second.is_none() {
            (self.first_second, self.timelines) = (Some(second), vec![Timeline::new(second); self.gates]);
        }
        self.last_second = second;
        let requests = &mut self.requests[caller as usize];
        requests.total += 1;
        if requests.second.add(second) {
            requests.placed = 0;
        }
        requests.minute.add(second / 60);
    }

    /// Returns the index of the caller's next request in this second, and the number of its requests in this second.
    pub fn next_in_second(&mut self, caller: u32) -> (u64, u64) {
        let requests = &mut self.requests[caller as usize];
        let count = requests.second.count.max(1);
        // Each limit is applied to the same requests, so the index starts again after the last request.
        let next = requests.placed % count;
        requests.placed = next + 1;
        (next.into(), count.into())
    }

    pub fn refused(&mut self, caller: u32, gate: usize, second: u64) {
        let refusals = &mut self.refusals[caller as usize * self.gates + gate];
        if refusals.count == 0 {
            refusals.first_second = second as u32;
        }
        refusals.count += 1;
        self.timelines[gate].add(second);
    }

    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Returns the name, the requests and the refusals of each caller.
    pub fn of_gate(&self, gate: usize) -> impl Iterator<Item = (&Caller, u32, Refusals)> {
        let numbered = self.names.iter().zip(&self.requests).enumerate();
        numbered.map(move |(i, (name, requests))| (name, requests.total, self.refusals[i * self.gates + gate]))
    }

    /// Returns the sorted request counts of all callers, each in its busiest second and in its busiest minute.
    pub fn peaks(&self) -> [Vec<u32>; 2] {
        let sorted = |of: fn(&Requests) -> u32| {
            let mut peaks: Vec<u32> = self.requests.iter().map(of).collect();
            peaks.sort_unstable();
            peaks
        };
        [sorted(|requests| requests.second.max), sorted(|requests| requests.minute.max)]
    }
}

impl Busiest {
    /// Counts a request. Returns whether it is the first in its period.
    fn add(&mut self, period: u64) -> bool {
        let (period, is_first) = (period as u32, self.count == 0 || self.period != period as u32);
        self.count = if is_first { 1 } else { self.count + 1 };
        (self.period, self.max) = (period, self.max.max(self.count));
        is_first
    }
}
