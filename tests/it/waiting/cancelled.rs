//! Clients disconnect while their requests are waiting. Later requests take over the canceled reservations.

use std::time::Duration;

use tokio::task::JoinHandle;
use tollgate::{Charge, LimitError, MINUTE, Policy, Quota, RateLimitLayer, SECOND, key};
use tower::Layer;

use super::queue::{MICRO, Queue, SPACED, ms, run_tasks, send};

static SEARCH: Policy = Policy::new("search", SPACED);

/// Drops the response future, as a server does when the client disconnects.
async fn leave<T>(answer: JoinHandle<T>) {
    answer.abort();
    run_tasks().await;
    assert!(answer.is_finished());
}

#[tokio::test]
async fn a_new_request_gets_the_earliest_canceled_reservation() {
    let queue = Queue::new();
    let layer = RateLimitLayer::new(SEARCH.clone(), key::global()).limiter(&queue.limiter).wait_up_to(5 * SECOND);
    let service = layer.layer(queue.inner());
    let mut answers: Vec<_> = (1..=20).map(|number| send(&service, number)).collect();
    for time in [0, 100, 200, 300, 333] {
        queue.at(ms(time)).await;
    }
    for answer in answers.drain(10..).rev() {
        leave(answer).await;
    }
    assert_eq!(queue.limiter.waiting(), 6);
    answers.push(send(&service, 21));
    run_tasks().await;
    for slot in 4..10 {
        queue.at(ms(100 * slot)).await;
    }
    // Request 21 proceeds exactly when request 11 would have been due, the earliest of the canceled ones.
    queue.at(ms(1000) - MICRO).await;
    assert_eq!(queue.passed().len(), 10);
    queue.at(ms(1000)).await;
    assert_eq!(queue.passed()[10..], [(21, ms(1000))]);
}

/// Clients in the middle of the queue disconnect. Later requests move up, and the last reservations are refunded.
#[tokio::test]
async fn later_requests_move_up_when_earlier_requests_are_canceled() {
    let queue = Queue::new();
    let layer = RateLimitLayer::new(SEARCH.clone(), key::global()).limiter(&queue.limiter).wait_up_to(5 * SECOND);
    let service = layer.layer(queue.inner());
    let mut answers: Vec<_> = (1..=20).map(|number| send(&service, number)).collect();
    queue.at(Duration::ZERO).await;
    for answer in answers.drain(5..15) {
        leave(answer).await;
    }
    assert_eq!(queue.limiter.waiting(), 9);
    answers.push(send(&service, 21));
    queue.at(Duration::ZERO).await;
    for slot in 1..20 {
        queue.at(ms(100 * slot)).await;
    }
    let numbers: Vec<_> = (1..=5).chain(16..=21).collect();
    let expected: Vec<_> = numbers.into_iter().zip(0..).map(|(number, slot)| (number, ms(100 * slot))).collect();
    assert_eq!(queue.passed(), expected);
}

/// A held reservation keeps its due time, because its holder already knows the delay.
#[tokio::test]
async fn reservations_canceled_ahead_of_a_held_reservation_are_forfeited() {
    let queue = Queue::new();
    let hold = || queue.limiter.hold_all([Charge::new(&SEARCH, 7).reserve()]);
    hold().await.unwrap().into_receipt();
    let mut reservations = Vec::new();
    for _ in 0..10 {
        reservations.push(hold().await.unwrap());
    }
    reservations.drain(..9).for_each(drop);
    assert_eq!(hold().await.unwrap().delay(), ms(1100));
    drop(reservations);
    assert_eq!(hold().await.unwrap().delay(), ms(1000));
}

#[tokio::test]
async fn a_canceled_reservation_passes_to_a_request_with_the_same_cost() {
    let queue = Queue::new();
    let layer = RateLimitLayer::new(SEARCH.clone(), |_: &http::request::Parts| 7).limiter(&queue.limiter);
    let service = |cost| layer.clone().cost(move |_| cost).wait_up_to(50 * SECOND).layer(queue.inner());
    let mut answers: Vec<_> =
        [(1, 1), (2, 1), (3, 30), (4, 1)].map(|(number, cost)| send(&service(cost), number)).into();
    queue.at(Duration::ZERO).await;
    leave(answers.remove(1)).await;
    for slot in 1..=40 {
        queue.at(ms(100 * slot)).await;
    }
    // Request 4 gets the due time of request 2. Request 3 keeps its due time.
    assert_eq!(queue.passed(), [(1, ms(0)), (4, ms(100)), (3, ms(3100))]);
}

#[tokio::test]
async fn a_held_reservation_can_be_canceled_kept_or_dropped() {
    let queue = Queue::new();
    let hold = || queue.limiter.hold_all([Charge::new(&SEARCH, 7).reserve()]);
    let first = hold().await.unwrap();
    assert!(first.delay().is_zero());
    first.into_receipt();

    let cancelled = hold().await.unwrap();
    assert_eq!(cancelled.delay(), ms(100));
    cancelled.cancel().await.unwrap();
    let dropped = hold().await.unwrap();
    assert_eq!(dropped.delay(), ms(100));
    drop(dropped);
    // `cancel()` takes effect immediately, even if its future is dropped.
    let cancelled = hold().await.unwrap();
    assert_eq!(cancelled.delay(), ms(100));
    drop(cancelled.cancel());
    let kept = hold().await.unwrap();
    assert_eq!(kept.delay(), ms(100));
    drop(kept.into_receipt());
    assert_eq!(hold().await.unwrap().delay(), ms(200));
}

#[tokio::test]
async fn dropping_a_hold_refunds_all_of_its_charges() {
    static DAILY: Policy = Policy::new("daily", Quota::fixed_window(100, MINUTE));
    let queue = Queue::new();
    queue.limiter.limit(&SEARCH, 7).await.unwrap();
    let charges = || [Charge::new(&SEARCH, 7).reserve(), Charge::new(&DAILY, 7).cost(30)];
    let held = queue.limiter.hold_all(charges()).await.unwrap();
    assert_eq!((held.delay(), held.decisions().iter().count()), (ms(100), 2));
    assert_eq!(queue.limiter.remaining(&DAILY, 7).await.unwrap(), 70);
    drop(held);
    assert_eq!(queue.limiter.remaining(&DAILY, 7).await.unwrap(), 100);
    let again = queue.limiter.hold_all(charges()).await.unwrap();
    assert_eq!(again.delay(), ms(100));

    let refused = queue.limiter.hold_all([Charge::new(&SEARCH, 7).reserve(), Charge::new(&DAILY, 7).cost(71)]).await;
    assert!(matches!(refused, Err(LimitError::Denied(_))), "{refused:?}");
    assert_eq!(queue.limiter.try_check_all([Charge::new(&SEARCH, 7).reserve()]).await.unwrap().delay(), ms(200));
}
