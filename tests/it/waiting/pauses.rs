//! Pauses and blocks that begin while requests are waiting. No request continues before the pause or the block ends.

use http::request::Parts;
use http::{Request, Response};
use tollgate::{
    Charge, LimitError, MINUTE, OnResponse, Policy, Quota, RateLimitLayer, Reason, SECOND, key::KeyExtractor,
    protection::Signal,
};
use tower::{Layer, ServiceExt, service_fn};

use super::queue::{Queue, SPACED, immediate_status, ms, run_tasks, send};

static REMOTE: Policy = Policy::new("remote", SPACED);

fn single_key() -> impl KeyExtractor {
    |_: &Parts| 7
}

fn layer(queue: &Queue) -> RateLimitLayer {
    RateLimitLayer::new(REMOTE.clone(), single_key()).limiter(&queue.limiter)
}

#[tokio::test]
async fn waiting_requests_are_held_until_a_pause_ends_and_then_spaced() {
    let queue = Queue::new();
    let service = layer(&queue).wait_up_to(MINUTE).layer(queue.inner());
    let answers: Vec<_> = (0..50).map(|number| send(&service, number)).collect();
    for at in [0, 100, 200] {
        queue.at(ms(at)).await;
    }
    assert_eq!(queue.passed().len(), 3);
    queue.limiter.pause(&REMOTE, 7, 2 * SECOND).await.unwrap();
    for at in (200..2200).step_by(50) {
        queue.at(ms(at)).await;
        assert_eq!(queue.passed().len(), 3, "unexpected requests at {at} ms");
    }
    for at in (2200..10_000).step_by(50) {
        queue.at(ms(at)).await;
    }
    let passed = queue.passed();
    assert_eq!(passed.len(), 50);
    assert_eq!(passed[3].1, ms(2200), "expected the next request at the end of the pause");
    for pair in passed.windows(2) {
        assert!(pair[1].1 - pair[0].1 >= ms(100), "{pair:?}");
    }
    // The pause delays the requests by two seconds. No tokens are lost.
    assert!(passed[49].1 <= ms(4900 + 2000 + 100), "{:?}", passed[49]);
    for answer in answers {
        assert_eq!(answer.await.unwrap(), Ok(200));
    }
    assert_eq!(queue.limiter.waiting(), 0);
}

#[tokio::test]
async fn a_request_is_refused_if_the_pause_outlasts_its_maximum_wait() {
    let queue = Queue::new();
    let service = layer(&queue).wait_up_to(SECOND).layer(queue.inner());
    let answers: Vec<_> = (0..5).map(|number| send(&service, number)).collect();
    queue.at(ms(0)).await;
    queue.limiter.pause(&REMOTE, 7, 2 * SECOND).await.unwrap();
    for at in [100, 200, 300, 400] {
        queue.at(ms(at)).await;
    }
    let mut statuses = Vec::new();
    for answer in answers {
        assert!(answer.is_finished(), "expected the request to be refused when it is due");
        statuses.push(answer.await.unwrap().unwrap());
    }
    assert_eq!((statuses, queue.passed().len()), (vec![200, 429, 429, 429, 429], 1));
    queue.at(2 * SECOND).await;
    assert_eq!(immediate_status(&service, 5).await, Ok(200));
}

