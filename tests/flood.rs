//! Floods a table with ten times as many keys as it may have rows. Memory must stay bounded, and denied keys must stay
//! denied. `TOLLGATE_KEYS` is the number of keys (default: a million).

use std::sync::Arc;
use std::time::{Duration, Instant};

use tollgate::{DAY, MemoryBackend, Policy, Quota, RateLimiter, clock::ManualClock};

mod support;
use support::now;

// There is only one test in this file, because it measures the memory of the whole process.
#[test]
fn a_flood_of_keys_uses_bounded_memory_and_evicts_no_denied_key() {
    let keys =
        std::env::var("TOLLGATE_KEYS").map_or(1_000_000, |keys| keys.parse().expect("expected a number of keys"));
    flood(Quota::token_bucket(100, DAY), keys);
    // Each key spends its whole quota.
    flood(Quota::token_bucket(1, DAY), keys);
    flood(Quota::sliding_window(3, DAY), keys);
    reclaim();
}

fn flood(quota: Quota, keys: u64) {
    let rows = keys as usize / 10;
    let policy = Policy::new("flood", quota);
    let backend = Arc::new(MemoryBackend::builder().max_rows(rows).clock(ManualClock::new()).build());
    let limiter = RateLimiter::new(Arc::clone(&backend));
    let before = resident_bytes();

    for victim in 0..100 {
        while now(limiter.try_limit(&policy, ("victim", victim))).is_allowed() {}
    }
    let (mut slowest, mut admitted, mut max_rows) = (Duration::ZERO, 0u64, 0);
    let begin = Instant::now();
    for key in 0..keys {
        let call = Instant::now();
        admitted += u64::from(now(limiter.try_limit(&policy, ("flood", key))).is_allowed());
        slowest = slowest.max(call.elapsed());
        if key % 10_000 == 0 {
            max_rows = max_rows.max(backend.len());
        }
    }
    max_rows = max_rows.max(backend.len());
    let grown = resident_bytes().saturating_sub(before);
    println!(
        "{quota}: {keys} keys in {:.1?}, {admitted} admitted, at most {max_rows} rows, {} MiB, slowest call {slowest:.1?}",
        begin.elapsed(),
        grown >> 20,
    );
    assert!(max_rows <= rows, "{max_rows} rows");
    assert!(grown < max_bytes(rows), "{grown} bytes");
    for victim in 0..100 {
        assert!(
            !now(limiter.try_limit(&policy, ("victim", victim))).is_allowed(),
            "the flood evicted the denied row of victim {victim}"
        );
    }
    if quota.get_capacity() == 1 {
        // At most one new key is admitted per row and per overflow row. Each of the 256 shards has 16 overflow rows.
        assert!(admitted <= rows as u64 + 16 * 256, "{admitted} new keys were admitted to a full table");
    } else {
        assert!(admitted > keys / 2, "only {admitted} new keys were admitted, although most rows could be evicted");
    }
}

fn reclaim() {
    let clock = ManualClock::new();
    let backend = Arc::new(MemoryBackend::builder().clock(clock.clone()).build());
    let limiter = RateLimiter::new(Arc::clone(&backend));
    // A hundred new keys are added each millisecond and expire after a second, so 100,000 rows are live.
    let policies = [
        Policy::new("tb", Quota::token_bucket(1, Duration::from_secs(1))),
        Policy::new("fw", Quota::fixed_window(1, Duration::from_millis(500))),
        Policy::new("sw", Quota::sliding_window(1, Duration::from_millis(500))),
    ];
    let mut max_rows = 0;
    for key in 0..500_000u64 {
        assert!(now(limiter.try_limit(&policies[(key % 3) as usize], key)).is_allowed());
        if key % 100 == 0 {
            clock.advance(Duration::from_millis(1));
            max_rows = max_rows.max(backend.len());
        }
    }
    println!("at most {max_rows} rows, of which 100000 have not expired");
    assert!(max_rows < 200_000, "{max_rows} rows");
}

/// Returns the memory bound. A row takes 40 bytes and a control byte. A table that has just grown is 7/16 full, and adding
/// and removing rows can double its size once more. The rest of the process may use 16 MiB.
fn max_bytes(max_rows: usize) -> u64 {
    max_rows as u64 * 41 * 16 / 7 * 2 + 16 * 1024 * 1024
}

/// Returns the resident memory of the process in bytes.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("expected a readable /proc/self/statm (Linux only)");
    let pages: u64 =
        statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("expected the number of resident pages");
    pages * 4096
}
