//! Tests that compare the waiting queues with a simple model, and count the wakeups caused by ten thousand departures.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};

use proptest::prelude::*;

use super::*;
use crate::algorithm::{MINUTE, Step, Verdict};
use crate::policy::{ChargedQuota, Part, PolicyName};

const NOW: Micros = Micros::new(1_700_000_000_000_000);

/// Creates a reservation due after `wait` microseconds. `spent` distinguishes reservations with equal due times.
fn reservation(key: u128, cost: u64, wait: u64, spent: usize) -> Decisions {
    let quota = Quota::token_bucket(1, MINUTE).capacity(1).unlimited_reservations();
    let state = crate::algorithm::State { spent: spent as f64, at: NOW, ..Default::default() };
    let step = Step { verdict: Verdict::Reserve { wait: std::time::Duration::from_micros(wait) }, state, now: NOW };
    let (policy, key) = (PolicyName::new("api"), Digest::from_bits(key));
    Decision::new(ChargedQuota { policy, row_key: key, quota, cost, window: 0, part: Part::WHOLE }, step, true).into()
}

fn identity(decision: &Decision) -> (u64, u64, usize) {
    (decision.cost(), decision.due().get() - NOW.get(), decision.step().state.spent as usize)
}

/// A model of a row's queues. When a caller leaves, the callers behind it with the same cost move up one by one.
#[derive(Default)]
struct Model {
    queue: Vec<Modelled>,
}

struct Modelled {
    id: usize,
    reservation: (u64, u64, usize),
    moved: bool,
}

impl Model {
    fn join(&mut self, id: usize, reservation: (u64, u64, usize)) {
        let place = self.queue.partition_point(|waiter| waiter.reservation.1 <= reservation.1);
        self.queue.insert(place, Modelled { id, reservation, moved: false });
    }

    fn moved(&mut self, id: usize) -> Option<(u64, u64, usize)> {
        let waiter = self.queue.iter_mut().find(|waiter| waiter.id == id)?;
        std::mem::take(&mut waiter.moved).then_some(waiter.reservation)
    }

    fn complete(&mut self, id: usize) -> Option<(u64, u64, usize)> {
        let place = self.queue.iter().position(|waiter| waiter.id == id)?;
        Some(self.queue.remove(place).reservation)
    }

    /// Returns the reservation that no caller needs anymore, and the callers that must be woken.
    fn leave(&mut self, id: usize) -> Option<((u64, u64, usize), Vec<usize>)> {
        let place = self.queue.iter().position(|waiter| waiter.id == id)?;
        let mut left = self.queue.remove(place).reservation;
        let mut woken = Vec::new();
        for behind in &mut self.queue[place..] {
            if behind.reservation.0 == left.0 {
                std::mem::swap(&mut behind.reservation, &mut left);
                if !std::mem::replace(&mut behind.moved, true) {
                    woken.push(behind.id);
                }
            }
        }
        self.queue.sort_by_key(|waiter| (waiter.reservation.1, waiter.id));
        Some((left, woken))
    }
}

struct WakeLog(usize, Arc<Mutex<Vec<usize>>>);

