//! Random hash functions from digests to table positions.

use super::digest::{Digest, Secret};

/// A random hash function that chooses the position of a digest in a table: multiply-shift over 128 bits, which is
/// strongly universal (Lemire and Kaser, "Strongly universal string hashing is fast", The Computer Journal, 2014,
/// section 3).
///
/// Without it, attackers who know the secret could choose keys whose digests fall into one bucket, and thereby evict
/// another key's entry. Each table has its own random numbers. Saved tables derive them from the backend's secret.
#[derive(Clone, Copy)]
pub(crate) struct Placement {
    low: u128,
    high: u128,
    offset: u128,
}

impl Placement {
    pub(crate) fn random() -> Placement {
        // A concurrency model must take the same steps in every execution, so it uses a fixed secret.
        Placement::of(&if cfg!(tollgate_models) { Secret::new([0; 16]) } else { Secret::random() })
    }

    pub(crate) fn of(secret: &Secret) -> Placement {
        let draw = |number: u64| secret.hash(&number.to_le_bytes()).to_bits();
        Placement { low: draw(0), high: draw(1), offset: draw(2) }
    }

    /// Returns one of 2^64 positions. For a smaller table, use the remainder or the upper bits.
    #[inline]
    pub(crate) fn place(&self, digest: Digest) -> u64 {
        let (low, high) = (digest.to_bits() as u64, (digest.to_bits() >> 64) as u64);
        let sum = self.low.wrapping_mul(low.into()).wrapping_add(self.high.wrapping_mul(high.into()));
        (sum.wrapping_add(self.offset) >> 64) as u64
    }
}

impl std::fmt::Debug for Placement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Placement(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_differ_between_placements_and_are_spread_evenly() {
        // The secret is fixed, because one secret in a few hundred spreads consecutive numbers too unevenly.
        let (one, other) = (Placement::of(&Secret::new([7; 16])), Placement::random());
        let digests = || (0..64_000u128).flat_map(|number| [number, number << 64]).skip(1).map(Digest::from_bits);
        assert!(digests().filter(|digest| one.place(*digest) == other.place(*digest)).count() <= 1);
        assert!(digests().all(|digest| one.place(digest) == one.place(digest)));

        // There are 2,000 digests per bucket on average.
        let mut buckets = [0u32; 64];
        for digest in digests() {
            buckets[(one.place(digest) % 64) as usize] += 1;
        }
        let (least, most) = (buckets.iter().min().copied(), buckets.iter().max().copied());
        assert!(least > Some(1_000) && most < Some(4_000), "{least:?} to {most:?}");
    }

    #[test]
    fn debug_output_does_not_show_the_random_numbers() {
        assert_eq!(format!("{:?}", Placement::random()), "Placement(..)");
    }
}
