//! Counts a million keys in three orders. The hundred heaviest keys must be among the first two hundred that `Top`
//! reports, each count must be within its error bound, and memory must stay bounded.

#![allow(clippy::unwrap_used, clippy::expect_used)] // Panicking is how tests and their helpers fail.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tollgate::clock::ManualClock;
use tollgate::observe::{Top, TopKeys};
use tollgate::{Key, MINUTE, Policy, Quota, RateLimiter};

mod support;
use support::backends::NoRows;
use support::now;

static ONE: Policy = Policy::new("one", Quota::token_bucket(1, MINUTE));

const KEYS: u32 = 1_000_000;
/// The number of charges to the heaviest key. The key with rank `k` gets this number divided by `k`, but at least one.
const HEAVIEST: u32 = 50_000;
const MAX_KEYS: usize = 8192;
/// The memory bound: the two sketches of a policy, and 12 MiB for the rest of the process.
const MAX_BYTES: u64 = 2 * MAX_KEYS as u64 * 128 + (12 << 20);

fn charges_of(rank: u32) -> u32 {
    (HEAVIEST / rank).max(1)
}

// There is only one test in this file, because it measures the memory of the whole process.
#[test]
fn the_heaviest_of_a_million_keys_are_found_in_bounded_memory() {
    let shuffled = shuffled();
    let bare = time(&RateLimiter::new(NoRows(ManualClock::new())), shuffled.iter().copied());
    check("shuffled", shuffled.iter().copied(), Some(bare));
    check("heaviest first", (1..=KEYS).flat_map(|rank| (0..charges_of(rank)).map(move |_| rank)), None);
    // Each round contains every key that has charges left, so charges to light keys come between charges to heavy keys.
    check("in rounds", (1..=HEAVIEST).flat_map(|round| 1..=if round == 1 { KEYS } else { HEAVIEST / round }), None);
}

fn check(order: &str, keys: impl Iterator<Item = u32>, bare: Option<(u64, Duration)>) {
    let before = resident_bytes();
    let top = Arc::new(Top::new().max_keys(MAX_KEYS));
    let limiter = RateLimiter::builder(NoRows(ManualClock::new())).observer(Arc::clone(&top)).build();
    let (calls, lasted) = time(&limiter, keys);
    let grown = resident_bytes().saturating_sub(before);
    let ns = |(calls, lasted): (u64, Duration)| lasted.as_nanos() as f64 / calls as f64;
    println!("{order}: {calls} denied calls, {:.0} ns each; memory grew by {} KiB", ns((calls, lasted)), grown >> 10);
    assert!(grown < MAX_BYTES, "{order}: memory grew by {grown} bytes");
    if let Some(bare) = bare {
        let cost = ns((calls, lasted)) - ns(bare);
        println!(
            "  {:.0} ns each without `Top`: observing a denial costs {cost:.0} ns (each denial is counted twice)",
            ns(bare)
        );
    }
    let ranks: HashMap<_, _> = (1..=KEYS).map(|rank| (limiter.digest(Some(&Key::from(rank))), rank)).collect();
    assert_eq!(ranks.len(), KEYS as usize);
    for list in [top.requested(ONE.name(), usize::MAX), top.refused(ONE.name(), usize::MAX)] {
        assert_eq!(list.total(), calls, "{order}");
        check_counts(order, &list, |digest| ranks[&digest]);
    }
}

fn check_counts(order: &str, list: &TopKeys, rank_of: impl Fn(tollgate::key::Digest) -> u32) {
    assert_eq!(list.keys().len(), MAX_KEYS, "{order}");
    let mut listed: HashMap<u32, usize> = HashMap::new();
    for (position, key) in list.keys().iter().enumerate() {
        let rank = rank_of(key.digest());
        let charges = u64::from(charges_of(rank));
        let least = key.count() - key.max_error();
        assert!((least..=key.count()).contains(&charges), "{order}, rank {rank}, {charges} charges: {key:?}");
        assert!(key.max_error() <= list.max_error(), "{order}, rank {rank}: {key:?}");
        listed.insert(rank, position);
    }
    let last = (1..=100).map(|rank| listed.get(&rank).copied().unwrap_or(usize::MAX)).max();
    println!(
        "  the 100 heaviest keys are among the first {} listed; counts are too high by at most {} ({} calls in total)",
        last.map_or(0, |last| last.saturating_add(1)),
        list.max_error(),
        list.total()
    );
    assert!(last < Some(200), "{order}: {last:?}");
    let missing = (1..=KEYS).find(|rank| !listed.contains_key(rank)).expect("expected more keys than counters");
    assert!(u64::from(charges_of(missing)) <= list.max_error(), "{order}: rank {missing} is missing");
    // The bound is the documented estimate plus a margin, because the keys are distributed among the shards at random.
    assert!(list.max_error() <= list.total() / MAX_KEYS as u64 * 5 / 4, "{order}: {}", list.max_error());
}

/// Makes a call for each key. Returns the number of calls and their duration.
fn time(limiter: &RateLimiter, keys: impl Iterator<Item = u32>) -> (u64, Duration) {
    let (begin, mut calls) = (Instant::now(), 0);
    for key in keys {
        // The cost is above the capacity, so the call is denied.
        drop(now(limiter.try_acquire(&ONE, key).cost(2)));
        calls += 1;
    }
    (calls, begin.elapsed())
}

fn shuffled() -> Vec<u32> {
    let mut keys: Vec<u32> = (1..=KEYS).flat_map(|rank| (0..charges_of(rank)).map(move |_| rank)).collect();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for place in (1..keys.len()).rev() {
        // xorshift64
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        keys.swap(place, (state % (place as u64 + 1)) as usize);
    }
    keys
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("expected a readable /proc/self/statm (Linux only)");
    let pages: u64 =
        statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("expected the number of resident pages");
    pages * 4096
}
