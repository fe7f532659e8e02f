//! Turns come when the quota says: one after the other, in the order in which they were asked for.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http::{Request, Response};
use tollgate::{MINUTE, Policy, Quota, RateLimitLayer, SECOND, key};
use tower::{Layer, service_fn};

use crate::queue::{MICRO, Queue, SPACED, ms, number, send};

const SEARCH: Policy = Policy::new("search", SPACED);

#[tokio::test]
async fn twenty_at_once_go_on_one_by_one_a_tenth_of_a_second_apart() {
    let queue = Queue::new();
    let layer = RateLimitLayer::new(SEARCH, key::global()).limiter(&queue.limiter).wait_up_to(5 * SECOND);
    let service = layer.layer(queue.inner());
    let answers: Vec<_> = (0..20).map(|number| send(&service, number)).collect();
    queue.at(Duration::ZERO).await;
    assert_eq!((queue.passed(), queue.limiter.waiting()), (vec![(0, ms(0))], 19));
    for turn in 1..20 {
        let due = ms(100 * turn);
        queue.at(due - MICRO).await;
        assert_eq!(queue.passed().len() as u64, turn, "before the turn of {turn}");
        queue.at(due).await;
        assert_eq!(queue.passed()[turn as usize..], [(turn, due)]);
    }
    for answer in answers {
        assert_eq!(answer.await.unwrap().unwrap(), 200);
    }
    assert_eq!(queue.limiter.waiting(), 0);
}

#[tokio::test]
async fn a_window_lets_them_in_by_the_boundary_in_their_order() {
    // The clock begins at a whole second, 700 ms before a boundary.
    const BATCHES: Policy = Policy::new("batches", Quota::fixed_window(4, SECOND).start(ms(700)).max_reserved(16));
    let queue = Queue::new();
    let layer = RateLimitLayer::new(BATCHES, key::global()).limiter(&queue.limiter).wait_up_to(5 * SECOND);
    let service = layer.layer(queue.inner());
    let answers: Vec<_> = (0..20).map(|number| send(&service, number)).collect();
    queue.at(Duration::ZERO).await;
    let mut expected: Vec<_> = (0..4).map(|number| (number, ms(0))).collect();
    assert_eq!(queue.passed(), expected);
    for batch in 1..5 {
        let due = ms(1000 * batch - 300);
        queue.at(due - MICRO).await;
        assert_eq!(queue.passed(), expected);
        queue.at(due).await;
        expected.extend((4 * batch..4 * batch + 4).map(|number| (number, due)));
        assert_eq!(queue.passed(), expected);
    }
    for answer in answers {
        assert_eq!(answer.await.unwrap().unwrap(), 200);
    }
}

/// Here the clock is the machine's and the timer the runtime's: nobody may be early by either.
#[tokio::test]
async fn in_real_time_they_go_on_a_tenth_of_a_second_apart_and_never_early() {
    let passed = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&passed);
    let inner = service_fn(move |request: Request<u64>| {
        noted.lock().unwrap().push((request.into_body(), Instant::now()));
        std::future::ready(Ok::<_, Infallible>(Response::new(())))
    });
    let service = RateLimitLayer::new(SEARCH, key::global()).wait_up_to(5 * SECOND).layer(inner);
    let begin = Instant::now();
    let answers: Vec<_> = (0..20).map(|number| send(&service, number)).collect();
    for answer in answers {
        assert_eq!(answer.await.unwrap().unwrap(), 200);
    }
    let passed = passed.lock().unwrap();
    assert_eq!(passed.iter().map(|(number, _)| *number).collect::<Vec<_>>(), (0..20).collect::<Vec<_>>());
    for (number, instant) in passed.iter() {
        let after = instant.duration_since(begin);
        // Two clocks: the limiter's follows the system's, half a millisecond a second at most.
        assert!(after + ms(2) >= ms(100 * number), "request {number} went on after {after:?}");
        // Late is the machine's business. By seconds would be ours.
        assert!(after < ms(100 * number) + 10 * SECOND, "request {number} went on after {after:?}");
    }
}

/// Those behind it wait for what it takes; those that came later do not get in before it, however small they are.
#[tokio::test]
async fn a_large_request_amid_small_ones_goes_on_when_promised() {
    const PAGES: Policy = Policy::new("pages", Quota::token_bucket(100, SECOND).capacity(50).unlimited_reservations());
    let queue = Queue::new();
    let layer = RateLimitLayer::new(PAGES, key::global()).limiter(&queue.limiter).wait_up_to(MINUTE);
    // Request 1000 is the large one.
    let service =
        layer.cost(|req: &http::request::Parts| if number(req) == 1000 { 50 } else { 1 }).layer(queue.inner());
    // Twice as many as there are tokens for: 100 at once, then two for each token that is paid back.
    let mut answers: Vec<_> = (0..100).map(|number| send(&service, number)).collect();
    answers.push(send(&service, 1000));
    queue.at(Duration::ZERO).await;
    // 50 went on at once, 50 wait for half a second together; then come its own fifty.
    let promised = ms(1000);
    for tick in 1..=100 {
        answers.extend([send(&service, 1000 + 2 * tick), send(&service, 1001 + 2 * tick)]);
        queue.at(ms(10 * tick) - MICRO).await;
        queue.at(ms(10 * tick)).await;
    }
    let passed = queue.passed();
    assert_eq!(passed.iter().find(|(number, _)| *number == 1000), Some(&(1000, promised)));
    assert!(passed.iter().all(|(number, _)| *number <= 1000), "nobody who came later went before it: {passed:?}");
    // And the stream goes on behind it, in its order.
    for tick in 101..=300 {
        queue.at(ms(10 * tick)).await;
    }
    let order: Vec<u64> = queue.passed().iter().map(|(number, _)| *number).collect();
    assert!(order.is_sorted() && order.len() == answers.len(), "{order:?}");
}
