//! Runs one of the common paths a given number of times. `measure.sh` counts the instructions of two such runs.
//!
//! Without arguments, prints the names of all paths.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use http_body_util::Empty;
use tollgate::key::{self, KeyExtractor, PeerAddr};
use tollgate::{
    Charge, HOUR, HeaderFamily, Key, MemoryBackend, Policy, Quota, RateLimitLayer, RateLimiter, SECOND,
    key::Secret,
    observe::{Decided, Observer},
};
use tower_layer::Layer;
use tower_service::Service;

/// The name of a path, and a function that runs it a given number of times.
type Path = (&'static str, fn(u64));

const PATHS: [Path; 16] = [
    ("decision, allowed, hot key", |times| decision(LARGE, times)),
    ("decision, denied", |times| decision(SMALL, times)),
    ("decision, only the verdict used, allowed", |times| verdict(LARGE, times)),
    ("decision, only the verdict used, denied", |times| verdict(SMALL, times)),
    ("decision, three charges", three_charges),
    ("decision, new key", new_keys),
    ("decision, observed", observed),
    ("key from text", |times| digest(times, || Key::from(black_box("user-00000000001-17")))),
    ("key from an IPv4 address", |times| digest(times, || Key::from(black_box(IpAddr::from([192, 0, 2, 1]))))),
    ("key from a number", |times| digest(times, || Key::from(black_box(17u64)))),
    ("key from a tuple", |times| digest(times, || Key::from(black_box(("tenant", 17u64))))),
    ("layer, no headers", |times| layer(LARGE, HeaderFamily::None, times)),
    ("layer, headers", |times| layer(LARGE, HeaderFamily::Draft11, times)),
    ("layer, denied", |times| layer(SMALL, HeaderFamily::Draft11, times)),
    ("no layer", |times| requests(Bare, times)),
    ("address behind two proxies", address),
];

const LARGE: Quota = Quota::token_bucket(1, SECOND).capacity(4_000_000_000);
const SMALL: Quota = Quota::token_bucket(1, HOUR);

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [name, times] => {
            let (_, path) = PATHS.iter().find(|(other, _)| other == name).expect("the name of a path");
            // Calibrate the clock before the counting starts.
            decision(LARGE, 1);
            counted(*path, times.parse().expect("a number"));
        }
        _ => PATHS.iter().for_each(|(name, _)| println!("{name}")),
    }
}

/// The function whose instructions callgrind counts (see `measure.sh`).
#[inline(never)]
fn counted(path: fn(u64), times: u64) {
    path(black_box(times));
}

fn decision(quota: Quota, times: u64) {
    let (limiter, policy) = (limiter(), Policy::new("api", quota));
    let key = String::from("user-00000000001-17");
    for _ in 0..times {
        drop(black_box(now(limiter.try_limit(black_box(&policy), black_box(&key)))).expect("in memory"));
    }
}

/// Uses only the verdict, so that the compiler can omit the rest of the decision.
fn verdict(quota: Quota, times: u64) {
    let (limiter, policy) = (limiter(), Policy::new("api", quota));
    let key = String::from("user-00000000001-17");
    for _ in 0..times {
        black_box(limiter.limit_now(black_box(&policy), black_box(&key)).is_ok());
    }
}

fn three_charges(times: u64) {
    let limiter = limiter();
    let policies = ["address", "user", "route"].map(|name| Policy::new(name, LARGE));
    for _ in 0..times {
        let charges = policies.iter().map(|policy| Charge::new(policy, black_box("user-00000000001-17")));
        assert!(black_box(now(limiter.try_limit_all(charges))).expect("in memory").is_allowed());
    }
}

/// Makes decisions with an observer that does nothing.
fn observed(times: u64) {
    #[derive(Debug)]
    struct Nothing;
    impl Observer for Nothing {
        fn decided(&self, observed: &Decided<'_>) {
            black_box(observed.decision());
        }
    }
    let backend = MemoryBackend::builder().max_rows(1000).build();
    let limiter = RateLimiter::builder(backend).observer(Nothing).build();
    let policy = Policy::new("api", LARGE);
    for _ in 0..times {
        let decision = now(limiter.try_limit(black_box(&policy), black_box("user-00000000001-17"))).expect("in memory");
        assert!(black_box(decision).is_allowed());
    }
}

fn new_keys(times: u64) {
    let (limiter, policy) = (limiter(), Policy::new("api", LARGE));
    for key in 0..times {
        drop(black_box(now(limiter.try_limit(black_box(&policy), black_box(key)))).expect("in memory"));
    }
}

/// Creates a key and computes its digest.
fn digest(times: u64, key: impl Fn() -> Key) {
    let secret = Secret::new(SECRET);
    for _ in 0..times {
        black_box(secret.digest(&key()));
    }
}

fn layer(quota: Quota, headers: HeaderFamily, times: u64) {
    let layer = RateLimitLayer::new(Policy::new("api", quota), key::client_ip()).limiter(&limiter()).headers(headers);
    requests(layer.layer(Bare), times);
}

fn requests<B>(mut service: impl Service<Request<()>, Response = Response<B>, Error = Infallible>, times: u64) {
    let peer = SocketAddr::from(([192, 0, 2, 1], 443));
    for _ in 0..times {
        let mut request = Request::new(());
        request.extensions_mut().insert(PeerAddr(peer));
        let Ok(()) = now(std::future::poll_fn(|cx| service.poll_ready(cx)));
        let Ok(response) = now(service.call(black_box(request)));
        drop(black_box(response));
    }
}

fn address(times: u64) {
    let extractor = key::client_ip().trust(["10.0.0.0/8"]);
    let mut request = Request::new(());
    request.extensions_mut().insert(PeerAddr(SocketAddr::from((Ipv4Addr::new(10, 0, 0, 1), 443))));
    let forwarded = "203.0.113.7, 198.51.100.1, 10.0.0.2".parse().expect("a header");
    request.headers_mut().insert("x-forwarded-for", forwarded);
    let (parts, ()): (Parts, ()) = request.into_parts();
    for _ in 0..times {
        black_box(extractor.extract(black_box(&parts)));
    }
}

/// Creates a limiter with a fixed secret, so that the counts are reproducible.
fn limiter() -> RateLimiter {
    RateLimiter::builder(MemoryBackend::new()).secret(Secret::new(SECRET)).build()
}

const SECRET: [u8; 16] = *b"the same always!";

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

fn now<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("in memory"),
    }
}
