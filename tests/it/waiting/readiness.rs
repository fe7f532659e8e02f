//! A waiting request holds no permit of the inner service. When the request is due, it waits until the service is
//! ready.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::Request;
use http::request::Parts;
use tokio::sync::Semaphore;
use tollgate::{Policy, RateLimitLayer, SECOND};
use tower::limit::ConcurrencyLimit;
use tower::{Layer, Service, ServiceExt};

use super::queue::{Queue, RecordingService, SPACED, immediate_status, ms, number, request, run_tasks, send};

const SEARCH: Policy = Policy::new("search", SPACED);

fn client(req: &Parts) -> u64 {
    number(req) % 10
}

#[tokio::test]
async fn other_requests_pass_while_a_request_waits() {
    let queue = Queue::new();
    let permits = Arc::new(Semaphore::new(1));
    let limited = ConcurrencyLimit::with_semaphore(queue.inner(), Arc::clone(&permits));
    let layer = RateLimitLayer::new(SEARCH, client).limiter(&queue.limiter).wait_up_to(5 * SECOND);
    // All requests share one service, as they do on a single connection. A waiting request that held a permit would
    // block the others.
    let mut service = layer.layer(limited);
    service.ready().await.unwrap().call(request(0)).await.unwrap();
    let waiting_call = tokio::spawn(service.ready().await.unwrap().call(request(10)));
    queue.at(ms(50)).await;
    assert_eq!((permits.available_permits(), queue.limiter.waiting()), (1, 1));
    for other in 1..5 {
        service.ready().await.unwrap().call(request(other)).await.unwrap();
    }
    queue.at(ms(100)).await;
    assert_eq!(waiting_call.await.unwrap().unwrap().status(), 200);
    let order: Vec<u64> = queue.passed().into_iter().map(|(number, _)| number).collect();
    assert_eq!((order, permits.available_permits()), (vec![0, 1, 2, 3, 4, 10], 1));
}

#[tokio::test]
async fn a_due_request_waits_until_the_inner_service_is_ready() {
    let queue = Queue::new();
    let permits = Arc::new(Semaphore::new(1));
    let limited = ConcurrencyLimit::with_semaphore(queue.inner(), Arc::clone(&permits));
    let layer = RateLimitLayer::new(SEARCH, client).limiter(&queue.limiter).wait_up_to(5 * SECOND);
    let service = layer.layer(limited);
    let answers = [send(&service, 0), send(&service, 10), send(&service, 20)];
    queue.at(Duration::ZERO).await;
    let busy = Arc::clone(&permits).try_acquire_owned().unwrap();
    queue.at(ms(100)).await;
    assert_eq!((queue.passed().len(), queue.limiter.waiting()), (1, 1));
    queue.at(ms(170)).await;
    assert_eq!(queue.passed().len(), 1);
    drop(busy);
    run_tasks().await;
    assert_eq!(queue.passed()[1..], [(10, ms(170))]);
    queue.at(ms(200)).await;
    assert_eq!(queue.passed()[2..], [(20, ms(200))]);
    for answer in answers {
        assert_eq!(answer.await.unwrap().unwrap(), 200);
    }
}

#[tokio::test]
async fn a_reservation_is_refunded_if_the_inner_service_fails() {
    let queue = Queue::new();
    let broken = Arc::new(AtomicBool::new(false));
    let inner = Breaking { inner: queue.inner(), broken: Arc::clone(&broken) };
    let layer = RateLimitLayer::new(SEARCH, |_: &Parts| 7).limiter(&queue.limiter).wait_up_to(5 * SECOND);
    let service = layer.layer(inner);
    let [first, fails] = [send(&service, 0), send(&service, 1)];
    queue.at(Duration::ZERO).await;
    assert_eq!(first.await.unwrap().unwrap(), 200);
    broken.store(true, Ordering::Relaxed);
    queue.at(ms(100)).await;
    assert_eq!((fails.await.unwrap(), queue.limiter.waiting()), (Err("broken"), 0));
    broken.store(false, Ordering::Relaxed);
    assert_eq!(immediate_status(&service, 2).await, Ok(200));
    assert_eq!(queue.passed()[1..], [(2, ms(100))]);
}

/// A service whose `poll_ready` fails while `broken` is set.
#[derive(Clone)]
struct Breaking {
    inner: RecordingService,
    broken: Arc<AtomicBool>,
}

impl Service<Request<u64>> for Breaking {
    type Response = <RecordingService as Service<Request<u64>>>::Response;
    type Error = &'static str;
    type Future = std::future::Ready<Result<Self::Response, &'static str>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        Poll::Ready(if self.broken.load(Ordering::Relaxed) { Err("broken") } else { Ok(()) })
    }

    fn call(&mut self, request: Request<u64>) -> Self::Future {
        let Ok(response) = self.inner.call(request).into_inner();
        std::future::ready(Ok(response))
    }
}
