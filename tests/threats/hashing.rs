//! Threat 9: keys that were made to fall into one place of a hash table.

use std::collections::HashMap;

use tollgate::{Key, RateLimiter, key::Secret};

#[test]
fn t09_keys_that_meet_under_one_secret_scatter_under_another() {
    // Whoever knows the secret can look for keys that meet in one place of so many.
    let known = Secret::new([7; 16]);
    let meeting: Vec<Key> =
        (0_u64..).map(Key::from).filter(|key| place(&known, key) == 0).take(16 * PLACES as usize).collect();
    // That is sixteen for each place under a secret that they do not know, and nobody knows the one that is not given.
    // (Tables in memory have another hash besides: `places_differ_between_placements_and_are_spread_evenly`.)
    let secret = Secret::random();
    let mut crowds: HashMap<u64, usize> = HashMap::new();
    for key in &meeting {
        *crowds.entry(place(&secret, key)).or_default() += 1;
    }
    let most = crowds.values().max().copied();
    // The chance that one of 256 places gets more than 64 of them by itself is below 10^-15.
    assert!(most <= Some(64) && crowds.len() as u64 > PLACES * 9 / 10, "{most:?} in one of {}", crowds.len());
}

#[test]
fn t09_each_limiter_has_a_secret_of_its_own() {
    let key = Key::from("ada");
    assert_ne!(RateLimiter::default().digest(Some(&key)), RateLimiter::default().digest(Some(&key)));
}

/// Where a table of so many places would put it. Rows are found by the digest alone: it is not hashed again.
fn place(secret: &Secret, key: &Key) -> u64 {
    secret.digest(key).to_bits() as u64 % PLACES
}

const PLACES: u64 = 256;
