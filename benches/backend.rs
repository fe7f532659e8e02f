//! Benchmarks of the memory backend with few and many keys. Run them with `cargo bench --bench backend`.

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use divan::{Bencher, black_box};
use tollgate::algorithm::Ask;
use tollgate::backend::{Backend, RowId, Steps, Take};
use tollgate::policy::{PolicyName, Quotas};
use tollgate::{DAY, HOUR, MINUTE, MemoryBackend, Policy, Quota, RateLimiter, WEEK, key::Digest};

const LARGE: Quota = Quota::token_bucket(1, MINUTE).capacity(100_000_000);
const SMALL: Quota = Quota::token_bucket(1, HOUR);

fn main() {
    divan::main();
}

#[divan::bench(args = [1, 10_000, 1_000_000], sample_count = 300, sample_size = 1000)]
fn allowed(bencher: Bencher, keys: u64) {
    let (backend, names) = filled(keys, &LARGE, 1);
    let turn = turns(keys);
    bencher.bench_local(|| assert!(acquire(&backend, &names, turn(), &LARGE).all_granted()));
}

#[divan::bench(args = [1, 10_000, 1_000_000], sample_count = 300, sample_size = 1000)]
fn denied(bencher: Bencher, keys: u64) {
    let (backend, names) = filled(keys, &SMALL, 1);
    let turn = turns(keys);
    bencher.bench_local(|| assert!(!acquire(&backend, &names, turn(), &SMALL).all_granted()));
}

#[divan::bench(args = [1, 10_000, 1_000_000], sample_count = 300, sample_size = 1000)]
fn three_takes(bencher: Bencher, keys: u64) {
    let (backend, names) = filled(keys, &LARGE, 3);
    let turn = turns(keys);
    bencher.bench_local(|| assert!(acquire(&backend, &names, turn(), &LARGE).all_granted()));
}

/// Measures calls to a limiter under a policy with this number of quotas.
#[divan::bench(args = [1, 2, 3, 4], sample_count = 300, sample_size = 1000)]
fn quotas_of_a_policy(bencher: Bencher, quotas: usize) {
    let periods = [MINUTE, HOUR, DAY, WEEK].into_iter().take(quotas);
    let list = periods.fold(None, |list: Option<Quotas>, period| {
        let quota = Quota::token_bucket(1_000_000_000, period);
        Some(list.map_or(quota.into(), |list| list.and(quota)))
    });
    let policy = Policy::try_new("several", list.expect("at least one quota")).expect("a valid policy");
    let limiter = RateLimiter::default();
    let next = Cell::new(0u64);
    bencher.bench_local(|| {
        next.set(next.get() + 1);
        assert!(limiter.limit_now(&policy, next.get() % 10_000).is_ok());
    });
}

/// Measures a million keys, including the growth of the table.
#[divan::bench(sample_count = 1000, sample_size = 1000)]
fn new_keys(bencher: Bencher) {
    let (backend, names) = filled(0, &LARGE, 1);
    let next = Cell::new(0);
    bencher.bench_local(|| {
        next.set(next.get() + 1);
        assert!(acquire(&backend, &names, scattered(next.get()), &LARGE).all_granted());
    });
}

/// Creates a backend with a row for each of `keys` keys under each of `policies` policies.
fn filled(keys: u64, quota: &Quota, policies: usize) -> (MemoryBackend, Vec<PolicyName>) {
    let backend = MemoryBackend::builder().max_rows(50_000_000).build();
    let names: Vec<_> =
        ["address", "user", "route"].into_iter().take(policies).map(|name| PolicyName::new(name)).collect();
    for key in 0..keys {
        acquire(&backend, &names, scattered(key), quota);
    }
    (backend, names)
}

/// Returns the next key, in pseudorandom order.
fn turns(keys: u64) -> impl Fn() -> Digest {
    let next = Cell::new(0u64);
    move || {
        next.set(next.get() + 1);
        scattered(next.get().wrapping_mul(0x9e37_79b1) % keys)
    }
}

/// Spreads numbers as a digest does.
fn scattered(key: u64) -> Digest {
    let half = |seed: u64| {
        let mut x = key.wrapping_add(seed).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        u128::from(x ^ (x >> 31))
    };
    Digest::from_bits(half(1) << 64 | half(0x9e37_79b9_7f4a_7c15))
}

fn acquire(backend: &MemoryBackend, names: &[PolicyName], key: Digest, quota: &Quota) -> Steps {
    let take = |policy| Take::new(RowId { policy, key }, quota, Ask::cost(1));
    let future = match names {
        [name] => backend.acquire(black_box(&[take(name)])),
        [a, b, c] => backend.acquire(black_box(&[take(a), take(b), take(c)])),
        _ => unreachable!("one or three"),
    };
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(steps) => steps.expect("in memory"),
        Poll::Pending => unreachable!("in memory"),
    }
}
