//! Ten million random keys against a table of a million rows: memory holds, and whoever was denied stays denied.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tollgate::{DAY, MemoryBackend, Policy, Quota, RateLimiter, clock::ManualClock};

mod support;
use support::now;

const KEYS: u64 = 10_000_000;
const MAX_ROWS: usize = 1_000_000;
/// A row of 40 bytes and its control byte, in a table that is at its emptiest just after growing (churn may make it grow
/// once more than its rows need), and something for whatever else a test process does.
const MAX_BYTES: u64 = MAX_ROWS as u64 * 41 * 16 / 7 * 2 + 64 * 1024 * 1024;

// One after the other: each looks at what the whole process holds.
#[test]
fn a_flood_of_keys_is_held_and_lets_nobody_out() {
    flood(Quota::token_bucket(100, DAY));
    // Every row that there is room for gets exhausted.
    flood(Quota::token_bucket(1, DAY));
    flood(Quota::sliding_window(3, DAY));
    reclaim();
}

fn flood(quota: Quota) {
    let policy = Policy::new("flood", quota);
    let backend = Arc::new(MemoryBackend::builder().max_rows(MAX_ROWS).clock(ManualClock::new()).build());
    let limiter = RateLimiter::new(Arc::clone(&backend));
    let before = resident_bytes();

    // Some are denied before the flood.
    for victim in 0..100 {
        while now(limiter.try_limit(&policy, ("victim", victim))).is_allowed() {}
    }
    let (mut slowest, mut admitted, mut most_rows) = (Duration::ZERO, 0u64, 0);
    let begin = Instant::now();
    for key in 0..KEYS {
        let call = Instant::now();
        admitted += u64::from(now(limiter.try_limit(&policy, ("flood", key))).is_allowed());
        slowest = slowest.max(call.elapsed());
        if key % 100_000 == 0 {
            most_rows = most_rows.max(backend.len());
        }
    }
    most_rows = most_rows.max(backend.len());
    let grown = resident_bytes().saturating_sub(before);
    println!(
        "{quota}: {KEYS} keys in {:.1?}, {admitted} admitted, at most {most_rows} rows, {} MiB, slowest call {slowest:.1?}",
        begin.elapsed(),
        grown >> 20,
    );
    assert!(most_rows <= MAX_ROWS, "{most_rows} rows");
    assert!(grown < MAX_BYTES, "{grown} bytes");
    for victim in 0..100 {
        assert!(
            !now(limiter.try_limit(&policy, ("victim", victim))).is_allowed(),
            "victim {victim} was let out by the flood"
        );
    }
    if quota.limit() == 1 {
        // Every row that there was room for, and then the shared ones: sixteen in each of 256 shards.
        assert!(admitted <= MAX_ROWS as u64 + 16 * 256, "{admitted} newcomers were admitted to a full table");
    } else {
        assert!(admitted > KEYS / 2, "only {admitted} newcomers were admitted, though most rows could make room");
    }
}

/// Rows that are paid back are dropped as newcomers come.
fn reclaim() {
    let clock = ManualClock::new();
    let backend = Arc::new(MemoryBackend::builder().clock(clock.clone()).build());
    let limiter = RateLimiter::new(Arc::clone(&backend));
    // A hundred newcomers a millisecond, each worth remembering for a second: a hundred thousand at a time.
    let policies = [
        Policy::new("tb", Quota::token_bucket(1, Duration::from_secs(1))),
        Policy::new("fw", Quota::fixed_window(1, Duration::from_millis(500))),
        Policy::new("sw", Quota::sliding_window(1, Duration::from_millis(500))),
    ];
    let mut most_rows = 0;
    for key in 0..2_000_000u64 {
        assert!(now(limiter.try_limit(&policies[(key % 3) as usize], key)).is_allowed());
        if key % 100 == 0 {
            clock.advance(Duration::from_millis(1));
            most_rows = most_rows.max(backend.len());
        }
    }
    println!("at most {most_rows} rows where 100000 are worth remembering");
    assert!(most_rows < 200_000, "{most_rows} rows");
}

/// What the process holds in memory, by Linux's own account.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux tells a process its memory");
    let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("resident pages");
    pages * 4096
}
