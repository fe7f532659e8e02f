//! Futures that are dropped at any await point leak no permits, waiters or reservations.
//!
//! Most tests repeat a call, and drop its future after a different number of polls each time, so that every state is
//! covered. An earlier request has spent the capacity. The dropped request is therefore due after 100 ms, and the next
//! request is due after 200 ms.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use http::{Request, Response};
use tokio::sync::Semaphore;
use tollgate::algorithm::Micros;
use tollgate::{
    Charge, OnResponse, Policy, RateLimitLayer, RateLimiter, SECOND,
    clock::{Clock, ManualClock},
};
use tower::limit::ConcurrencyLimit;
use tower::{Layer, Service, ServiceExt, service_fn};

use super::queue::{MICRO, SPACED, ms};
use crate::support::backends::DelayedBackend;

const SEARCH: Policy = Policy::new("search", SPACED);

/// The times of the polls from the decision on: some before the due time, some after it, and some after the inner
/// service is ready.
const POLLS: [Duration; 11] = [
    ms(0),
    ms(40),
    Duration::from_micros(99_999),
    ms(100),
    ms(110),
    ms(120),
    ms(130),
    ms(140),
    ms(150),
    ms(160),
    ms(170),
];
/// The index in `POLLS` of the first poll at which the inner service is ready.
const READY: usize = 5;

/// The state in which a future was dropped.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Reached {
    /// The limiter has not yet received the decision, so it cannot refund the charge.
    Deciding,
    Waiting,
    Continued,
    Refunded,
}

struct Trial {
    clock: ManualClock,
    limiter: RateLimiter,
    begin: Micros,
}

impl Trial {
    async fn new(polls_to_decide: usize) -> Trial {
        let clock = ManualClock::new();
        let limiter = RateLimiter::new(DelayedBackend::new(&clock, polls_to_decide));
        assert!(limiter.try_limit(&SEARCH, 7).await.unwrap().is_allowed());
        Trial { begin: clock.now(), clock, limiter }
    }

    fn poll(&self, future: &mut Pin<Box<dyn Future<Output = ()> + '_>>, at: &[Duration], step: impl Fn(usize)) -> bool {
        at.iter().enumerate().any(|(i, instant)| {
            self.clock.set(self.begin + *instant);
            step(i);
            future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
        })
    }

    /// Asserts that no waiter and no timer is left, and that the next caller gets the right due time.
    async fn check(&self, reached: Reached, context: &str) {
        assert_eq!(self.limiter.waiting(), 0, "{context}: a waiter is still counted");
        assert_eq!(self.clock.next_wake(), None, "{context}: a timer is still set");
        let is_charged = matches!(reached, Reached::Deciding | Reached::Continued);
        let due = if is_charged { ms(200) } else { ms(100) };
        let next = self.limiter.try_check_all([Charge::new(&SEARCH, 7).reserve()]).await.unwrap();
        let expected = due.saturating_sub(self.clock.now().since(self.begin));
        assert_eq!(next.delay(), expected, "{context}: wrong delay for the next caller");
    }
}

/// Returns the times of the first `polls` polls. The decision is pending during the first `polls_to_decide` of them.
fn instants(polls_to_decide: usize, polls: usize) -> Vec<Duration> {
    std::iter::repeat_n(Duration::ZERO, polls_to_decide).chain(POLLS).take(polls).collect()
}

#[tokio::test]
async fn a_dropped_response_future_leaks_no_waiter_permit_or_reservation() {
    for (polls_to_decide, refund) in
        (0..4).flat_map(|polls_to_decide| [(polls_to_decide, false), (polls_to_decide, true)])
    {
        let mut seen = Vec::new();
        for polls in 0.. {
            let (reached, answered) = response(polls_to_decide, refund, polls).await;
            seen.push(reached);
            if answered {
                break;
            }
        }
        assert_eq!(seen.contains(&Reached::Deciding), polls_to_decide > 0, "{seen:?}");
        assert!(seen.contains(&Reached::Waiting) && seen.contains(&Reached::Continued), "{seen:?}");
        assert_eq!(seen.last(), Some(&if refund { Reached::Refunded } else { Reached::Continued }));
    }
}

