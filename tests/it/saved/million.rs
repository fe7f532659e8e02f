//! Measures how long it takes to save and load a million rows. Run it with
//! `cargo test --release --all-features --test it saved::million -- --ignored --nocapture`.

use std::time::Instant;

use tollgate::key::Secret;
use tollgate::{DAY, MemoryBackend, Policy, Quota, RateLimiter};

use super::SECRET;
use crate::support::now;

#[test]
#[ignore = "prints times, which are meaningful only in a release build"]
fn a_million_rows_are_saved_and_loaded() {
    const ROWS: u64 = 1_000_000;
    let api = Policy::new("api", Quota::token_bucket(10, DAY));
    let limiter = || RateLimiter::new(MemoryBackend::builder().max_rows(2_000_000).secret(Secret::new(SECRET)).build());
    let before = limiter();
    (0..ROWS).for_each(|key| drop(now(before.try_limit(&api, key))));
    let path = std::env::temp_dir().join(format!("tollgate-million-{}.state", std::process::id()));
    for _ in 0..3 {
        let start = Instant::now();
        let mut state = Vec::new();
        let saved = before.save(&mut state).unwrap();
        let in_memory = start.elapsed();
        let start = Instant::now();
        before.save_to_file(&path).unwrap();
        let to_file = start.elapsed();
        let start = Instant::now();
        let after = limiter();
        let loaded = after.load_from_file(&path).unwrap().unwrap();
        let from_file = start.elapsed();
        assert_eq!((saved.rows as u64, loaded.rows as u64), (ROWS, ROWS));
        assert_eq!(now(after.remaining(&api, 7u64)), 9);
        println!(
            "{ROWS} rows, {} MB: saved to memory in {in_memory:?}, saved to a file and flushed in {to_file:?}, loaded \
             from the file in {from_file:?}",
            saved.bytes / 1_000_000
        );
    }
    std::fs::remove_file(&path).unwrap();
}