#[tokio::test]
async fn new_requests_wait_for_the_end_of_a_pause_before_they_are_charged() {
    static PLAIN: Policy = Policy::new("plain", Quota::token_bucket(10, SECOND).capacity(2).max_reserved(1));
    let queue = Queue::new();
    let limiter = &queue.limiter;
    limiter.pause(&REMOTE, 7, SECOND).await.unwrap();
    limiter.pause(&PLAIN, 7, SECOND).await.unwrap();
    let service = layer(&queue).wait_up_to(2 * SECOND).layer(queue.inner());
    let answers: Vec<_> = (0..3).map(|number| send(&service, number)).collect();
    let calls: Vec<_> = (0..4).map(|_| tokio::spawn(limiter.acquire(&PLAIN, 7).wait_up_to(2 * SECOND))).collect();
    queue.at(ms(500)).await;
    assert_eq!((queue.passed().len(), limiter.waiting()), (0, 7));
    // Calls that do not wait are denied until the end of the pause.
    let denied = limiter.try_check(&REMOTE, 7).await.unwrap();
    assert_eq!((denied.reason(), denied.retry_after(), denied.denied_rule()), (Reason::Blocked, Some(ms(500)), None));
    assert!(limiter.acquire(&REMOTE, 7).wait_up_to(ms(499)).await.is_err());
    static NO_RESERVATIONS: Policy = Policy::new("no reservations", Quota::token_bucket(10, SECOND));
    limiter.pause(&NO_RESERVATIONS, 7, SECOND).await.unwrap();
    let no_reservations = limiter.acquire(&NO_RESERVATIONS, 7).wait_up_to(2 * SECOND).await;
    assert!(matches!(no_reservations, Err(LimitError::NoReservations(_))));
    assert!(limiter.try_check(&REMOTE, 8).await.unwrap().is_allowed());
    static OTHER: Policy = Policy::new("other", SPACED);
    assert!(limiter.try_check(&OTHER, 7).await.unwrap().is_allowed());

    for at in [1000, 1100, 1200] {
        queue.at(ms(at)).await;
    }
    assert_eq!(queue.passed().iter().map(|(_, at)| *at).collect::<Vec<_>>(), [ms(1000), ms(1100), ms(1200)]);
    for answer in answers {
        assert_eq!(answer.await.unwrap(), Ok(200));
    }
    // At the end of the pause, two calls are allowed, the third waits until it is due, and the fourth is denied.
    let mut denied = 0;
    for call in calls {
        denied += u64::from(call.await.unwrap().is_err());
    }
    assert_eq!((denied, limiter.waiting()), (1, 0));
}

#[tokio::test]
async fn a_pause_can_be_extended_or_ended_early() {
    let queue = Queue::new();
    let service = layer(&queue).wait_up_to(MINUTE).layer(queue.inner());
    queue.limiter.pause(&REMOTE, 7, SECOND).await.unwrap();
    let answer = send(&service, 0);
    queue.at(ms(900)).await;
    queue.limiter.pause(&REMOTE, 7, SECOND).await.unwrap();
    queue.limiter.pause(&REMOTE, 7, ms(1)).await.unwrap(); // The pause that ends later applies.
    queue.at(ms(1899)).await;
    assert!(!answer.is_finished());
    queue.at(ms(1900)).await;
    assert_eq!(answer.await.unwrap(), Ok(200));

    queue.limiter.pause(&REMOTE, 7, MINUTE).await.unwrap();
    queue.limiter.resume(&REMOTE, 7).await.unwrap();
    queue.at(ms(2000)).await;
    assert_eq!(immediate_status(&service, 1).await, Ok(200));
}

/// Regression test: waiting requests were still sent after their key had been blocked.
#[tokio::test]
async fn waiting_requests_of_a_blocked_key_are_refused_when_they_are_due() {
    let queue = Queue::new();
    let service = layer(&queue).wait_up_to(MINUTE).layer(queue.inner());
    let answers: Vec<_> = (0..50).map(|number| send(&service, number)).collect();
    for at in [0, 100, 200] {
        queue.at(ms(at)).await;
    }
    queue.limiter.block(Signal::key(7), 20 * SECOND).await.unwrap();
    for at in (300..6000).step_by(100) {
        queue.at(ms(at)).await;
    }
    assert_eq!(queue.passed().len(), 3);
    let mut refused = 0;
    for answer in answers {
        refused += u64::from(answer.await.unwrap() == Ok(429));
    }
    assert_eq!((refused, queue.limiter.waiting()), (47, 0));
}

