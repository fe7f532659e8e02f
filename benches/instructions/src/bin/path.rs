//! Runs one path once, after it has been run once without being counted. `scripts/path` lists the functions of that run.
//!
//! Arguments: `request`, `decision`, or `redis` and the URL of a server.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::hint::black_box;
use std::net::SocketAddr;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Empty;
use tokio::runtime::{Builder, Runtime};
use tollgate::backend::RedisBackend;
use tollgate::key::{self, PeerAddr};
use tollgate::{HeaderFamily, MINUTE, MemoryBackend, Policy, Quota, RateLimitLayer, RateLimiter};
use tower_layer::Layer;
use tower_service::Service;

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    // One thread, so that the functions of the Redis client's tasks are listed, too.
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    match arguments[..] {
        ["request"] => requests(&runtime),
        ["decision"] => decisions(&runtime, &RateLimiter::new(MemoryBackend::new())),
        ["redis", url] => {
            // The poll for changes of other processes is not part of a charge.
            let backend = RedisBackend::builder().notices_every(Duration::ZERO).deadline(Duration::from_secs(30));
            let backend = runtime.block_on(backend.connect(url)).expect("a server");
            decisions(&runtime, &RateLimiter::new(backend));
        }
        _ => panic!("expected `request`, `decision` or `redis URL`, found {arguments:?}"),
    }
}

fn requests(runtime: &Runtime) {
    let policy = Policy::new("api", Quota::token_bucket(100, MINUTE));
    let limiter = RateLimiter::new(MemoryBackend::new());
    let layer = RateLimitLayer::new(policy, key::client_ip()).limiter(&limiter).headers(HeaderFamily::Draft11);
    let mut service = layer.layer(Bare);
    let mut request = || {
        let mut request = Request::new(());
        request.extensions_mut().insert(PeerAddr(SocketAddr::from(([192, 0, 2, 1], 443))));
        runtime.block_on(async {
            let Ok(()) = std::future::poll_fn(|cx| service.poll_ready(cx)).await;
            let Ok(response) = service.call(request).await;
            assert!(response.headers().contains_key("ratelimit"));
        });
    };
    request();
    counted(request);
}

fn decisions(runtime: &Runtime, limiter: &RateLimiter) {
    let policy = Policy::new("api", Quota::token_bucket(100, MINUTE));
    let decide = || {
        let decision = runtime.block_on(limiter.try_limit(&policy, "user-00000000001-17")).expect("a decision");
        assert!(black_box(decision).is_allowed());
    };
    decide();
    counted(decide);
}

/// The function in which callgrind records the instructions (see `scripts/path`).
#[inline(never)]
fn counted(run: impl FnOnce()) {
    run();
}

/// Responds immediately with an empty body.
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
