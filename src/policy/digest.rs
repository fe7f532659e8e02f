//! Digests: keyed hashes that backends store instead of keys.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};

use siphasher::sip128::SipHasher13;

use super::key::Key;
use super::name::PolicyName;

/// A 128-bit hash of a key, computed with the limiter's [`Secret`]. Backends receive digests instead of keys, and
/// digests are safe to log. Two different keys have the same digest with a probability of 2^-128. Searching for such a
/// collision requires the secret.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest {
    // These are two words, because the 16-byte alignment of a `u128` would enlarge every struct that contains a digest.
    high: u64,
    low: u64,
}

impl Digest {
    /// Creates a digest from its bits.
    pub const fn from_bits(bits: u128) -> Digest {
        Digest { high: (bits >> 64) as u64, low: bits as u64 }
    }

    /// The bits of the digest.
    pub const fn to_bits(self) -> u128 {
        (self.high as u128) << 64 | self.low as u128
    }

    /// Derives the digest of the key's row under `policy`.
    #[must_use]
    pub(crate) fn under(self, policy: &PolicyName) -> Digest {
        // Digests are pseudo-random, and the names of policies have different hashes, so XOR suffices.
        Digest::from_bits(self.to_bits() ^ policy.bits())
    }

    #[must_use]
    #[inline]
    pub(crate) fn at_generation(self, generation: u64) -> Digest {
        if generation == 0 {
            return self;
        }
        let mixed = u128::from(generation).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        Digest::from_bits(self.to_bits() ^ mixed)
    }

    #[must_use]
    pub(crate) fn window(self, window: u8) -> Digest {
        Digest { low: self.low.wrapping_add(u64::from(window).wrapping_mul(0x9e37_79b9_7f4a_7c15)), ..self }
    }

    /// Derives the digest of one shard of the key. Applying this method twice with the same index restores the digest.
    #[must_use]
    pub(crate) const fn shard(self, index: u8) -> Digest {
        const SPREAD: u128 = 0xd6e8_feb8_6659_fd93_a076_1d64_78bd_642f;
        Digest::from_bits(self.to_bits() ^ (index as u128).wrapping_mul(SPREAD))
    }

    /// Returns 64 bits of the digest, as a seed that depends on the key.
    pub(crate) const fn seed(self) -> u64 {
        self.low
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.to_bits())
    }
}

/// The 128-bit secret that a limiter uses to hash keys. Processes that share a backend need the same secret, and so do
/// processes whose logged digests you compare. `Debug` does not show the secret.
///
/// ```
/// use tollgate::{key::Secret, Key};
///
/// let secret = Secret::new([7; 16]);
/// let digest = secret.digest(&Key::from("ada"));
/// assert_eq!(secret.digest(&Key::from(digest)), digest); // a key can be made from a digest
/// assert_eq!(format!("{digest:?}").len(), 32); // hexadecimal
/// ```
#[derive(Clone, Copy)]
pub struct Secret([u8; 16]);

impl Secret {
    /// Creates a secret from 16 unpredictable bytes.
    pub fn new(bytes: [u8; 16]) -> Secret {
        Secret(bytes)
    }

    /// Creates a random secret.
    pub fn random() -> Secret {
        Secret((u128::from(random()) << 64 | u128::from(random())).to_le_bytes())
    }

    /// Computes the digest of `key`, using SipHash-1-3 (Aumasson and Bernstein, 2012) with a 128-bit output. If the key
    /// was created from a digest, returns that digest.
    pub fn digest(&self, key: &Key) -> Digest {
        key.as_digest().unwrap_or_else(|| self.hash(key.bytes()))
    }

    /// Derives another secret. `purpose` must begin with a letter, so that it differs from the encoding of every key.
    pub(crate) fn derive(&self, purpose: &str) -> Secret {
        Secret(self.hash(purpose.as_bytes()).to_bits().to_le_bytes())
    }

    pub(crate) fn is_same(&self, other: &Secret) -> bool {
        self.0 == other.0
    }

    pub(crate) fn hash(&self, bytes: &[u8]) -> Digest {
        Digest::from_bits(SipHasher13::new_with_key(&self.0).hash(bytes).as_u128())
    }
}

