//! The maximum number of waiting calls.

use std::convert::Infallible;
use std::time::Duration;

use http::request::Parts;
use http::{Request, Response};
use tollgate::{Charge, LimitError, MINUTE, Policy, Quota, RateLimitLayer, RateLimiter, SECOND};
use tower::{Layer, service_fn};

use super::queue::{Queue, SPACED, immediate_response, immediate_status, ms, number, run_tasks, send};

static SEARCH: Policy = Policy::new("search", SPACED);

#[tokio::test]
async fn calls_beyond_max_waiting_are_denied_immediately() {
    let queue = Queue::with(3);
    let layer = RateLimitLayer::new(SEARCH.clone(), |_: &Parts| 7).limiter(&queue.limiter).wait_up_to(5 * SECOND);
    let service = layer.layer(queue.inner());
    let mut answers: Vec<_> = (0..4).map(|number| send(&service, number)).collect();
    queue.at(Duration::ZERO).await;
    assert_eq!(queue.limiter.waiting(), 3);

    let denied = immediate_response(&service, 4).await.unwrap();
    assert_eq!((denied.status().as_u16(), denied.body().is_refusal()), (429, true));
    // A new request would be allowed in 0.4 s, after all reservations are due. The header rounds this time up to one
    // second.
    assert_eq!(denied.headers()["retry-after"], "1");
    let denied = queue.limiter.acquire(&SEARCH, 7).wait_up_to(5 * SECOND).await;
    assert!(matches!(denied, Err(LimitError::Denied(_))), "{denied:?}");
    assert_eq!(queue.limiter.waiting(), 3);

    queue.at(ms(100)).await;
    assert_eq!(queue.limiter.waiting(), 2);
    answers.push(send(&service, 5));
    run_tasks().await;
    assert_eq!(queue.limiter.waiting(), 3);
    answers.pop().unwrap().abort();
    run_tasks().await;
    assert_eq!(queue.limiter.waiting(), 2);
    answers.push(send(&service, 6));
    run_tasks().await;
    assert_eq!(queue.limiter.waiting(), 3);
    for slot in 2..=4 {
        queue.at(ms(100 * slot)).await;
    }
    let expected = [0, 1, 2, 3, 6].into_iter().zip((0..).map(|slot| ms(100 * slot))).collect::<Vec<_>>();
    assert_eq!((queue.passed(), queue.limiter.waiting()), (expected, 0));
}

#[tokio::test]
async fn calls_that_need_not_wait_are_allowed_when_max_waiting_is_reached() {
    let queue = Queue::with(1);
    let layer = RateLimitLayer::new(SEARCH.clone(), |req: &Parts| number(req) % 2).limiter(&queue.limiter);
    let service = layer.wait_up_to(5 * SECOND).layer(queue.inner());
    let _waiting = [send(&service, 0), send(&service, 2)];
    queue.at(Duration::ZERO).await;
    assert_eq!(queue.limiter.waiting(), 1);
    assert_eq!(immediate_status(&service, 1).await.unwrap(), 200);
    assert_eq!(immediate_status(&service, 3).await.unwrap(), 429);
    assert!(queue.limiter.acquire(&SEARCH, 9).wait_up_to(SECOND).await.is_ok());
}

/// All layers, calls, keys and policies of a limiter share its maximum number of waiting calls.
#[tokio::test]
async fn layers_and_calls_on_one_limiter_share_max_waiting() {
    const SLOW: Policy = Policy::new("slow", Quota::token_bucket(1, MINUTE).unlimited_reservations());
    let queue = Queue::with(2);
    let layer = RateLimitLayer::new(SEARCH.clone(), |_: &Parts| 7).limiter(&queue.limiter).wait_up_to(5 * SECOND);
    let service = layer.layer(queue.inner());
    let _first = [send(&service, 0), send(&service, 1)];
    queue.at(Duration::ZERO).await;
    queue.limiter.limit(&SLOW, 7).await.unwrap();
    let call = queue.limiter.acquire(&SLOW, 7).wait_up_to(MINUTE);
    assert_eq!(queue.limiter.clone().waiting(), 2);
    assert_eq!(immediate_status(&service, 2).await.unwrap(), 429);
    drop(call);
    assert_eq!(queue.limiter.waiting(), 1);
}

#[tokio::test]
async fn no_call_waits_if_max_waiting_is_zero() {
    let queue = Queue::with(0);
    let layer = RateLimitLayer::new(SEARCH.clone(), |_: &Parts| 7).limiter(&queue.limiter).wait_up_to(5 * SECOND);
    let service = layer.layer(queue.inner());
    assert_eq!(immediate_status(&service, 0).await.unwrap(), 200);
    assert_eq!(immediate_status(&service, 1).await.unwrap(), 429);
    assert_eq!(queue.limiter.try_check_all([Charge::new(&SEARCH, 7).reserve()]).await.unwrap().delay(), ms(100));
}

/// Regression test: a call denied because of `max_waiting` was briefly counted as waiting. This could cause another
/// call to be denied.
#[test]
fn calls_denied_because_of_max_waiting_are_never_counted_as_waiting() {
    let queue = Queue::with(0);
    let limiter = &queue.limiter;
    std::thread::scope(|scope| {
        let tries: Vec<_> = (0..2)
            .map(|key| {
                scope.spawn(move || (0..20_000).for_each(|_| drop(limiter.acquire(&SEARCH, key).wait_up_to(SECOND))))
            })
            .collect();
        while !tries.iter().all(|tries| tries.is_finished()) {
            assert_eq!(limiter.waiting(), 0);
        }
    });
}

/// This test runs in real time. Every third client disconnects at an arbitrary time.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn disconnects_on_several_threads_leak_no_waiters() {
    const FAST: Policy = Policy::new("fast", Quota::token_bucket(1000, SECOND).capacity(1).unlimited_reservations());
    let limiter = RateLimiter::default();
    let layer = RateLimitLayer::new(FAST, |_: &Parts| 7).limiter(&limiter).wait_up_to(20 * SECOND);
    let service = layer.layer(service_fn(|_: Request<u64>| std::future::ready(Ok::<_, Infallible>(Response::new(())))));
    let mut answers: Vec<_> = (0..400).map(|number| send(&service, number)).collect();
    for (number, answer) in answers.iter().enumerate() {
        if number % 3 == 0 {
            tokio::task::yield_now().await;
            answer.abort();
        }
    }
    for (number, answer) in answers.drain(..).enumerate() {
        match answer.await {
            Ok(status) => assert_eq!(status, Ok(200)),
            Err(_) => assert_eq!(number % 3, 0),
        }
    }
    assert_eq!(limiter.waiting(), 0);
}