#[tokio::test]
async fn a_reservation_that_waits_for_a_pause_to_end_is_charged_once() {
    let queue = Queue::new();
    let limiter = &queue.limiter;
    assert!(limiter.try_limit(&REMOTE, 7).await.unwrap().is_allowed());
    let reservation = limiter.acquire(&REMOTE, 7).reserve().await.unwrap();
    let both = [Charge::new(&REMOTE, 8), Charge::new(&REMOTE, 9)];
    let free = limiter.hold_all(both).await.unwrap();
    limiter.pause(&REMOTE, 7, SECOND).await.unwrap();
    limiter.pause(&REMOTE, 9, 2 * SECOND).await.unwrap();
    let waiting_calls = [tokio::spawn(reservation.wait()), tokio::spawn(free.wait())];
    queue.at(ms(999)).await;
    assert!(waiting_calls.iter().all(|wait| !wait.is_finished()));
    queue.at(ms(1000)).await;
    assert!(waiting_calls[0].is_finished() && !waiting_calls[1].is_finished());
    assert_eq!(limiter.remaining(&REMOTE, 7).await.unwrap(), 0, "expected a charge at the end of the pause");
    queue.at(ms(1100)).await;
    assert_eq!(limiter.remaining(&REMOTE, 7).await.unwrap(), 1, "expected a single charge");
    assert_eq!(limiter.remaining(&REMOTE, 8).await.unwrap(), 1, "a held call must not be charged");
    let [held, other] = waiting_calls;
    let receipt = held.await.unwrap().unwrap();
    assert!(!receipt.is_settled());
    other.abort();
    run_tasks().await;
    queue.at(2 * SECOND).await;
    assert_eq!(limiter.remaining(&REMOTE, 9).await.unwrap(), 1);

    let reservation = limiter.acquire(&REMOTE, 7).reserve().await.unwrap();
    limiter.block(Signal::key(7), SECOND).await.unwrap();
    assert!(matches!(reservation.wait().await, Err(LimitError::Denied(_))));
}

/// Regression test: at the end of the pause, the call was charged to the old row.
#[tokio::test]
async fn a_call_held_during_a_policy_reset_is_charged_to_the_new_row() {
    let queue = Queue::new();
    let limiter = queue.limiter.clone();
    drop(limiter.acquire(&REMOTE, 7).cost(1).reserve().await.unwrap());
    drop(limiter.acquire(&REMOTE, 7).cost(40).reserve().await.unwrap());
    limiter.pause(&REMOTE, 7, SECOND).await.unwrap();
    let held = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.acquire(&REMOTE, 7).wait_up_to(2 * SECOND).await }
    });
    run_tasks().await;
    limiter.reset_policy(&REMOTE).await.unwrap();
    queue.at(SECOND).await;
    assert!(held.is_finished(), "the call must not wait for reservations made before the reset");
    held.await.unwrap().unwrap();
    assert_eq!(limiter.remaining(&REMOTE, 7).await.unwrap(), 0);
}

/// The server responds with 429 once. Requests that are due but still wait for a connection are held as well.
#[tokio::test]
async fn after_a_429_no_request_is_sent_until_retry_after_has_passed() {
    for retry_after in ["2", "Sun, 06 Nov 1994 08:49:39 GMT"] {
        let queue = Queue::new();
        let (inner, clock) = (queue.inner(), queue.clock.clone());
        let server = service_fn(move |request: Request<u64>| {
            let (inner, number, clock) = (inner.clone(), *request.body(), clock.clone());
            async move {
                inner.oneshot(request).await.unwrap();
                let now = tollgate::clock::Clock::now(&clock);
                tollgate::clock::Clock::sleep_until(&clock, now + ms(350)).unwrap().await;
                let refused = Response::builder().header("date", "Sun, 06 Nov 1994 08:49:37 GMT");
                let refused = refused.status(429).header("retry-after", retry_after);
                let response = if number == 2 { refused.body(()) } else { Ok(Response::new(())) };
                Ok::<_, std::convert::Infallible>(response.unwrap())
            }
        });
        let server = tower::ServiceBuilder::new().concurrency_limit(2).service(server);
        let service = layer(&queue).wait_up_to(MINUTE).on_response(OnResponse::pause_on_retry_after).layer(server);
        let answers: Vec<_> = (0..20).map(|number| send(&service, number)).collect();
        for at in (0..10_000).step_by(10) {
            queue.at(ms(at)).await;
        }
        let passed = queue.passed();
        // Each request keeps one of the two connections busy for 350 ms. The third request was sent after 350 ms and
        // refused after 700 ms, when other requests were already due.
        let times: Vec<_> = passed[..5].iter().map(|(_, at)| at.as_millis()).collect();
        assert_eq!(times, [0, 100, 350, 450, 2700]);
        assert_eq!(passed.len(), 20);
        let mut refused = 0;
        for answer in answers {
            refused += u64::from(answer.await.unwrap() == Ok(429));
        }
        assert_eq!(refused, 1);
    }
}
