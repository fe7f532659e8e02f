//! Benchmarks of the layer around a service that responds immediately. Run them with `cargo bench --bench middleware`.

use std::convert::Infallible;
use std::future::{Future, Ready, poll_fn, ready};
use std::net::SocketAddr;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use divan::{Bencher, black_box};
use http::request::Parts;
use http::{Request, Response};
use http_body_util::Empty;
use tollgate::key::{self, PeerAddr};
use tollgate::{HOUR, HeaderFamily, MemoryBackend, Policy, Quota, RateLimitLayer, RateLimiter, SECOND};
use tower::{Layer, Service};

const LARGE: Quota = Quota::token_bucket(1, SECOND).capacity(4_000_000_000);

fn main() {
    divan::main();
}

/// The baseline: creating a request and dropping the response.
#[divan::bench(sample_count = 300, sample_size = 1000)]
fn no_layer(bencher: Bencher) {
    bench(bencher, Bare, 200);
}

#[divan::bench(sample_count = 300, sample_size = 1000)]
fn plain(bencher: Bencher) {
    bench(bencher, layer(LARGE).headers(HeaderFamily::None).layer(Bare), 200);
}

#[divan::bench(sample_count = 300, sample_size = 1000)]
fn headers(bencher: Bencher) {
    bench(bencher, layer(LARGE).layer(Bare), 200);
}

#[divan::bench(sample_count = 300, sample_size = 1000)]
fn three_rules(bencher: Bencher) {
    let layer = layer(LARGE).and(Policy::new("global", LARGE), key::global());
    bench(bencher, layer.and(Policy::new("route", LARGE), |_: &Parts| "/").layer(Bare), 200);
}

#[divan::bench(sample_count = 300, sample_size = 1000)]
fn denied(bencher: Bencher) {
    bench(bencher, layer(Quota::token_bucket(1, HOUR)).layer(Bare), 429);
}

fn layer(quota: Quota) -> RateLimitLayer {
    RateLimitLayer::new(quota, key::client_ip()).limiter(&RateLimiter::new(MemoryBackend::new()))
}

fn bench<B>(
    bencher: Bencher,
    mut service: impl Service<Request<()>, Response = Response<B>, Error = Infallible>,
    status: u16,
) {
    let peer = PeerAddr(SocketAddr::from(([192, 0, 2, 1], 443)));
    let mut call = || {
        let mut request = Request::new(());
        request.extensions_mut().insert(peer);
        let Ok(()) = now(poll_fn(|cx| service.poll_ready(cx)));
        let Ok(response) = now(service.call(black_box(request)));
        response.status().as_u16()
    };
    // With a quota of one, this first request is allowed, and the measured requests are denied.
    call();
    bencher.bench_local(|| assert_eq!(call(), status));
}

fn now<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("in memory"),
    }
}

#[derive(Clone)]
struct Bare;

impl Service<Request<()>> for Bare {
    type Response = Response<Empty<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        ready(Ok(Response::new(Empty::new())))
    }
}