impl Wake for WakeLog {
    fn wake(self: Arc<Self>) {
        self.1.lock().unwrap().push(self.0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn any_sequence_of_operations_matches_the_model(
        acts in prop::collection::vec((0u8..10, any::<u16>(), 0u64..3, 0u64..12), 0..120),
        spread in prop::sample::select(vec![1u64, 3, 1000]),
    ) {
        let (queues, mut model) = (Queues::default(), Model::default());
        let woken = Arc::new(Mutex::new(Vec::new()));
        let mut tickets = Vec::new();
        for (id, (act, pick, cost, wait)) in acts.into_iter().enumerate() {
            let waker = Waker::from(Arc::new(WakeLog(id, Arc::clone(&woken))));
            if act < 5 || tickets.is_empty() {
                // Later reservations tend to have later due times. Some due times are equal.
                let reservation = reservation(7, cost, 1 + (id as u64 * spread / 4) + wait, id);
                model.join(id, identity(reservation.only().unwrap()));
                tickets.push((id, queues.join(&reservation, &waker).unwrap()));
                continue;
            }
            let index = usize::from(pick) % tickets.len();
            let waiter = tickets[index].0;
            match act {
                5 | 6 => {
                    let waker = Waker::from(Arc::new(WakeLog(waiter, Arc::clone(&woken))));
                    prop_assert_eq!(queues.moved(&tickets[index].1, &waker).as_ref().map(identity), model.moved(waiter));
                }
                7 => {
                    let (id, ticket) = tickets.remove(index);
                    prop_assert_eq!(queues.complete(&ticket).as_ref().map(identity), model.complete(id));
                }
                _ => {
                    let (id, ticket) = tickets.remove(index);
                    let (left, wakes) = model.leave(id).unwrap();
                    prop_assert_eq!(queues.leave(&ticket).as_ref().map(identity), Some(left));
                    prop_assert_eq!(std::mem::take(&mut *woken.lock().unwrap()), wakes);
                }
            }
        }
        for (id, ticket) in tickets {
            prop_assert_eq!(queues.complete(&ticket).as_ref().map(identity), model.complete(id));
        }
        prop_assert_eq!(queues.0.len(), 0);
    }
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Regression: each departure woke all callers behind it, which caused 50 million wakeups for 10,000 departures.
#[test]
fn ten_thousand_departures_wake_each_waiter_at_most_once() {
    const MANY: usize = 10_000;
    for first in [0, MANY / 2, MANY - 1] {
        let (queues, wakes) = (Queues::default(), Arc::new(Wakes::default()));
        let waker = Waker::from(Arc::clone(&wakes));
        let join = |number| queues.join(&reservation(7, 1, 1 + number as u64, number), &waker).unwrap();
        let tickets: Vec<Ticket> = (0..MANY).map(join).collect();
        for (left, index) in (first..MANY).chain(0..first).enumerate() {
            let last = queues.leave(&tickets[index]).unwrap();
            assert_eq!(identity(&last).2, MANY - 1 - left, "the last reservation is given back");
        }
        assert!(wakes.0.load(Ordering::Relaxed) < MANY);
        assert_eq!(queues.0.len(), 0);
    }
}

#[test]
fn woken_callers_are_not_woken_again_until_they_poll() {
    let (queues, woken) = (Queues::default(), Arc::new(Mutex::new(Vec::new())));
    let waker = |number| Waker::from(Arc::new(WakeLog(number, Arc::clone(&woken))));
    let join = |number: usize| queues.join(&reservation(7, 1, 1 + number as u64, number), &waker(number)).unwrap();
    let tickets: Vec<Ticket> = (0..100).map(join).collect();
    drop(queues.leave(&tickets[50]).unwrap());
    assert_eq!(std::mem::take(&mut *woken.lock().unwrap()), (51..100).collect::<Vec<_>>());
    for number in [3, 60, 77, 98] {
        let reservation = queues.moved(&tickets[number], &waker(number));
        assert_eq!(reservation.map(|reservation| identity(&reservation).2), (number > 50).then(|| number - 1));
    }
    drop(queues.leave(&tickets[55]).unwrap());
    assert_eq!(std::mem::take(&mut *woken.lock().unwrap()), [60, 77, 98]);
    drop(queues.leave(&tickets[0]).unwrap());
    assert_eq!(std::mem::take(&mut *woken.lock().unwrap()), (1..50).collect::<Vec<_>>());
    // Three of the callers ahead of caller 99 have left.
    assert_eq!(queues.moved(&tickets[99], &waker(99)).map(|reservation| identity(&reservation).2), Some(96));
}

#[test]
fn reservations_are_not_passed_on_to_callers_under_other_policies() {
    let queues = Queues::default();
    let [one, other] = ["8yn0iYCKYHlIj4-BwPqk", "GReLUrM4wMqfg9yzV3KQ"].map(|policy| {
        let reservation = reservation(7, 1, 1, 0);
        let reservation = reservation.only().unwrap();
        let of = ChargedQuota { policy: PolicyName::new(policy), ..reservation.of().clone() };
        queues.join(&Decision::new(of, *reservation.step(), true).into(), Waker::noop()).unwrap()
    });
    assert_eq!(queues.leave(&one).unwrap().policy().as_str(), "8yn0iYCKYHlIj4-BwPqk");
    assert!(queues.moved(&other, Waker::noop()).is_none());
}
