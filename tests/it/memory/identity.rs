//! Policies are identified by their names.

use tollgate::{HOUR, MemoryBackend, Policy, Quota, RateLimiter};

use crate::support::now;

/// Two names with the same FNV-1a hash. Policies were once identified by this hash.
const PAIR: [&str; 2] = ["8yn0iYCKYHlIj4-BwPqk", "GReLUrM4wMqfg9yzV3KQ"];

#[test]
fn policies_with_colliding_name_hashes_have_separate_rows() {
    let [one, other] = PAIR.map(|name| Policy::new(name, Quota::token_bucket(2, HOUR)));
    let limiter = RateLimiter::new(MemoryBackend::new());
    assert_eq!((0..3).filter(|_| now(limiter.try_limit(&one, "ada")).is_allowed()).count(), 2);
    assert_eq!((0..3).filter(|_| now(limiter.try_limit(&other, "ada")).is_allowed()).count(), 2);
}
