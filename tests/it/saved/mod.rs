//! Saving a limiter's state and loading it into another limiter.

mod clocks;
mod damaged;
mod files;
mod histories;
mod million;
mod round_trip;

use tollgate::clock::ManualClock;
use tollgate::key::Secret;
use tollgate::{MemoryBackend, RateLimiter};

const SECRET: [u8; 16] = *b"a secret of 16 b";

/// Creates a limiter whose state can be saved.
fn limiter(clock: &ManualClock) -> RateLimiter {
    RateLimiter::new(backend(clock))
}

fn backend(clock: &ManualClock) -> MemoryBackend {
    MemoryBackend::builder().clock(clock.clone()).secret(Secret::new(SECRET)).build()
}

fn saved(limiter: &RateLimiter) -> Vec<u8> {
    let mut state = Vec::new();
    let saved = limiter.save(&mut state).expect("failed to save the state");
    assert_eq!(saved.bytes, state.len() as u64);
    state
}

/// Saves the state of `before` and loads it into a new limiter.
fn restarted(before: &RateLimiter, clock: &ManualClock) -> RateLimiter {
    let after = limiter(clock);
    after.load(&saved(before)[..]).expect("failed to load the state");
    after
}
