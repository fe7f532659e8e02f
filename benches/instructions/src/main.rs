//! Runs one of the common paths a given number of times. `measure.sh` counts the instructions of two such runs.
//!
//! Without arguments, prints the names of all paths.

mod peers;

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use http_body_util::Empty;
use tollgate::key::{self, KeyExtractor, PeerAddr, Secret};
use tollgate::observe::{Decided, Observer};
use tollgate::policy::Quotas;
use tollgate::protection::{DenyList, DenyRule, Signal};
use tollgate::{
    Charge, DAY, HOUR, HeaderFamily, Key, MemoryBackend, Policy, Quota, RateLimitLayer, RateLimiter, SECOND, Subject,
};
use tower_layer::Layer;
use tower_service::Service;

/// The name of a path, and a function that runs it a given number of times.
type Path = (&'static str, fn(u64));

const PATHS: [Path; 37] = [
    ("decision, allowed, hot key", |times| decision(LARGE, times)),
    ("decision, denied", |times| decision(SMALL, times)),
    ("decision, denied, capacity 10", |times| decision(SMALL.capacity(10), times)),
    ("decision, only the verdict used, allowed", |times| verdict(LARGE, times)),
    ("decision, only the verdict used, denied", |times| verdict(SMALL, times)),
    ("decision, three charges", |times| three_charges([LARGE; 3], times)),
    ("decision, three charges, last denied", |times| three_charges([LARGE, LARGE, SMALL], times)),
    ("decision, two quotas", |times| decide(&limiter(), &Policy::new("api", LARGE).and(PER_DAY), times)),
    ("decision, new key", new_keys),
    ("decision, new key, full table", new_keys_in_full_table),
    ("check, new key", |times| check(&limiter(), times)),
    ("check, known key", check_known),
    ("decision, fixed window", |times| decision(Quota::fixed_window(MANY, HOUR), times)),
    ("decision, sliding window", |times| decision(Quota::sliding_window(MANY, HOUR), times)),
    ("decision, observed", |times| observed(Nothing, times)),
    ("decision, counting observer", |times| observed(Counter::default(), times)),
    ("decision, deny list", deny_list),
    ("decision, another key blocked", another_key_blocked),
    ("decision, another policy changed", another_policy_changed),
    ("decision, another key changed", another_key_changed),
    ("decision, caller's own quotas, kept", own_quotas_kept),
    ("decision, caller's own quotas, new", own_quotas_new),
    ("key from text", |times| digest(times, || Key::from(black_box(NAME)))),
    ("key from an IPv4 address", |times| digest(times, || Key::from(black_box(IpAddr::from([192, 0, 2, 1]))))),
    ("key from a number", |times| digest(times, || Key::from(black_box(17u64)))),
    ("key from a tuple", |times| digest(times, || Key::from(black_box(("tenant", 17u64))))),
    ("layer, no headers", |times| layer(LARGE, HeaderFamily::None, times)),
    ("layer, headers", |times| layer(LARGE, HeaderFamily::Draft11, times)),
    ("layer, denied", |times| layer(SMALL, HeaderFamily::Draft11, times)),
    ("no layer", |times| requests(Bare, PeerAddr, times)),
    ("address behind two proxies", address),
    // `check.sh` knows the other crates by the beginning of the name.
    ("governor, allowed, hot key", |times| peers::decision(MANY, times)),
    ("governor, denied", |times| peers::decision(1, times)),
    ("tower_governor, no headers", |times| peers::layer(MANY, times)),
    ("tower_governor, headers", |times| peers::layer_with_headers(MANY, times)),
    ("tower_governor, denied", |times| peers::layer_with_headers(1, times)),
    ("tower_governor, no layer", peers::no_layer),
];

const MANY: u64 = 4_000_000_000;
const LARGE: Quota = Quota::token_bucket(1, SECOND).capacity(MANY);
const SMALL: Quota = Quota::token_bucket(1, HOUR);
const PER_DAY: Quota = Quota::token_bucket(MANY, DAY);

/// The caller of all decisions.
const NAME: &str = "user-00000000001-17";

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
    decide(&limiter(), &Policy::new("api", quota), times);
}

fn decide(limiter: &RateLimiter, policy: &Policy, times: u64) {
    let key = String::from(NAME);
    for _ in 0..times {
        drop(black_box(now(limiter.try_limit(black_box(policy), black_box(&key)))).expect("in memory"));
    }
}

/// Uses only the verdict, so that the compiler can omit the rest of the decision.
fn verdict(quota: Quota, times: u64) {
    let (limiter, policy) = (limiter(), Policy::new("api", quota));
    let key = String::from(NAME);
    for _ in 0..times {
        black_box(limiter.limit_now(black_box(&policy), black_box(&key)).is_ok());
    }
}

