//! The keys: names of 18 to 24 bytes.

use std::ops::Deref;

/// Returns the `i`th of `count` names, in pseudorandom order, so that a table is not accessed in the order in which it
/// was filled.
pub fn key(i: usize, count: usize) -> String {
    let i = scatter(i, count, 0x9e37_79b1);
    format!("user-{:011x}-{i}", i * 7919)
}

/// Names in the order in which they are used, so that the name itself is in the cache and only the limiter is measured.
pub struct Keys {
    list: Vec<String>,
    distinct: usize,
}

impl Keys {
    pub fn new(count: usize) -> Keys {
        // A single key is repeated, so that a round makes as many calls as with more keys.
        let length = if count == 1 { 200 } else { count };
        Keys { list: (0..length).map(|i| key(i % count, count)).collect(), distinct: count }
    }

    /// Returns each name once, in a different order.
    pub fn shuffled(&self) -> impl Iterator<Item = &String> {
        (0..self.distinct).map(|i| &self.list[scatter(i, self.distinct, 0x85eb_ca77)])
    }
}

impl Deref for Keys {
    type Target = [String];

    fn deref(&self) -> &[String] {
        &self.list
    }
}

/// Permutes the numbers below `count`. Neither prime may divide `count`.
fn scatter(i: usize, count: usize, prime: usize) -> usize {
    (i as u128 * prime as u128 % count as u128) as usize
}

/// A splitmix64 generator, which accepts any seed.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % end
    }
}
