//! Dropped at whatever await point: nothing stays behind that somebody else would miss.
//!
//! A future is polled so many times, at instants that lead it through all that can happen to it, and then dropped.
//! Before, one request has spent what there was, so that the turn under test comes after 100 ms and the one behind it
//! after 200.

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

use crate::later::Later;
use crate::queue::{MICRO, SPACED, ms};

const SEARCH: Policy = Policy::new("search", SPACED);

/// When the future is polled, once it is decided: before its turn, from that on, and after the inner service has become
/// ready.
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
/// From this poll on nobody else is with the inner service, so that the turn can be taken.
const READY: usize = 5;

/// What had happened by the time a future was dropped.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Reached {
    /// Nobody knows yet whether there is something to give back.
    Deciding,
    Waiting,
    /// The charge is for something.
    Work,
    /// The response has said that it was for nothing.
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
        let limiter = RateLimiter::new(Later::new(&clock, polls_to_decide));
        assert!(limiter.try_limit(&SEARCH, 7).await.unwrap().is_allowed());
        Trial { begin: clock.now(), clock, limiter }
    }

    /// Polls `future` so many times; whether it has answered.
    fn poll(&self, future: &mut Pin<Box<dyn Future<Output = ()> + '_>>, at: &[Duration], step: impl Fn(usize)) -> bool {
        at.iter().enumerate().any(|(i, instant)| {
            self.clock.set(self.begin + *instant);
            step(i);
            future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
        })
    }

    /// After the drop: no place is taken, no timer runs, and the next caller gets the turn that is due to them.
    async fn check(&self, reached: Reached, told: &str) {
        assert_eq!(self.limiter.waiting(), 0, "{told}: a place to wait is still taken");
        assert_eq!(self.clock.next_wake(), None, "{told}: a timer still runs");
        let kept = matches!(reached, Reached::Deciding | Reached::Work);
        let turn = if kept { ms(200) } else { ms(100) };
        let next = self.limiter.try_check_all([Charge::new(&SEARCH, 7).reserve()]).await.unwrap();
        let expected = turn.saturating_sub(self.clock.now().since(self.begin));
        assert_eq!(next.delay(), expected, "{told}: the turn of the next caller");
    }
}

/// The instants of `polls` polls, the first of them while the backend decides.
fn instants(deciding: usize, polls: usize) -> Vec<Duration> {
    std::iter::repeat_n(Duration::ZERO, deciding).chain(POLLS).take(polls).collect()
}

#[tokio::test]
async fn a_response_leaks_no_place_no_permit_and_no_turn() {
    for (deciding, refund) in (0..4).flat_map(|deciding| [(deciding, false), (deciding, true)]) {
        let mut seen = Vec::new();
        for polls in 0.. {
            let (reached, answered) = response(deciding, refund, polls).await;
            seen.push(reached);
            if answered {
                break;
            }
        }
        // The harness went through everything there is.
        assert_eq!(seen.contains(&Reached::Deciding), deciding > 0, "{seen:?}");
        assert!(seen.contains(&Reached::Waiting) && seen.contains(&Reached::Work), "{seen:?}");
        assert_eq!(seen.last(), Some(&if refund { Reached::Refunded } else { Reached::Work }));
    }
}

async fn response(deciding: usize, refund: bool, polls: usize) -> (Reached, bool) {
    let trial = Trial::new(deciding).await;
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

    // Others come in once it is decided, and have the inner service to themselves until some time after the turn.
    let others = std::cell::RefCell::new(None);
    let done = trial.poll(&mut response, &instants(deciding, polls), |i| {
        if i == deciding + 1 {
            let all = Arc::clone(&permits).try_acquire_many_owned(2);
            *others.borrow_mut() = Some(all.expect("who waits holds no permit"));
        } else if i == deciding + READY {
            others.borrow_mut().take();
        }
    });
    drop(response);
    drop(others);

    let reached = match (called.load(Ordering::Relaxed), answered.load(Ordering::Relaxed)) {
        (0, _) if deciding > 0 && polls <= deciding => Reached::Deciding,
        (0, _) => Reached::Waiting,
        (_, 1) if refund => Reached::Refunded,
        _ => Reached::Work,
    };
    let told = format!("{deciding} polls to decide, dropped after {polls}, {reached:?}");
    assert_eq!(permits.available_permits(), 2, "{told}: a permit is still taken");
    trial.check(reached, &told).await;
    (reached, done)
}

#[tokio::test]
async fn a_call_that_waits_leaks_no_place_and_no_turn() {
    for deciding in 0..4 {
        for polls in 0..=deciding + 4 {
            let trial = Trial::new(deciding).await;
            let call = trial.limiter.acquire(&SEARCH, 7).wait_up_to(5 * SECOND);
            let mut call: Pin<Box<dyn Future<Output = ()>>> = Box::pin(async move { drop(call.await.unwrap()) });
            let done = trial.poll(&mut call, &instants(deciding, polls), |_| {});
            // Its turn is the fourth instant.
            assert_eq!(done, polls == deciding + 4);
            drop(call);
            let told = format!("{deciding} polls to decide, dropped after {polls}");
            trial.check(reached(deciding, polls, done), &told).await;
        }
    }
}

#[tokio::test]
async fn a_reservation_that_is_waited_for_leaks_no_turn() {
    for deciding in 0..4 {
        for polls in 0..=deciding + 4 {
            let trial = Trial::new(deciding).await;
            let hold = trial.limiter.acquire(&SEARCH, 7).reserve_within(5 * SECOND);
            let mut call: Pin<Box<dyn Future<Output = ()>>> =
                Box::pin(async move { drop(hold.await.unwrap().wait().await.unwrap()) });
            let done = trial.poll(&mut call, &instants(deciding, polls), |_| {});
            assert_eq!(done, polls == deciding + 4);
            drop(call);
            let told = format!("{deciding} polls to decide, dropped after {polls}");
            trial.check(reached(deciding, polls, done), &told).await;
        }
    }
}

fn reached(deciding: usize, polls: usize, done: bool) -> Reached {
    match done {
        true => Reached::Work,
        false if deciding > 0 && polls <= deciding => Reached::Deciding,
        false => Reached::Waiting,
    }
}

/// Late by its own fault: the turn came while nobody polled. Nobody went on, so the charge goes back like any other.
#[tokio::test]
async fn who_leaves_after_the_turn_and_before_going_on_gives_back_what_is_left() {
    let trial = Trial::new(0).await;
    let call = trial.limiter.acquire(&SEARCH, 7).wait_up_to(5 * SECOND);
    trial.clock.set(trial.begin + ms(100) + MICRO);
    drop(call);
    trial.check(Reached::Waiting, "dropped a microsecond after its turn").await;
}
