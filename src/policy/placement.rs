//! Where a digest goes in a table of this process.

use super::digest::{Digest, Secret};

/// Chooses places in a table by numbers drawn at random when the table is made.
///
/// Keys are hashed under a secret that several processes may share, and the default one of a store is public: whoever
/// knows it can choose keys whose digests agree in any bits. Places chosen here are unknown outside of the process, so
/// nobody can aim at a row, a shard or a bucket.
///
/// The hash is strongly universal: for any two digests, the two places are independent random numbers (Lemire and
/// Kaser, "Strongly universal string hashing is fast", The Computer Journal, 2014). It is linear, so places are never
/// shown or stored.
pub(crate) struct Placement {
    low: u128,
    high: u128,
    begin: u128,
}

impl Placement {
    pub(crate) fn random() -> Placement {
        let secret = Secret::random();
        let number = |i: u64| secret.hash(&[i]).to_bits();
        Placement { low: number(0), high: number(1), begin: number(2) }
    }

    /// 64 bits for a digest, the same at every call.
    #[inline]
    pub(crate) fn place(&self, digest: Digest) -> u64 {
        let bits = digest.to_bits();
        let (low, high) = (u128::from(bits as u64), bits >> 64);
        (self.begin.wrapping_add(self.low.wrapping_mul(low)).wrapping_add(self.high.wrapping_mul(high)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_differ_between_tables() {
        let (one, other) = (Placement::random(), Placement::random());
        let same = (0..1000).filter(|bits| {
            let digest = Digest::from_bits(*bits);
            one.place(digest) == other.place(digest)
        });
        assert_eq!(same.count(), 0);
        assert_eq!(one.place(Digest::from_bits(7)), one.place(Digest::from_bits(7)));
    }

    #[test]
    fn digests_that_agree_in_any_half_are_spread_evenly() {
        for shift in [0, 32, 64, 96] {
            let placement = Placement::random();
            let mut crowds = [[0; 64]; 2];
            for i in 0..4096_u128 {
                let place = placement.place(Digest::from_bits(i << shift));
                crowds[0][place as usize % 64] += 1;
                crowds[1][(place >> 58) as usize] += 1;
            }
            // 64 each on average. A linear hash of consecutive numbers is less even than random numbers are.
            assert!(crowds.as_flattened().iter().all(|crowd| *crowd < 256), "{shift}: {crowds:?}");
        }
    }
}
