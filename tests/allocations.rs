//! Counts the heap allocations of decisions and of the layer.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::{IpAddr, Ipv4Addr};

use http::{HeaderMap, HeaderValue, Request, Response};
use tollgate::{Charge, HOUR, Policy, Quota, RateLimitLayer, RateLimiter, Subject};
use tower::{Layer, Service};

mod support;
use support::now;

const API: Policy = Policy::new("api", Quota::token_bucket(1_000_000, HOUR));
const OTHER: Policy = Policy::new("other", Quota::fixed_window(1_000_000, HOUR));

#[test]
fn an_allowed_decision_allocates_nothing() {
    let limiter = RateLimiter::default();
    let tiers = API.tier("premium", Quota::token_bucket(2_000_000, HOUR));
    let text = "user-0123456789abcdef";
    let address = IpAddr::from(Ipv4Addr::LOCALHOST);
    let subject = Subject::new(7u64).tier("premium");
    for _ in 0..2 {
        now(limiter.limit(&API, text));
        now(limiter.limit(&API, (text, address)));
        now(limiter.limit(&tiers, subject.clone()));
    }
    assert_eq!(allocations(|| assert!(now(limiter.try_limit(&API, text)).is_allowed())), 0, "text key");
    assert_eq!(allocations(|| assert!(now(limiter.try_limit(&API, (text, address))).is_allowed())), 0, "tuple key");
    assert_eq!(allocations(|| assert!(now(limiter.try_limit(&tiers, subject.clone())).is_allowed())), 0, "tier");
    assert_eq!(allocations(|| assert!(now(limiter.try_check(&API, text)).is_allowed())), 0, "check");
}

#[test]
fn a_denied_decision_allocates_nothing() {
    let limiter = RateLimiter::default();
    let policy = Policy::new("one", Quota::token_bucket(1, HOUR));
    now(limiter.limit(&policy, 7));
    assert_eq!(allocations(|| assert!(!now(limiter.try_limit(&policy, 7)).is_allowed())), 0);
}

#[cfg(all(feature = "metrics", feature = "tracing"))]
#[test]
fn an_observed_decision_allocates_nothing() {
    use tollgate::observe::{Metrics, Tracing};

    struct NoopObserver;
    impl tollgate::observe::Observer for NoopObserver {
        fn decided(&self, _: &tollgate::observe::Decided<'_>) {}
    }
    let builder = || RateLimiter::builder(tollgate::MemoryBackend::new());
    let policy = Policy::new("three", Quota::token_bucket(3, HOUR));
    let limiters = [
        builder().observer(NoopObserver).build(),
        builder().observer(Metrics::new()).build(),
        builder().observer(Tracing::new()).build(),
    ];
    for limiter in limiters {
        let counts = [0; 5].map(|_| allocations(|| drop(now(limiter.try_limit(&policy, 7)))));
        // The first allowed call and the first denied call may each allocate a counter.
        assert_eq!([counts[1], counts[2], counts[4]], [0; 3], "{counts:?}");
    }
}

#[test]
fn a_call_with_two_charges_allocates_at_most_three_lists() {
    let limiter = RateLimiter::default();
    let (api, other) = (API, OTHER);
    let charges = || [Charge::new(&api, 7), Charge::new(&other, 7)];
    now(limiter.limit_all(charges()));
    // The lists of steps, charges and decisions allocate once each, because a list stores only one element inline.
    assert!(allocations(|| assert!(now(limiter.try_limit_all(charges())).is_allowed())) <= 3);
}

#[test]
fn the_layer_allocates_only_headers() {
    let key = |_: &http::request::Parts| 7;
    let bare = allocations_per_call(Inner);
    let without_headers =
        allocations_per_call(RateLimitLayer::new(API, key).headers(tollgate::HeaderFamily::None).layer(Inner));
    let with_headers = allocations_per_call(RateLimitLayer::new(API, key).layer(Inner));
    println!(
        "allocations per request: {bare} without the layer, {without_headers} without headers, {with_headers} with headers"
    );
    assert_eq!(without_headers, bare, "without headers");
    // `RateLimit` is rendered for each response, but `RateLimit-Policy` only once for the layer.
    assert_eq!(with_headers, bare + 1, "with headers");
}

#[test]
fn a_refusal_allocates_only_its_headers_and_body() {
    let key = |_: &http::request::Parts| 7;
    let one = Policy::new("one", Quota::token_bucket(1, HOUR));
    let mut service = RateLimitLayer::new(one, key).layer(Inner);
    for _ in 0..3 {
        now(service.call(Request::new(())));
    }
    let request = Request::new(());
    let mut response = None;
    let count = allocations(|| response = Some(now(service.call(request))));
    assert_eq!(response.as_ref().map(|response| response.status().as_u16()), Some(429));
    // The header map and the body allocate twice each. The values of `RateLimit` and `Retry-After` allocate once each.
    assert_eq!(count, 6);
    drop(response);
}

/// Returns the number of allocations in one call, after three warm-up calls.
fn allocations_per_call<S, B>(mut service: S) -> usize
where
    S: Service<Request<()>, Response = Response<B>, Error = Infallible>,
{
    for _ in 0..3 {
        now(service.call(Request::new(())));
    }
    let request = Request::new(());
    let mut response = None;
    let count = allocations(|| response = Some(now(service.call(request))));
    drop(response);
    count
}

/// A service whose responses have a header map with spare capacity, as real responses do.
#[derive(Clone)]
struct Inner;

impl Service<Request<()>> for Inner {
    type Response = Response<()>;
    type Error = Infallible;
    type Future = Ready<Result<Response<()>, Infallible>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        let mut headers = HeaderMap::with_capacity(8);
        headers.insert("content-type", HeaderValue::from_static("text/plain"));
        let mut response = Response::new(());
        *response.headers_mut() = headers;
        ready(Ok(response))
    }
}

fn allocations(work: impl FnOnce()) -> usize {
    let before = COUNT.get();
    work();
    COUNT.get() - before
}

thread_local! {
    // The count is per thread, because the harness runs tests in parallel.
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

struct CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

// SAFETY: every call is forwarded unchanged to the system allocator, which upholds the contract.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the caller upholds the contract of `GlobalAlloc`, which the system allocator requires.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: as in `alloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as in `alloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}
