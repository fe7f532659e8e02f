//! Explores every interleaving of two processes that lease tokens from one row. At any step, a message can be lost, a
//! process can die, or time can advance.

use std::collections::HashSet;
use std::time::Duration;

use tollgate::Quota;
use tollgate::algorithm::{
    Ask, LEASE_LIFE, LeaseId, LeaseReport, Micros, Outstanding, State, lease, settle_leases, step,
};

/// The capacity is twelve tokens, and one token is refilled in each time step. A lease holds at most two tokens and
/// lasts for two to four steps.
const CAPACITY: u64 = 12;
const STEP: Duration = Duration::from_micros(LEASE_LIFE.as_micros() as u64 / 2);
const QUOTA: Quota = Quota::token_bucket(1, STEP).capacity(CAPACITY);
const BEGIN: Micros = Micros::new(1_700_000_000_000_000);
const STEPS: u64 = 5;

/// A lease held by a process: its ID, the tokens left, the tokens spent but not yet reported, and when it ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Held {
    id: (u64, u64),
    tokens: u64,
    spent: u64,
    end: u64,
}

/// A message in transit. `sent` is the time at which the request was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Message {
    None,
    Request { sent: u64, id: (u64, u64), spent: u64, unused: u64 },
    Reply { sent: u64, lease: Held },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct World {
    time: u64,
    row: (u64, u64, u64),
    outstanding: (u64, u64, u64, u64),
    held: [Held; 2],
    messages: [Message; 2],
    /// The most tokens admitted beyond the refill in any interval that ends now.
    excess: u64,
}

fn now(time: u64) -> Micros {
    BEGIN + STEP * time as u32
}

fn id((since, turn): (u64, u64)) -> LeaseId {
    LeaseId { since: Micros::new(since), turn: Micros::new(turn) }
}

impl World {
    fn row(&self) -> (State, Outstanding) {
        let ((spent, at, stamp), (since, turn, current, last)) = (self.row, self.outstanding);
        let state = State { spent: spent as f64, at: Micros::new(at), stamp: stamp as u32, ..State::default() };
        let (since, turn) = (Micros::new(since), Micros::new(turn));
        (state, Outstanding { since, turn, current, last })
    }

    fn stored(mut self, state: State, outstanding: Outstanding) -> World {
        assert_eq!(state.spent.fract(), 0.0);
        self.row = (state.spent as u64, state.at.get(), state.stamp.into());
        self.outstanding = (outstanding.since.get(), outstanding.turn.get(), outstanding.current, outstanding.last);
        self
    }

    /// Returns the same world for both orders of the processes, which behave alike. Halves the number of worlds.
    fn sorted(mut self) -> World {
        if (self.held[0], self.messages[0]) > (self.held[1], self.messages[1]) {
            self.held.swap(0, 1);
            self.messages.swap(0, 1);
        }
        self
    }

    fn admitted(mut self, tokens: u64) -> World {
        self.excess += tokens;
        self
    }

    /// Returns every world that is reachable in one step.
    fn next(&self) -> Vec<World> {
        let mut next = Vec::new();
        if self.time < STEPS {
            next.push(World { time: self.time + 1, excess: self.excess.saturating_sub(1), ..*self });
        }
        next.extend(self.charged());
        for process in 0..2 {
            next.extend(self.spent(process));
            next.extend(self.sent(process));
            next.extend(self.delivered(process));
            // The process dies, or a message is lost.
            for (held, message) in [(Held::default(), self.messages[process]), (self.held[process], Message::None)] {
                let mut world = *self;
                (world.held[process], world.messages[process]) = (held, message);
                next.push(world);
            }
        }
        next
    }

    /// Charges all available tokens in one call, without a lease.
    fn charged(&self) -> Option<World> {
        let ((state, outstanding), now) = (self.row(), now(self.time));
        let (state, outstanding) = settle_leases(&QUOTA, &state, &outstanding, now);
        let granted = |cost: &u64| step(&QUOTA, &state, now, Ask::cost(*cost)).is_allowed();
        let cost = (1..=CAPACITY).rev().find(granted)?;
        let step = step(&QUOTA, &state, now, Ask::cost(cost));
        Some(self.stored(step.state, outstanding).admitted(cost))
    }

    fn spent(&self, process: usize) -> Option<World> {
        let Held { tokens, spent, end, .. } = self.held[process];
        let mut world = self.admitted((tokens > 0 && self.time < end).then_some(1)?);
        (world.held[process].tokens, world.held[process].spent) = (tokens - 1, spent + 1);
        Some(world)
    }

    /// Sends a request that reports the current lease, returns its unused tokens, and asks for a new lease.
    fn sent(&self, process: usize) -> Option<World> {
        let Held { id, tokens, spent, .. } = self.held[process];
        if self.messages[process] != Message::None {
            return None;
        }
        let mut world = *self;
        world.messages[process] = Message::Request { sent: self.time, id, spent, unused: tokens };
        world.held[process] = Held::default();
        Some(world)
    }

    fn delivered(&self, process: usize) -> Option<World> {
        let (mut world, now) = (*self, now(self.time));
        match self.messages[process] {
            Message::None => return None,
            Message::Request { sent, id: of, spent, unused } => {
                let (state, outstanding) = self.row();
                let report = LeaseReport { id: id(of), spent, unused };
                let granted = lease(&QUOTA, &state, &outstanding, now, &[report], 2);
                world = world.stored(granted.state, granted.outstanding);
                let id = (granted.id.since.get(), granted.id.turn.get());
                let life = (granted.life.as_micros() / STEP.as_micros()) as u64;
                let lease = Held { id, tokens: granted.tokens, spent: 0, end: sent + life };
                world.messages[process] = Message::Reply { sent, lease };
            }
            Message::Reply { lease, .. } => {
                // A process accepts a lease only if it does not already hold one.
                world.messages[process] = Message::None;
                if self.held[process] == Held::default() && lease.tokens > 0 {
                    world.held[process] = lease;
                }
            }
        }
        Some(world)
    }
}

#[test]
fn no_interleaving_of_two_processes_exceeds_the_bound() {
    let begin = World {
        time: 0,
        row: (0, 0, 0),
        outstanding: (0, 0, 0, 0),
        held: [Held::default(); 2],
        messages: [Message::None; 2],
        excess: 0,
    };
    let (mut known, mut open, mut most) = (HashSet::from([begin]), vec![begin], 0);
    while let Some(world) = open.pop() {
        for next in world.next() {
            most = most.max(next.excess);
            assert!(next.excess <= CAPACITY, "{} tokens beyond the refill: {world:?}, then {next:?}", next.excess);
            if known.insert(next.sorted()) {
                open.push(next.sorted());
            }
        }
    }
    println!("{} states, at most {most} of {CAPACITY} tokens beyond the refill", known.len());
    assert!(most == CAPACITY && known.len() > 100_000);
}
