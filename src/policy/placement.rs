//! Places in a table: digests hashed under random numbers of the process.

use super::digest::{Digest, Secret};

/// Chooses the place of a digest in a table, by a hash under random numbers of its own.
///
/// A digest alone is not enough where others know the secret under which keys are hashed: they can choose keys offline
/// whose digests fall into one bucket, and so push another key's entry out of it. Under numbers that are drawn when the
/// table is made, two digests share a bucket only by chance, however they were chosen.
///
/// The hash is multiply-shift over 128 bits, which is strongly universal: for two different digests, each pair of places
/// is as likely as any other (Lemire and Kaser, "Strongly universal string hashing is fast", The Computer Journal, 2014,
/// section 3).
#[derive(Clone, Copy)]
pub(crate) struct Placement {
    low: u128,
    high: u128,
    offset: u128,
}

impl Placement {
    /// A placement that differs in every process and at every call.
    pub(crate) fn random() -> Placement {
        // A model runs many times and must take the same steps each time.
        Placement::of(&if cfg!(tollgate_models) { Secret::new([0; 16]) } else { Secret::random() })
    }

    fn of(secret: &Secret) -> Placement {
        let draw = |number: u64| secret.hash(&number.to_le_bytes()).to_bits();
        Placement { low: draw(0), high: draw(1), offset: draw(2) }
    }

    /// The place of `digest`, of 2^64: take its remainder, or its upper bits, for a smaller table.
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
    fn places_differ_between_placements_and_are_spread_evenly() {
        // Drawn once: of random ones, one in some hundreds spreads consecutive numbers less evenly.
        let (one, other) = (Placement::of(&Secret::new([7; 16])), Placement::random());
        let digests = || (0..64_000u128).flat_map(|number| [number, number << 64]).skip(1).map(Digest::from_bits);
        assert!(digests().filter(|digest| one.place(*digest) == other.place(*digest)).count() <= 1);
        assert!(digests().all(|digest| one.place(digest) == one.place(digest)));

        // Consecutive digests, in either word, taken together: 2,000 a bucket on average.
        let mut buckets = [0u32; 64];
        for digest in digests() {
            buckets[(one.place(digest) % 64) as usize] += 1;
        }
        let (least, most) = (buckets.iter().min().copied(), buckets.iter().max().copied());
        assert!(least > Some(1_000) && most < Some(4_000), "{least:?} to {most:?}");
    }
}
