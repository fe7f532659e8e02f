//! A limiter with a manual clock, and a service that records the requests that reach it.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use http::request::Parts;
use http::{Request, Response};
use tokio::task::JoinHandle;
use tollgate::algorithm::Micros;
use tollgate::{
    MemoryBackend, Quota, RateLimiter, SECOND,
    clock::{Clock, ManualClock},
};
use tower::{Service, ServiceExt};

/// Allows one request every 100 ms.
pub(crate) const SPACED: Quota = Quota::token_bucket(10, SECOND).capacity(1).unlimited_reservations();

pub(crate) const MICRO: Duration = Duration::from_micros(1);

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A limiter with a manual clock. All times are relative to the start of the test.
pub(crate) struct Queue {
    pub(crate) clock: ManualClock,
    pub(crate) limiter: RateLimiter,
    begin: Micros,
    passed: Arc<Mutex<Vec<(u64, Duration)>>>,
}

impl Queue {
    pub(crate) fn new() -> Queue {
        Queue::with(usize::MAX)
    }

    /// Creates a queue with at most `max_waiting` waiting calls.
    pub(crate) fn with(max_waiting: usize) -> Queue {
        let clock = ManualClock::new();
        let rows = MemoryBackend::builder().clock(clock.clone()).build();
        let limiter = RateLimiter::builder(rows).max_waiting(max_waiting).build();
        Queue { begin: clock.now(), clock, limiter, passed: Arc::default() }
    }

    pub(crate) fn inner(&self) -> RecordingService {
        RecordingService { clock: self.clock.clone(), begin: self.begin, passed: Arc::clone(&self.passed) }
    }

    /// Sets the clock and runs all tasks until they wait again.
    pub(crate) async fn at(&self, time: Duration) {
        self.clock.set(self.begin + time);
        run_tasks().await;
    }

    pub(crate) fn next_wake(&self) -> Option<Duration> {
        self.clock.next_wake().map(|wake| wake.since(self.begin))
    }

    /// Returns the requests that reached the service, in order, each with its time of arrival.
    pub(crate) fn passed(&self) -> Vec<(u64, Duration)> {
        self.passed.lock().unwrap().clone()
    }
}

/// Runs all tasks until they wait for the clock.
pub(crate) async fn run_tasks() {
    for _ in 0..8 {
        tokio::task::yield_now().await;
    }
}

/// Spawns a task that sends a request through a clone of the service, as a server does. The task returns the status of
/// the response.
pub(crate) fn send<S, R>(service: &S, number: u64) -> JoinHandle<Result<u16, S::Error>>
where
    S: Service<Request<u64>, Response = Response<R>, Error: Send, Future: Send> + Clone + Send + 'static,
    R: 'static,
{
    let service = service.clone();
    tokio::spawn(async move { Ok(service.oneshot(request(number)).await?.status().as_u16()) })
}

/// Returns the status of the response. Panics if the response is not immediate.
pub(crate) async fn immediate_status<S, R>(service: &S, number: u64) -> Result<u16, S::Error>
where
    S: Service<Request<u64>, Response = Response<R>, Error: Send, Future: Send> + Clone + Send + 'static,
    R: Send + 'static,
{
    Ok(immediate_response(service, number).await?.status().as_u16())
}

/// Returns the response. Panics if the response is not immediate.
pub(crate) async fn immediate_response<S, R>(service: &S, number: u64) -> Result<Response<R>, S::Error>
where
    S: Service<Request<u64>, Response = Response<R>, Error: Send, Future: Send> + Clone + Send + 'static,
    R: Send + 'static,
{
    let answer = tokio::spawn(service.clone().oneshot(request(number)));
    run_tasks().await;
    assert!(answer.is_finished(), "request {number} did not complete immediately");
    answer.await.unwrap()
}

/// Builds a request with `number` in its body and in its path. Extractors and cost functions read it from the path.
pub(crate) fn request(number: u64) -> Request<u64> {
    Request::builder().uri(format!("/{number}")).body(number).unwrap()
}

pub(crate) fn number(req: &Parts) -> u64 {
    req.uri.path()[1..].parse().unwrap()
}

#[derive(Clone)]
pub(crate) struct RecordingService {
    clock: ManualClock,
    begin: Micros,
    passed: Arc<Mutex<Vec<(u64, Duration)>>>,
}

impl Service<Request<u64>> for RecordingService {
    type Response = Response<()>;
    type Error = Infallible;
    type Future = Ready<Result<Response<()>, Infallible>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<u64>) -> Self::Future {
        self.passed.lock().unwrap().push((*request.body(), self.clock.now().since(self.begin)));
        ready(Ok(Response::new(())))
    }
}
