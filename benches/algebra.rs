//! Benchmarks of the arithmetic alone: one step of each algorithm, allowed and denied. Run them with
//! `cargo bench --bench algebra`.

use std::time::Duration;

use divan::{Bencher, black_box};
use tollgate::algorithm::{Ask, Micros, State, step};
use tollgate::{MINUTE, Quota};

const QUOTAS: [(&str, Quota); 3] = [
    ("token bucket", Quota::token_bucket(100, MINUTE)),
    ("fixed window", Quota::fixed_window(100, MINUTE).start(Duration::ZERO)),
    ("sliding window", Quota::sliding_window(100, MINUTE).start(Duration::ZERO)),
];

fn main() {
    divan::main();
}

#[divan::bench(args = names(), sample_count = 300, sample_size = 1000)]
fn allowed(bencher: Bencher, name: &str) {
    bench(bencher, name, 40.0);
}

#[divan::bench(args = names(), sample_count = 300, sample_size = 1000)]
fn denied(bencher: Bencher, name: &str) {
    bench(bencher, name, 100.0);
}

/// Measures a step on a row from which `spent` tokens have just been spent.
fn bench(bencher: Bencher, name: &str, spent: f64) {
    let (_, quota) = QUOTAS.iter().find(|(other, _)| *other == name).expect("a quota");
    // Take the stamp from a row that the quota has written.
    let state = State { spent, ..step(quota, &State::default(), BEGIN, Ask::cost(1)).state };
    let later = BEGIN + Duration::from_millis(200);
    assert!(step(quota, &state, later, Ask::cost(1)).is_allowed() == (spent < 100.0));
    bencher.bench_local(|| step(black_box(quota), black_box(&state), black_box(later), black_box(Ask::cost(1))));
}

fn names() -> impl Iterator<Item = &'static str> {
    QUOTAS.into_iter().map(|(name, _)| name)
}

const BEGIN: Micros = Micros::new(1_767_225_630_000_000);