pub(crate) fn random() -> u64 {
    // `RandomState` takes its hash keys from the operating system, once per thread.
    RandomState::new().build_hasher().finish()
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::KeySource;
    use std::net::IpAddr;

    #[test]
    fn digests_do_not_change_between_versions() {
        // Stored rows depend on these digests. The expected values were computed by another SipHash implementation.
        let secret = Secret::new(*b"0123456789abcdef");
        for (key, digest) in [
            (Key::anonymous(), 0x181f_449e_af02_0cc4_479f_f9bf_2344_eb7b),
            (Key::global(), 0x8586_01f7_57ff_92cf_68f5_4c30_1af4_3e01),
            (Key::from("ada"), 0x294e_0d5f_b181_c1cb_9574_defe_851b_4208),
            (Key::from(b"ada"), 0x9650_a5e0_07f8_a0fb_e064_d6b1_a7d7_4a36),
            (Key::from(42), 0x02ab_0b2e_785f_0a2e_734d_6234_dcf1_48f0),
            (Key::from(-42), 0x089b_67d3_1a0b_7153_26e9_58fd_bb45_3867),
            (Key::from(true), 0x686c_bab7_506f_dc2c_1c34_aeea_67ad_4c0f),
            (Key::from(IpAddr::from([203, 0, 113, 7])), 0x8c59_b8c9_95a8_e19f_3928_f614_ec5a_56f6),
            (Key::network("2001:db8::1".parse().unwrap(), 32, 64), 0x49dd_944d_3526_661d_248b_8e64_7005_60bb),
            (Key::from(("ada", 42)), 0xc3b7_22b2_c46f_0d50_4d4b_e1f7_1163_0def),
            (Key::from("x".repeat(100)), 0x7bc5_0696_6294_c684_2db8_8238_2f3e_fa90),
            (Key::found(KeySource::Bearer, "", b"ada"), 0x691f_16d2_45a0_c4f3_1e5c_fcd8_a2e1_ef78),
            (Key::found(KeySource::Header, "x-api-key", b"ada"), 0xe51a_026e_ea0c_0ae2_acff_3498_f019_4cf4),
            (Key::from(u128::MAX), 0x4e58_24c3_f761_ceb3_0e49_fb9e_c465_9e77),
        ] {
            assert_eq!(secret.digest(&key).to_bits(), digest, "{:032x}", secret.digest(&key).to_bits());
        }
        let digest = Digest::from_bits(0x0123_4567_89ab_cdef_0000_0000_0000_002a);
        assert_eq!(digest.seed(), 42);
        assert_eq!(format!("{digest:?}"), "0123456789abcdef000000000000002a");
        let under = digest.under(&PolicyName::new("api")).to_bits();
        assert_eq!(under, 0xef2c_40be_317f_2a8d_4250_f02a_1d5f_38d4, "{under:032x}");
    }

    #[test]
    fn a_key_made_from_a_digest_has_that_digest_under_every_secret() {
        let digest = Secret::new([1; 16]).digest(&Key::from("ada"));
        assert_eq!(Secret::random().digest(&Key::from(digest)), digest);
        assert_eq!(format!("digest:{digest:?}").parse(), Ok(Key::from(digest)));
        assert_ne!(Secret::new([1; 16]).digest(&Key::from((digest,))), digest);
        assert_ne!(Secret::new([1; 16]).digest(&Key::from((digest, 1))), digest);
    }

    #[test]
    fn generations_windows_and_shards_have_different_digests() {
        let digest = Digest::from_bits(0x1122_3344_5566_7788_99aa_bbcc_ddee_ff01);
        assert_eq!((digest.at_generation(0), digest.window(0), digest.shard(0)), (digest, digest, digest));
        let derived = [digest.at_generation(1), digest.at_generation(2), digest.window(1), digest.window(2)];
        let all = derived.into_iter().chain((0..4).map(|index| digest.shard(index)));
        assert_eq!(all.collect::<std::collections::HashSet<_>>().len(), 8);
        assert_eq!(digest.at_generation(7).at_generation(7), digest);
        assert_eq!(digest.shard(3).shard(3), digest);
    }

    #[test]
    fn random_secrets_differ_in_both_halves() {
        let (one, other) = (Secret::random(), Secret::random());
        assert!(one.is_same(&one) && !one.is_same(&other));
        assert!(one.0[..8] != other.0[..8] && one.0[8..] != other.0[8..]);
    }

    #[test]
    fn different_secrets_and_policies_give_different_digests() {
        let key = Key::from("ada");
        let digest = Secret::new([1; 16]).digest(&key);
        assert_eq!(digest, Secret::new([1; 16]).digest(&key));
        assert_ne!(digest, Secret::new([2; 16]).digest(&key));
        assert_ne!(Secret::random().digest(&key), Secret::random().digest(&key));
        assert_ne!(digest.under(&PolicyName::new("a")), digest.under(&PolicyName::new("b")));
    }
}