fn three_charges(quotas: [Quota; 3], times: u64) {
    let limiter = limiter();
    let [address, user, route] = quotas;
    let policies = [Policy::new("address", address), Policy::new("user", user), Policy::new("route", route)];
    for _ in 0..times {
        let charges = policies.iter().map(|policy| Charge::new(policy, black_box(NAME)));
        drop(black_box(now(limiter.try_limit_all(charges))).expect("in memory"));
    }
}

fn new_keys(times: u64) {
    let (limiter, policy) = (limiter(), Policy::new("api", LARGE));
    limit_numbers(&limiter, &policy, 0..times);
}

/// Every new key replaces an older one.
fn new_keys_in_full_table(times: u64) {
    let backend = MemoryBackend::builder().max_rows(1000).build();
    let limiter = RateLimiter::builder(backend).secret(Secret::new(SECRET)).build();
    let policy = Policy::new("api", LARGE);
    limit_numbers(&limiter, &policy, 0..3000);
    limit_numbers(&limiter, &policy, 3000..3000 + times);
}

fn limit_numbers(limiter: &RateLimiter, policy: &Policy, keys: Range<u64>) {
    for key in keys {
        drop(black_box(now(limiter.try_limit(black_box(policy), black_box(key)))).expect("in memory"));
    }
}

fn check(limiter: &RateLimiter, times: u64) {
    let (policy, key) = (Policy::new("api", LARGE), String::from(NAME));
    for _ in 0..times {
        drop(black_box(now(limiter.try_check(black_box(&policy), black_box(&key)))).expect("in memory"));
    }
}

fn check_known(times: u64) {
    let limiter = limiter();
    decide(&limiter, &Policy::new("api", LARGE), 1);
    check(&limiter, times);
}

/// An observer that does nothing.
#[derive(Debug)]
struct Nothing;

impl Observer for Nothing {
    fn decided(&self, observed: &Decided<'_>) {
        black_box(observed.decision());
    }
}

/// An observer that counts the allowed calls.
#[derive(Debug, Default)]
struct Counter(AtomicU64);

impl Observer for Counter {
    fn decided(&self, observed: &Decided<'_>) {
        self.0.fetch_add(observed.decision().is_allowed().into(), Ordering::Relaxed);
    }
}

fn observed(observer: impl Observer, times: u64) {
    let backend = MemoryBackend::builder().max_rows(1000).build();
    let limiter = RateLimiter::builder(backend).secret(Secret::new(SECRET)).observer(observer).build();
    decide(&limiter, &Policy::new("api", LARGE), times);
}

/// A deny list with a rule that does not match.
fn deny_list(times: u64) {
    let denied = DenyList::new();
    assert!(denied.insert(DenyRule::key("another")));
    let limiter = RateLimiter::builder(MemoryBackend::new()).secret(Secret::new(SECRET)).deny_list(&denied).build();
    decide(&limiter, &Policy::new("api", LARGE), times);
}

fn another_key_blocked(times: u64) {
    let limiter = limiter();
    now(limiter.block(Signal::key("another"), DAY)).expect("in memory");
    decide(&limiter, &Policy::new("api", LARGE), times);
}

fn another_policy_changed(times: u64) {
    let limiter = limiter();
    now(limiter.set_quota(&Policy::new("another", SMALL), Quotas::from(LARGE))).expect("in memory");
    decide(&limiter, &Policy::new("api", LARGE), times);
}

fn another_key_changed(times: u64) {
    let (limiter, policy) = (limiter(), Policy::new("api", LARGE));
    now(limiter.set_key_quota(&policy, "another", Quotas::from(SMALL))).expect("in memory");
    decide(&limiter, &policy, times);
}

/// The caller keeps a `Subject` with its quotas.
fn own_quotas_kept(times: u64) {
    let (limiter, policy) = (limiter(), Policy::new("api", SMALL));
    let subject = Subject::new(NAME).quota(LARGE);
    for _ in 0..times {
        let decision = now(limiter.try_limit(black_box(&policy), black_box(&subject).clone()));
        drop(black_box(decision).expect("in memory"));
    }
}

fn own_quotas_new(times: u64) {
    let (limiter, policy) = (limiter(), Policy::new("api", SMALL));
    let key = String::from(NAME);
    for _ in 0..times {
        let subject = Subject::new(black_box(&key)).quota(black_box(LARGE));
        drop(black_box(now(limiter.try_limit(black_box(&policy), subject))).expect("in memory"));
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
    requests(layer.layer(Bare), PeerAddr, times);
}

/// Sends requests from one address, which `peer` wraps in the type that the layer expects.
fn requests<S, B, P>(mut service: S, peer: fn(SocketAddr) -> P, times: u64)
where
    S: Service<Request<()>, Response = Response<B>, Error = Infallible>,
    P: Clone + Send + Sync + 'static,
{
    let address = SocketAddr::from(([192, 0, 2, 1], 443));
    for _ in 0..times {
        let mut request = Request::new(());
        request.extensions_mut().insert(peer(address));
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
