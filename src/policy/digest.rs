//! What is known of a key where rows are kept: its digest, under a secret.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};

use siphasher::sip128::SipHasher13;

use super::key::Key;
use super::name::PolicyName;

/// What a backend knows of a key under a policy: 128 bits, keyed by the limiter's [`Secret`].
///
/// Two keys share a digest with a chance of 2^-127 a pair; who does not know the secret cannot look for such a pair.
///
/// ```
/// use tollgate::{Digest, Key, PolicyName, Secret};
///
/// let digest = Secret::new(*b"sixteen bytes...").digest(&Key::from("ada"));
/// assert_eq!(Digest::from_bits(digest.to_bits()), digest);
/// assert_eq!(format!("{digest:?}").len(), 32); // hexadecimal: safe to log
/// assert_ne!(digest.under(&PolicyName::new("api")), digest.under(&PolicyName::new("login")));
/// assert_eq!(digest.seed(), digest.to_bits() as u64);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(u128);

impl Digest {
    /// The digest with these bits.
    pub const fn from_bits(bits: u128) -> Digest {
        Digest(bits)
    }

    /// The bits, as [`from_bits`](Digest::from_bits) takes them.
    pub const fn to_bits(self) -> u128 {
        self.0
    }

    /// The digest of the same key's row under `policy`: in a table of all policies, one row each.
    #[must_use]
    #[inline]
    pub fn under(self, policy: &PolicyName) -> Digest {
        // Digests are random already; a different constant for each policy keeps their rows apart.
        let id = u128::from(policy.id());
        Digest(self.0 ^ (id << 64 | id).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
    }

    /// 64 of the bits, for whatever has to differ from key to key.
    pub const fn seed(self) -> u64 {
        self.0 as u64
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// What a limiter hashes keys under: 128 bits that nobody outside knows. Random unless given; processes that share a
/// backend need the same one. Its `Debug` shows nothing.
///
/// ```
/// use tollgate::{Key, Secret};
///
/// let (one, other) = (Secret::new([7; 16]), Secret::random());
/// assert_eq!(one.digest(&Key::from(42)), Secret::new([7; 16]).digest(&Key::from(42)));
/// assert_ne!(one.digest(&Key::from(42)), other.digest(&Key::from(42)));
/// assert_eq!(format!("{one:?}"), "Secret(..)");
/// ```
#[derive(Clone, Copy)]
pub struct Secret(SipHasher13);

impl Secret {
    /// A secret of your own: 16 bytes that nobody guesses, out of your configuration, the same in all processes that
    /// share a backend.
    pub fn new(bytes: [u8; 16]) -> Secret {
        Secret(SipHasher13::new_with_key(&bytes))
    }

    /// A new secret, different in every process and at every call, from the operating system's random numbers.
    pub fn random() -> Secret {
        // The standard library's hash keys come from the operating system; hashing under them passes that on.
        let draw = || RandomState::new().build_hasher().finish();
        Secret(SipHasher13::new_with_keys(draw(), draw()))
    }

    /// The digest of `key`: SipHash-1-3 (Aumasson and Bernstein, 2012) with 128 bits out.
    #[inline]
    pub fn digest(&self, key: &Key) -> Digest {
        Digest(self.0.hash(key.bytes()).as_u128())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    #[test]
    fn digests_stay_what_they_were() {
        // Processes of two versions share a backend, and rows outlive an upgrade. Computed by another SipHash.
        let secret = Secret::new(*b"0123456789abcdef");
        for (key, digest) in [
            (Key::anonymous(), 0x181f_449e_af02_0cc4_479f_f9bf_2344_eb7b),
            (Key::everybody(), 0x8586_01f7_57ff_92cf_68f5_4c30_1af4_3e01),
            (Key::from("ada"), 0x3ed9_ba37_c0d8_7f94_b40f_416f_2f1e_c6a0),
            (Key::from(b"ada"), 0xe022_e9e9_1194_39d8_2353_47ea_6909_228d),
            (Key::from(42), 0x02ab_0b2e_785f_0a2e_734d_6234_dcf1_48f0),
            (Key::from(-42), 0x089b_67d3_1a0b_7153_26e9_58fd_bb45_3867),
            (Key::from(true), 0x686c_bab7_506f_dc2c_1c34_aeea_67ad_4c0f),
            (Key::from(IpAddr::from([203, 0, 113, 7])), 0x8c59_b8c9_95a8_e19f_3928_f614_ec5a_56f6),
            (Key::network("2001:db8::1".parse().unwrap(), 32, 64), 0x9897_7a53_57cd_4446_c09f_00a2_6db4_f182),
            (Key::from(("ada", 42)), 0xba8a_80fb_6056_7322_b0ef_7267_ed70_2540),
            (Key::from("x".repeat(100)), 0x7b72_2b76_5aeb_27dc_d9a4_3c37_3ab7_e477),
            (Key::from(u128::MAX), 0x4e58_24c3_f761_ceb3_0e49_fb9e_c465_9e77),
        ] {
            assert_eq!(secret.digest(&key).to_bits(), digest, "{:032x}", secret.digest(&key).to_bits());
        }
        let digest = Digest::from_bits(0x0123_4567_89ab_cdef_0000_0000_0000_002a);
        assert_eq!(digest.seed(), 42);
        assert_eq!(format!("{digest:?}"), "0123456789abcdef000000000000002a");
        let under = digest.under(&PolicyName::new("api")).to_bits();
        assert_eq!(under, 0x34d4_b165_2445_c781_c27d_2e57_1786_7f59, "{under:032x}");
    }

    #[test]
    fn secrets_and_policies_keep_digests_apart() {
        let key = Key::from("ada");
        let digest = Secret::new([1; 16]).digest(&key);
        assert_eq!(digest, Secret::new([1; 16]).digest(&key));
        assert_ne!(digest, Secret::new([2; 16]).digest(&key));
        assert_ne!(Secret::random().digest(&key), Secret::random().digest(&key));
        assert_ne!(digest.under(&PolicyName::new("a")), digest.under(&PolicyName::new("b")));
    }
}