async fn response(polls_to_decide: usize, refund: bool, polls: usize) -> (Reached, bool) {
    let trial = Trial::new(polls_to_decide).await;
    let (called, answered) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (calls, answers) = (Arc::clone(&called), Arc::clone(&answered));
    let inner = service_fn(move |_: Request<()>| {
        calls.fetch_add(1, Ordering::Relaxed);
        let answers = Arc::clone(&answers);
        async move {
            tokio::task::yield_now().await;
            answers.fetch_add(1, Ordering::Relaxed);
            Ok::<_, Infallible>(Response::new(()))
        }
    });
    let permits = Arc::new(Semaphore::new(2));
    let limited = ConcurrencyLimit::with_semaphore(inner, Arc::clone(&permits));
    let layer = RateLimitLayer::new(SEARCH, |_: &http::request::Parts| 7)
        .limiter(&trial.limiter)
        .wait_up_to(5 * SECOND)
        .on_response(move |_| if refund { OnResponse::Refund } else { OnResponse::Keep });
    let mut service = layer.layer(limited);
    let response = service.ready().await.unwrap().call(Request::new(()));
    let mut response: Pin<Box<dyn Future<Output = ()> + '_>> = Box::pin(async move {
        let Ok(_) = response.await;
    });

    // From the decision until shortly after the due time, other requests hold all permits of the inner service.
    let others = std::cell::RefCell::new(None);
    let done = trial.poll(&mut response, &instants(polls_to_decide, polls), |i| {
        if i == polls_to_decide + 1 {
            let all = Arc::clone(&permits).try_acquire_many_owned(2);
            *others.borrow_mut() = Some(all.expect("a waiting request must not hold a permit"));
        } else if i == polls_to_decide + READY {
            others.borrow_mut().take();
        }
    });
    drop(response);
    drop(others);

    let reached = match (called.load(Ordering::Relaxed), answered.load(Ordering::Relaxed)) {
        (0, _) if polls_to_decide > 0 && polls <= polls_to_decide => Reached::Deciding,
        (0, _) => Reached::Waiting,
        (_, 1) if refund => Reached::Refunded,
        _ => Reached::Continued,
    };
    let context = format!("{polls_to_decide} polls to decide, dropped after {polls} polls, {reached:?}");
    assert_eq!(permits.available_permits(), 2, "{context}: a permit is still held");
    trial.check(reached, &context).await;
    (reached, done)
}

#[tokio::test]
async fn a_dropped_waiting_call_leaks_no_waiter_or_reservation() {
    for polls_to_decide in 0..4 {
        for polls in 0..=polls_to_decide + 4 {
            let trial = Trial::new(polls_to_decide).await;
            let call = trial.limiter.acquire(&SEARCH, 7).wait_up_to(5 * SECOND);
            let mut call: Pin<Box<dyn Future<Output = ()>>> = Box::pin(async move { drop(call.await.unwrap()) });
            let done = trial.poll(&mut call, &instants(polls_to_decide, polls), |_| {});
            // The poll at `POLLS[3]`, which is the call's due time, completes the call.
            assert_eq!(done, polls == polls_to_decide + 4);
            drop(call);
            let context = format!("{polls_to_decide} polls to decide, dropped after {polls} polls");
            trial.check(reached(polls_to_decide, polls, done), &context).await;
        }
    }
}

#[tokio::test]
async fn a_reservation_dropped_while_waiting_is_refunded() {
    for polls_to_decide in 0..4 {
        for polls in 0..=polls_to_decide + 4 {
            let trial = Trial::new(polls_to_decide).await;
            let hold = trial.limiter.acquire(&SEARCH, 7).reserve_within(5 * SECOND);
            let mut call: Pin<Box<dyn Future<Output = ()>>> =
                Box::pin(async move { drop(hold.await.unwrap().wait().await.unwrap()) });
            let done = trial.poll(&mut call, &instants(polls_to_decide, polls), |_| {});
            assert_eq!(done, polls == polls_to_decide + 4);
            drop(call);
            let context = format!("{polls_to_decide} polls to decide, dropped after {polls} polls");
            trial.check(reached(polls_to_decide, polls, done), &context).await;
        }
    }
}

fn reached(polls_to_decide: usize, polls: usize, done: bool) -> Reached {
    match done {
        true => Reached::Continued,
        false if polls_to_decide > 0 && polls <= polls_to_decide => Reached::Deciding,
        false => Reached::Waiting,
    }
}

#[tokio::test]
async fn an_unpolled_call_dropped_after_its_due_time_is_refunded() {
    let trial = Trial::new(0).await;
    let call = trial.limiter.acquire(&SEARCH, 7).wait_up_to(5 * SECOND);
    trial.clock.set(trial.begin + ms(100) + MICRO);
    drop(call);
    trial.check(Reached::Waiting, "dropped a microsecond after its due time").await;
}
