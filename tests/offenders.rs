//! Three floods with a total of two million offenders, and a flood of half a million keys that a remote backend denies.
//! Memory use must stay bounded, and the worst offenders must stay blocked.

#![allow(clippy::unwrap_used, clippy::expect_used)] // Panicking is how tests and their helpers fail.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tollgate::{
    DAY, HOUR, MINUTE, Policy, Quota, RateLimiter, Reason, SECOND, Subject, clock::ManualClock, protection::AutoBlock,
};

mod support;
use support::backends::NoRows;
use support::now;
use support::test_backend::TestBackend;

static ONE: Policy = Policy::new("one", Quota::token_bucket(1, MINUTE));

/// The number of ordinary offenders in each of the first two floods. The third flood has fewer ordinary offenders, but
/// each of them calls nineteen times.
const OTHERS: u64 = 1_000_000;
const WORST: u64 = 500;
const MAX_ENTRIES: usize = 50_000;
const THRESHOLD: u32 = 20;
/// The memory bound for each of the three floods: 64 bytes per entry, a lock for every eight entries, and 12 MiB for
/// everything else.
const MAX_BYTES: u64 = MAX_ENTRIES as u64 * 72 + (12 << 20);

struct Flood {
    limiter: RateLimiter,
    clock: ManualClock,
}

impl Flood {
    fn new() -> Flood {
        let clock = ManualClock::new();
        let rules = AutoBlock::new([&ONE]).threshold(THRESHOLD).within(10 * MINUTE).block_for(HOUR);
        let rules = rules.max_entries(MAX_ENTRIES);
        Flood { limiter: RateLimiter::builder(NoRows(clock.clone())).auto_block(rules).build(), clock }
    }

    /// Makes a call that costs more than the capacity, so it is denied and stores no row.
    fn offend(&self, key: impl Into<Subject>) -> Reason {
        now(self.limiter.try_acquire(&ONE, key).cost(2)).reason()
    }

    fn worst(&self, number: u64) -> Reason {
        self.offend(("worst", number))
    }

    fn check(&self, order: &str) {
        let stats = self.limiter.stats();
        println!("{order}: {} remembered, {} blocked", stats.offenders, stats.blocked);
        assert!(stats.offenders <= MAX_ENTRIES, "{order}: {} offenders remembered", stats.offenders);
        assert_eq!((self.blocked(), stats.blocked as u64), (WORST, WORST), "{order}");
    }

    fn blocked(&self) -> u64 {
        (0..WORST).filter(|i| now(self.limiter.try_check(&ONE, ("worst", *i))).reason() == Reason::Blocked).count()
            as u64
    }
}

// There is only one test in this file, because it measures the memory of the whole process.
#[test]
fn floods_neither_exceed_the_memory_bound_nor_unblock_the_worst_offenders() {
    half_a_million_denied_keys();
    let (before, begin) = (resident_bytes(), Instant::now());
    std::thread::scope(|scope| {
        scope.spawn(first_then_silent);
        scope.spawn(interleaved);
        just_below_the_threshold();
    });
    let grown = resident_bytes().saturating_sub(before);
    println!("more than two million offenders in {:.1?}: memory grew by {} KiB", begin.elapsed(), grown >> 10);
    assert!(grown < 3 * MAX_BYTES, "memory grew by {grown} bytes");
}

/// The worst offenders call first. After that, each ordinary offender calls once.
fn first_then_silent() {
    let flood = Flood::new();
    for _ in 0..THRESHOLD {
        for i in 0..WORST {
            flood.worst(i);
        }
    }
    assert_eq!(flood.blocked(), WORST);
    for other in 0..OTHERS {
        flood.offend(other);
        if other % 1000 == 0 {
            flood.clock.advance(SECOND / 2);
        }
    }
    flood.check("first, then silent");
}

/// Each of the worst offenders calls once for every five thousand calls by ordinary offenders.
fn interleaved() {
    let flood = Flood::new();
    for other in 0..OTHERS {
        flood.offend(other);
        if other % 10 == 0 {
            flood.worst(other / 10 % WORST);
        }
        if other % 1000 == 0 {
            flood.clock.advance(SECOND / 10);
        }
    }
    flood.check("interleaved");
}

/// Each ordinary offender makes one call fewer than the threshold.
fn just_below_the_threshold() {
    let flood = Flood::new();
    let rounds = u64::from(THRESHOLD - 1);
    for other in 0..OTHERS / 20 / rounds * 5 {
        for again in 0..rounds {
            flood.offend(other);
            let call = other * rounds + again;
            if call % 10 == 0 {
                flood.worst(call / 10 % WORST);
            }
            if call % 1000 == 0 {
                flood.clock.advance(SECOND / 10);
            }
        }
    }
    flood.check("just below the threshold");
}

fn half_a_million_denied_keys() {
    let (before, begin) = (resident_bytes(), Instant::now());
    let clock = ManualClock::new();
    let backend = TestBackend::remote(&clock);
    let hot = Policy::new("hot", Quota::token_bucket(1, DAY));
    let limiter = RateLimiter::builder(Arc::clone(&backend)).block_cache(ROWS).build();
    let ask = |key: u64| {
        clock.advance(Duration::from_micros(1));
        // The check is denied and stores no row.
        assert!(!now(limiter.try_acquire(&hot, key).cost(2).check()).is_allowed());
    };
    (0..500_000).for_each(ask);
    let grown = resident_bytes().saturating_sub(before);
    println!("half a million denied keys in {:.1?}: memory grew by {} KiB", begin.elapsed(), grown >> 10);
    assert!(grown < ROWS as u64 * 128 + (2 << 20), "memory grew by {grown} bytes");
    assert_eq!(backend.take_calls(), 500_000);
    // The cache does not exceed its capacity, and it contains most of the latest keys.
    (500_000 - 2 * ROWS as u64..500_000).rev().for_each(ask);
    let known = 2 * ROWS - backend.take_calls();
    println!("{known} of {ROWS} rows cached");
    assert!(known <= ROWS && known > ROWS / 2, "{known}");
}

const ROWS: usize = 16_384;

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("expected a readable /proc/self/statm (Linux only)");
    let pages: u64 =
        statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("expected the number of resident pages");
    pages * 4096
}
