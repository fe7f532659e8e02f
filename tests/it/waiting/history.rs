//! Runs a history of arrivals and departures through the crate's public waiting APIs and through the model.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use http::Response;
use http::request::Parts;
use proptest::prelude::*;
use tollgate::algorithm::{Ask, Micros};
use tollgate::{
    MemoryBackend, Policy, Quota, RateLimitLayer, RateLimiter,
    clock::{Clock, ManualClock},
};
use tower::{Layer, Service, service_fn};

use super::queue::{number, request};
use crate::support::admitted::{AdmittedCharge, check};
use crate::support::generators::Raw;
use crate::support::model::{Answer, Model, Row};

pub(crate) struct History {
    quota: Quota,
    policy: Policy,
    clock: ManualClock,
    limiter: RateLimiter,
    model: Model,
    charges: Vec<Granted>,
    waiters: Vec<Waiter>,
    /// The ids of the woken waiters, in the order in which they were woken.
    woken: Arc<Mutex<Vec<usize>>>,
}

struct Granted {
    at: i128,
    turn: AdmittedCharge,
    fate: Fate,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Kept,
    /// The charge was canceled while it was the last reservation, so the row is as if the charge had never been made.
    Vanished,
    /// The charge was canceled after later reservations had been granted, so its tokens are lost.
    Forfeited,
}

/// A waiting request. Its future returns whether the request was allowed.
struct Waiter {
    /// The index of the charge that was made on arrival.
    id: usize,
    /// The index of the charge whose due time currently applies. It can change when an earlier waiter leaves.
    number: usize,
    due: Micros,
    future: Pin<Box<dyn Future<Output = bool>>>,
    waker: Waker,
}

struct WakeRecorder(usize, Arc<Mutex<Vec<usize>>>);

impl Wake for WakeRecorder {
    fn wake(self: Arc<Self>) {
        self.1.lock().unwrap().push(self.0);
    }
}

impl History {
    pub(crate) fn new(quota: Quota, begin: Micros) -> History {
        let clock = ManualClock::at(begin);
        let limiter = RateLimiter::new(MemoryBackend::builder().clock(clock.clone()).build());
        History {
            quota,
            policy: Policy::new("any", quota),
            clock,
            limiter,
            model: Model::of(&quota),
            charges: Vec::new(),
            waiters: Vec::new(),
            woken: Arc::default(),
        }
    }

    pub(crate) fn play(mut self, raws: &[Raw]) -> Result<(), TestCaseError> {
        let mut promised = self.clock.now();
        for raw in raws {
            self.advance_to(raw.moved(&self.quota, self.clock.now(), promised))?;
            let (action, pick) = raw.what;
            match self.waiters.len() {
                waiting if action > 7 && waiting > 0 => self.leave(match action {
                    8 => waiting - 1,
                    9 => 0,
                    _ => pick as usize % waiting,
                })?,
                _ => self.arrive(raw)?,
            }
            promised = self.waiters.last().map_or(promised, |waiter| waiter.due);
        }
        while let Some(wake) = self.clock.next_wake() {
            self.advance_to(wake)?;
        }
        prop_assert_eq!((self.waiters.len(), self.limiter.waiting()), (0, 0));
        let turns: Vec<AdmittedCharge> = self.charges.iter().map(|charge| charge.turn).collect();
        if let Err(text) = check(&self.model, &turns) {
            prop_assert!(false, "{}, in {:?}", text, turns);
        }
        Ok(())
    }

    /// Makes a request through one of the public waiting APIs.
    fn arrive(&mut self, raw: &Raw) -> Result<(), TestCaseError> {
        let now = self.clock.now();
        let tokens = raw.tokens(&self.quota);
        let wait = raw.ask(&self.quota).max_wait().unwrap_or(Duration::ZERO);
        let number = self.charges.len();
        let mut future = self.ask(raw.what.1, tokens, wait);
        let waker = Waker::from(Arc::new(WakeRecorder(number, Arc::clone(&self.woken))));
        let answer = future.as_mut().poll(&mut Context::from_waker(&waker));

        let at = i128::from(now.get());
        let ask = Ask::cost(tokens).wait_up_to(wait);
        let delay = match (self.model.answer(&self.row(|fate| fate != Fate::Vanished), at, &ask), answer) {
            (Answer::Allow, Poll::Ready(true)) => 0,
            (Answer::Reserve(delay), Poll::Pending) => delay,
            (Answer::Deny(_), Poll::Ready(false)) => {
                let without_departures = self.model.answer(&self.row(|_| true), at, &ask);
                prop_assert!(
                    matches!(without_departures, Answer::Deny(_)),
                    "denied only because other requests had left the queue"
                );
                return Ok(());
            }
            (model, answer) => {
                prop_assert!(false, "{:?} at {:?}: {:?} instead of {:?}", ask, now, answer, model);
                return Ok(());
            }
        };
        // The delay must lie between two bounds: the delay if the requests that left had never arrived, and the delay
        // if they had stayed.
        let (latest, earliest) = (self.row(|_| true), self.row(|fate| fate == Fate::Kept));
        prop_assert!(delay <= self.delay(&latest, at, tokens), "a departure delayed the request");
        prop_assert!(delay >= self.delay(&earliest, at, tokens), "a departure refunded more than its charge");

        let (cost, due) = (i128::from(tokens), at + delay);
        let turn = AdmittedCharge { due, cost, used: cost, reserved: delay > 0 };
        self.charges.push(Granted { at, turn, fate: Fate::Kept });
        if delay > 0 {
            self.waiters.push(Waiter { id: number, number, due: Micros::new(due as u64), future, waker });
            // A request with a cost of 0 waits only until the debt is repaid. It can be due before earlier waiters if a
            // refund has reduced the debt.
            self.waiters.sort_by_key(|waiter| (waiter.due, waiter.id));
        }
        self.check_waiters()
    }

