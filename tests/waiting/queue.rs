//! A limiter on a clock that stands still, and a service that notes who comes through.

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

/// One after the other, 100 ms apart.
pub(crate) const SPACED: Quota = Quota::token_bucket(10, SECOND).capacity(1).unlimited_reservations();

pub(crate) const MICRO: Duration = Duration::from_micros(1);

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Requests are numbers. Each comes with its time since the beginning.
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

    /// With so many places to wait.
    pub(crate) fn with(places: usize) -> Queue {
        let clock = ManualClock::new();
        let rows = MemoryBackend::builder().clock(clock.clone()).build();
        let limiter = RateLimiter::builder(rows).max_waiting(places).build();
        Queue { begin: clock.now(), clock, limiter, passed: Arc::default() }
    }

    /// The service behind the limit.
    pub(crate) fn inner(&self) -> Noting {
        Noting { clock: self.clock.clone(), begin: self.begin, passed: Arc::clone(&self.passed) }
    }

    /// Moves the clock, and lets everybody do what there is to do by then.
    pub(crate) async fn at(&self, time: Duration) {
        self.clock.set(self.begin + time);
        settle().await;
    }

    /// The next instant for which somebody waits.
    pub(crate) fn next_wake(&self) -> Option<Duration> {
        self.clock.next_wake().map(|wake| wake.since(self.begin))
    }

    /// Who came through, and when, in their order.
    pub(crate) fn passed(&self) -> Vec<(u64, Duration)> {
        self.passed.lock().unwrap().clone()
    }
}

/// Lets every task run until nothing is left to do but to wait for the clock.
pub(crate) async fn settle() {
    for _ in 0..8 {
        tokio::task::yield_now().await;
    }
}

/// Sends a request by a clone, as a server does; the status of its answer.
pub(crate) fn send<S, R>(service: &S, number: u64) -> JoinHandle<Result<u16, S::Error>>
where
    S: Service<Request<u64>, Response = Response<R>, Error: Send, Future: Send> + Clone + Send + 'static,
    R: 'static,
{
    let service = service.clone();
    tokio::spawn(async move { Ok(service.oneshot(request(number)).await?.status().as_u16()) })
}

/// The status of an answer for which nobody has to wait.
pub(crate) async fn at_once<S, R>(service: &S, number: u64) -> Result<u16, S::Error>
where
    S: Service<Request<u64>, Response = Response<R>, Error: Send, Future: Send> + Clone + Send + 'static,
    R: Send + 'static,
{
    Ok(response_at_once(service, number).await?.status().as_u16())
}

/// A test that fails here would else wait for a clock that stands still.
pub(crate) async fn response_at_once<S, R>(service: &S, number: u64) -> Result<Response<R>, S::Error>
where
    S: Service<Request<u64>, Response = Response<R>, Error: Send, Future: Send> + Clone + Send + 'static,
    R: Send + 'static,
{
    let answer = tokio::spawn(service.clone().oneshot(request(number)));
    settle().await;
    assert!(answer.is_finished(), "request {number} waits");
    answer.await.unwrap()
}

/// A request whose path is its number too, for keys and costs that look at it.
pub(crate) fn request(number: u64) -> Request<u64> {
    Request::builder().uri(format!("/{number}")).body(number).unwrap()
}

/// The number of a request, of its parts.
pub(crate) fn number(req: &Parts) -> u64 {
    req.uri.path()[1..].parse().unwrap()
}

/// Answers at once.
#[derive(Clone)]
pub(crate) struct Noting {
    clock: ManualClock,
    begin: Micros,
    passed: Arc<Mutex<Vec<(u64, Duration)>>>,
}

impl Service<Request<u64>> for Noting {
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
