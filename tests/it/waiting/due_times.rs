//! Waiting requests continue in the order of their arrival, at the times that the quota implies.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http::{Request, Response};
use tollgate::{MINUTE, Policy, Quota, RateLimitLayer, SECOND, key};
use tower::{Layer, service_fn};

use super::queue::{MICRO, Queue, SPACED, ms, number, send};

const SEARCH: Policy = Policy::new("search", SPACED);

#[tokio::test]
async fn twenty_concurrent_requests_continue_100_ms_apart() {
    let queue = Queue::new();
    let layer = RateLimitLayer::new(SEARCH, key::global()).limiter(&queue.limiter).wait_up_to(5 * SECOND);
    let service = layer.layer(queue.inner());
    let answers: Vec<_> = (0..20).map(|number| send(&service, number)).collect();
    queue.at(Duration::ZERO).await;
    assert_eq!((queue.passed(), queue.limiter.waiting()), (vec![(0, ms(0))], 19));
    for slot in 1..20 {
        let due = ms(100 * slot);
        queue.at(due - MICRO).await;
        assert_eq!(queue.passed().len() as u64, slot, "a request continued before request {slot} was due");
        queue.at(due).await;
        assert_eq!(queue.passed()[slot as usize..], [(slot, due)]);
    }
    for answer in answers {
        assert_eq!(answer.await.unwrap().unwrap(), 200);
    }
    assert_eq!(queue.limiter.waiting(), 0);
}

#[tokio::test]
async fn waiting_requests_continue_in_order_at_window_boundaries() {
    // The clock starts at a whole second, 700 ms before a boundary.
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

#[tokio::test]
async fn requests_continue_100_ms_apart_and_never_early_in_real_time() {
    let passed = Arc::new(Mutex::new(Vec::new()));
    let recorder = Arc::clone(&passed);
    let inner = service_fn(move |request: Request<u64>| {
        recorder.lock().unwrap().push((request.into_body(), Instant::now()));
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
        // The limiter's clock can drift from the system clock by half a millisecond per second.
        assert!(after + ms(2) >= ms(100 * number), "request {number} continued after {after:?}");
        // A busy machine can delay requests by several seconds.
        assert!(after < ms(100 * number) + 10 * SECOND, "request {number} continued after {after:?}");
    }
}

/// Small requests that arrive after the large request must not overtake it.
#[tokio::test]
async fn a_large_request_among_small_requests_continues_when_it_is_due() {
    const PAGES: Policy = Policy::new("pages", Quota::token_bucket(100, SECOND).capacity(50).unlimited_reservations());
    let queue = Queue::new();
    let layer = RateLimitLayer::new(PAGES, key::global()).limiter(&queue.limiter).wait_up_to(MINUTE);
    let service =
        layer.cost(|req: &http::request::Parts| if number(req) == 1000 { 50 } else { 1 }).layer(queue.inner());
    // 100 small requests arrive at the start, followed by the large request, number 1000. Then two small requests
    // arrive per refilled token.
    let mut answers: Vec<_> = (0..100).map(|number| send(&service, number)).collect();
    answers.push(send(&service, 1000));
    queue.at(Duration::ZERO).await;
    // 50 requests continue immediately, and another 50 within half a second. The large request's tokens take another
    // half second to refill.
    let due = ms(1000);
    for tick in 1..=100 {
        answers.extend([send(&service, 1000 + 2 * tick), send(&service, 1001 + 2 * tick)]);
        queue.at(ms(10 * tick) - MICRO).await;
        queue.at(ms(10 * tick)).await;
    }
    let passed = queue.passed();
    assert_eq!(passed.iter().find(|(number, _)| *number == 1000), Some(&(1000, due)));
    assert!(passed.iter().all(|(number, _)| *number <= 1000), "a later request overtook request 1000: {passed:?}");
    for tick in 101..=300 {
        queue.at(ms(10 * tick)).await;
    }
    let order: Vec<u64> = queue.passed().iter().map(|(number, _)| *number).collect();
    assert!(order.is_sorted() && order.len() == answers.len(), "{order:?}");
}
