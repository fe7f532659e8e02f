//! The extensions of a request that waited, and the headers of its response.

use std::convert::Infallible;
use std::time::Duration;

use http::request::Parts;
use http::{Request, Response};
use tollgate::{Charge, OnResponse, Policy, RateLimitLayer, RateLimitStatus, Reason, Receipt, SECOND};
use tower::{Layer, ServiceExt, service_fn};

use super::queue::{Queue, SPACED, immediate_response, ms, request, run_tasks, send};

static SEARCH: Policy = Policy::new("search", SPACED);

#[tokio::test]
async fn a_request_that_waited_has_a_status_and_a_receipt() {
    let queue = Queue::new();
    let inner = service_fn(|req: Request<u64>| async move {
        let status = req.extensions().get::<RateLimitStatus>().expect("expected a status");
        let charge = req.extensions().get::<Receipt>().expect("expected a receipt");
        if *req.body() == 1 {
            assert_eq!(status.tightest().map(|decision| decision.reason()), Some(Reason::Reserved));
            charge.refund().await.unwrap();
        }
        Ok::<_, Infallible>(Response::new(()))
    });
    let layer = RateLimitLayer::new(SEARCH.clone(), |_: &Parts| 7).limiter(&queue.limiter).wait_up_to(5 * SECOND);
    let service = layer.with_status().with_receipt().layer(inner);
    let answers = [send(&service, 0), send(&service, 1)];
    queue.at(Duration::ZERO).await;
    queue.at(ms(100)).await;
    for answer in answers {
        assert_eq!(answer.await.unwrap(), Ok(200));
    }
    // The bucket was empty at the due time, so only the refunded token remains.
    assert_eq!(queue.limiter.remaining(&SEARCH, 7).await.unwrap(), 1);
}

#[tokio::test]
async fn a_request_that_waited_is_settled_by_its_response() {
    let queue = Queue::new();
    let layer = RateLimitLayer::new(SEARCH.clone(), |_: &Parts| 7).limiter(&queue.limiter).wait_up_to(5 * SECOND);
    let service = layer.on_response(|_| OnResponse::Settle(3)).layer(queue.inner());
    // The first request is immediately settled at three tokens, which delays the second request.
    let _answers = [send(&service, 0), send(&service, 1)];
    queue.at(Duration::ZERO).await;
    assert_eq!((queue.passed().len(), queue.next_wake()), (1, Some(ms(300))));
    queue.at(ms(300)).await;
    assert_eq!(queue.passed()[1..], [(1, ms(300))]);
    assert_eq!(queue.limiter.try_check_all([Charge::new(&SEARCH, 7).reserve()]).await.unwrap().delay(), ms(300));
}

#[tokio::test]
async fn a_request_that_waited_gets_the_usual_headers() {
    let queue = Queue::new();
    let layer = RateLimitLayer::new(SEARCH.clone(), |_: &Parts| 7).limiter(&queue.limiter).wait_up_to(5 * SECOND);
    let service = layer.layer(queue.inner());
    let immediate = immediate_response(&service, 0).await.unwrap();
    let waiting_call = tokio::spawn(service.oneshot(request(1)));
    run_tasks().await;
    queue.at(ms(100)).await;
    let waited = waiting_call.await.unwrap().unwrap();
    assert_eq!(immediate.headers(), waited.headers());
    assert_eq!(waited.headers()["ratelimit"], r#""search";r=0;t=1"#);
    assert!(!waited.body().is_refusal());
}
