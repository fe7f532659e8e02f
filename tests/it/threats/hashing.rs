//! Threat 9: keys chosen by an attacker to fall into the same bucket of a hash table.

use std::collections::HashMap;

use tollgate::{Key, RateLimiter, key::Secret};

#[test]
fn t09_keys_that_collide_under_one_secret_spread_under_another() {
    // An attacker who knows the secret can search for keys that all fall into the same bucket.
    let known = Secret::new([7; 16]);
    let colliding: Vec<Key> =
        (0_u64..).map(Key::from).filter(|key| bucket(&known, key) == 0).take(16 * BUCKETS as usize).collect();
    // Under an unknown secret, the same keys spread out, with about 16 in each bucket. The memory backend adds another
    // hash, which is tested by `positions_differ_between_placements_and_are_spread_evenly`.
    let secret = Secret::random();
    let mut bucket_sizes: HashMap<u64, usize> = HashMap::new();
    for key in &colliding {
        *bucket_sizes.entry(bucket(&secret, key)).or_default() += 1;
    }
    let largest = bucket_sizes.values().max().copied();
    // If keys are placed at random, the probability that any bucket gets more than 64 of them is below 10^-15.
    assert!(
        largest <= Some(64) && bucket_sizes.len() as u64 > BUCKETS * 9 / 10,
        "{largest:?} keys in the largest of {} buckets",
        bucket_sizes.len()
    );
}

#[test]
fn t09_each_limiter_has_a_different_secret() {
    let key = Key::from("ada");
    assert_ne!(RateLimiter::default().digest(Some(&key)), RateLimiter::default().digest(Some(&key)));
}

/// Returns the bucket of `key` in a table that has `BUCKETS` buckets and is indexed only by the digest.
fn bucket(secret: &Secret, key: &Key) -> u64 {
    secret.digest(key).to_bits() as u64 % BUCKETS
}

const BUCKETS: u64 = 256;