    fn ask(&self, api: u64, tokens: u64, wait: Duration) -> Pin<Box<dyn Future<Output = bool>>> {
        let call = self.limiter.acquire(&self.policy, 7).cost(tokens);
        match api % 3 {
            0 => {
                let waiting = call.wait_up_to(wait);
                Box::pin(async move { waiting.await.is_ok() })
            }
            1 => {
                let held = call.reserve_within(wait);
                Box::pin(async move {
                    let Ok(held) = held.await else { return false };
                    held.wait().await.unwrap();
                    true
                })
            }
            _ => {
                let inner = service_fn(|_| std::future::ready(Ok::<_, ()>(Response::new(()))));
                let layer = RateLimitLayer::new(self.policy.clone(), |_: &Parts| 7).limiter(&self.limiter);
                let response = layer.cost(number).wait_up_to(wait).layer(inner).call(request(tokens));
                Box::pin(async move { response.await.expect("expected a response").status() == 200 })
            }
        }
    }

    /// Makes a waiter leave. Each later waiter with the same cost takes over its predecessor's reservation. The last of
    /// these reservations is canceled.
    fn leave(&mut self, index: usize) -> Result<(), TestCaseError> {
        let Waiter { mut number, mut due, future, .. } = self.waiters.remove(index);
        drop(future);
        let mut moved = Vec::new();
        for behind in &mut self.waiters[index..] {
            if self.charges[behind.number].turn.cost == self.charges[number].turn.cost {
                std::mem::swap(&mut behind.number, &mut number);
                std::mem::swap(&mut behind.due, &mut due);
                moved.push(behind.id);
            }
        }
        prop_assert_eq!(std::mem::take(&mut *self.woken.lock().unwrap()), &moved[..]);
        for Waiter { future, waker, .. } in self.waiters.iter_mut().filter(|waiter| moved.contains(&waiter.id)) {
            prop_assert!(
                future.as_mut().poll(&mut Context::from_waker(waker)).is_pending(),
                "a waiter continued before its due time"
            );
        }
        // Waiters due at the same instant continue in order of arrival.
        self.waiters.sort_by_key(|waiter| (waiter.due, waiter.id));
        let behind = |charge: &Granted| charge.fate != Fate::Vanished && charge.turn.cost > 0;
        let last = !self.charges[number + 1..].iter().any(behind);
        self.charges[number].fate = if last { Fate::Vanished } else { Fate::Forfeited };
        self.charges[number].turn.used = 0;
        self.check_waiters()
    }

    /// Advances the clock, and checks that the waiters continue in order and exactly at their due times.
    fn advance_to(&mut self, until: Micros) -> Result<(), TestCaseError> {
        while let Some(wake) = self.clock.next_wake().filter(|wake| *wake <= until) {
            let before = Micros::new(wake.get() - 1);
            if before > self.clock.now() {
                self.clock.set(before);
            }
            for Waiter { future, waker, .. } in &mut self.waiters {
                prop_assert!(
                    future.as_mut().poll(&mut Context::from_waker(waker)).is_pending(),
                    "a waiter continued before any waiter was due"
                );
            }
            self.clock.set(wake);
            let (due, waiting): (Vec<_>, Vec<_>) = self.waiters.drain(..).partition(|waiter| waiter.due <= wake);
            let numbers: Vec<usize> = due.iter().map(|waiter| waiter.id).collect();
            let mut woken = std::mem::take(&mut *self.woken.lock().unwrap());
            if due.iter().any(|waiter| waiter.id != waiter.number) {
                // A waiter that moved up can be woken after other waiters that are due at the same instant.
                woken.sort_unstable();
                prop_assert!(woken.iter().eq(numbers.iter().collect::<std::collections::BTreeSet<_>>()));
            } else {
                prop_assert_eq!(woken, numbers);
            }
            for Waiter { mut future, waker, due, .. } in due {
                prop_assert_eq!(due, wake);
                prop_assert_eq!(future.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Ready(true));
            }
            self.waiters = waiting;
            self.check_waiters()?;
        }
        self.clock.set(until);
        Ok(())
    }

    /// Asserts that the clock's next timer is set to the earliest due time.
    fn check_waiters(&self) -> Result<(), TestCaseError> {
        prop_assert_eq!(self.clock.next_wake(), self.waiters.iter().map(|waiter| waiter.due).min());
        Ok(())
    }

    /// Returns the row that the model computes from only the charges whose fate satisfies `counts`.
    fn row(&self, counts: impl Fn(Fate) -> bool) -> Row {
        let charges = self.charges.iter().filter(|charge| counts(charge.fate));
        charges.fold(Row::default(), |row, charge| self.model.charged(&row, charge.at, charge.turn.cost as u64))
    }

    fn delay(&self, row: &Row, at: i128, tokens: u64) -> i128 {
        let over = self.model.over(row, at, i128::from(tokens), self.model.capacity);
        if over > 0 { self.model.wait(row, at, tokens) } else { 0 }
    }
}
