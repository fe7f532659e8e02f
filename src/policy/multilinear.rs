//! Digests for rows that never leave the process: less than half of SipHash's work, and a proof in place of trust.
//!
//! MULTILINEAR of Lemire and Kaser, "Strongly universal string hashing is fast" (The Computer Journal, 2014): a key's
//! words, each times a random number of 128 bits, summed modulo 2^128, and of the sum the upper half; twice, under other
//! random numbers. For any two keys that are chosen without knowledge of those numbers, the two digests are two random
//! numbers of 128 bits, independent of each other: this is a theorem, where of other hashes it is a hope.
//!
//! Without knowledge of the numbers: who sees digests can compute them, being linear. So nobody does. What leaves the
//! limiter is [`shown`]: SipHash of the digest, under a secret of the process.

use std::sync::LazyLock;

use super::digest::{Digest, Secret};
use super::key::{Key, LONGEST_FEW, WORDS, head_of_text, length_of_text};

/// The random numbers, and a secret for keys of more words than these.
pub(crate) struct Multilinear {
    begin: [u128; 2],
    factors: [[u128; 2]; WORDS],
    /// The sums of the first words that texts have, by their length.
    texts: [[u128; 2]; LONGEST_FEW + 1],
    many: Secret,
}

impl Multilinear {
    pub(super) fn random() -> Multilinear {
        let numbers = Secret::random();
        let number = |i: usize| numbers.hash(&i.to_le_bytes()).to_bits();
        let begin = [number(0), number(1)];
        let factors: [[u128; 2]; WORDS] = std::array::from_fn(|i| [number(2 * i + 2), number(2 * i + 3)]);
        let texts = std::array::from_fn(|length| {
            let word = u128::from(head_of_text(length));
            std::array::from_fn(|lane| begin[lane].wrapping_add(factors[0][lane].wrapping_mul(word)))
        });
        Multilinear { begin, factors, texts, many: Secret::random() }
    }

    #[inline(always)]
    pub(super) fn digest(&self, key: &Key) -> Digest {
        let (words, length) = match key.few_or_many() {
            Ok(few) => few,
            Err(many) => return Digest::own(self.many.bits_of_many(many)),
        };
        // Most keys are texts, and there are few first words of those.
        let (low, high) = match length_of_text(words[0]).and_then(|length| self.texts.get(length)) {
            Some([low, high]) => (*low, *high),
            None => {
                let [low, high] = self.begin;
                self.plus(low, high, words[0], 0)
            }
        };
        let (low, high) = self.plus(low, high, words[1], 1);
        let (low, high) = self.plus(low, high, words[2], 2);
        let (mut low, mut high) = self.plus(low, high, words[3], 3);
        // Words of zeros, which fill up a key, add nothing: it does not matter how many there are.
        if length > 4 {
            let [.., a, b, c, d] = words;
            (low, high) = self.plus_later(low, high, [*a, *b, *c, *d]);
        }
        // Only by its lower half is a place in a table chosen.
        Digest::own((high >> 64) << 64 | u128::from(scattered((low >> 64) as u64)))
    }

    #[inline(always)]
    fn plus(&self, low: u128, high: u128, word: u64, number: usize) -> (u128, u128) {
        let (word, [a, b]) = (u128::from(word), self.factors[number]);
        (low.wrapping_add(a.wrapping_mul(word)), high.wrapping_add(b.wrapping_mul(word)))
    }

    #[inline(never)]
    fn plus_later(&self, low: u128, high: u128, [a, b, c, d]: [u64; 4]) -> (u128, u128) {
        let (low, high) = self.plus(low, high, a, 4);
        let (low, high) = self.plus(low, high, b, 5);
        let (low, high) = self.plus(low, high, c, 6);
        self.plus(low, high, d, 7)
    }
}

/// Consecutive numbers have digests at equal distances, which crowd in a table more than random ones do. One to one, so
/// that what is proved stays so.
#[inline(always)]
fn scattered(bits: u64) -> u64 {
    let bits = (bits ^ bits >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits ^ bits >> 32
}

/// What is seen of a digest from outside: the same for the same digest, and nothing else can be made of it.
#[cold]
pub(super) fn shown(bits: u128) -> Digest {
    static SECRET: LazyLock<Secret> = LazyLock::new(Secret::random);
    SECRET.hash(&bits.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// The sum as it is written in the paper, over all words.
    fn by_the_book(hash: &Multilinear, words: &[u64]) -> u128 {
        let half = |lane: usize| {
            let terms =
                words.iter().zip(hash.factors).map(|(word, factors)| factors[lane].wrapping_mul(u128::from(*word)));
            (terms.fold(hash.begin[lane], u128::wrapping_add) >> 64) as u64
        };
        u128::from(half(1)) << 64 | u128::from(scattered(half(0)))
    }

    #[test]
    fn it_is_the_sum_by_the_book_for_every_number_of_words() {
        let hash = Multilinear::random();
        for length in 0..=56 {
            let key = Key::from("\u{7f}x".repeat(28)[..length].to_owned());
            assert_eq!(hash.digest(&key).to_bits(), by_the_book(&hash, key.words()), "{length}");
        }
        let wide = Key::from((u128::MAX, u128::MAX));
        assert_eq!(hash.digest(&wide).to_bits(), by_the_book(&hash, wide.words()));
    }

    #[test]
    fn its_numbers_are_all_different() {
        let Multilinear { begin, factors, .. } = Multilinear::random();
        let numbers: HashSet<u128> = begin.into_iter().chain(factors.into_iter().flatten()).collect();
        assert_eq!(numbers.len(), 2 + 2 * WORDS);
    }

    #[test]
    fn nobody_shares_a_digest() {
        let hash = Multilinear::random();
        // Keys that differ in little: a bit, a length, a kind, zeros at the end.
        let mut keys = HashSet::new();
        for number in 0..10_000u64 {
            keys.extend([Key::from(number), Key::from(1u64 << (number % 64) | number << 40)]);
            keys.extend([Key::from(format!("user-{number}")), Key::from(("a", number))]);
        }
        for length in 0..200 {
            keys.extend([Key::from(vec![0u8; length]), Key::from("\0".repeat(length))]);
        }
        let digests: HashSet<_> = keys.iter().map(|key| hash.digest(key)).collect();
        assert!(keys.len() > 39_000 && digests.len() == keys.len(), "{} of {}", digests.len(), keys.len());
    }

    #[test]
    fn keys_of_a_pattern_crowd_no_more_than_others() {
        let patterns: [fn(u64) -> Key; 5] = [
            Key::from,
            |i| Key::from(i.rotate_right(12)),
            |i| Key::from(format!("user-{i:06}")),
            |i| Key::network(std::net::Ipv4Addr::from(0x0a00_0000 + i as u32).into(), 32, 64),
            |i| Key::network(std::net::Ipv6Addr::from(0x2001_0db8 << 96 | u128::from(i) << 64).into(), 32, 64),
        ];
        for (number, pattern) in patterns.iter().enumerate() {
            for _ in 0..20 {
                let hash = Multilinear::random();
                // By the first bits of the half that places are chosen by, and by its last.
                let mut crowds = [[0; 64]; 2];
                for seed in (0..4096).map(|i| hash.digest(&pattern(i)).seed()) {
                    crowds[0][seed as usize % 64] += 1;
                    crowds[1][(seed >> 58) as usize] += 1;
                }
                // 64 each; that one of random numbers' has 128 is a chance below 10^-10.
                assert!(crowds.as_flattened().iter().all(|crowd| *crowd < 128), "{number}: {crowds:?}");
            }
        }
    }

    #[test]
    fn scattering_is_one_to_one() {
        // Each step undone: the multiplication by the inverse of its factor modulo 2^64.
        let undone = |bits: u64| {
            let bits = (bits ^ bits >> 32).wrapping_mul(0xf1de_83e1_9937_733d);
            bits ^ bits >> 32
        };
        for bits in [0, 1, u64::MAX, 0x0123_4567_89ab_cdef] {
            assert_eq!(undone(scattered(bits)), bits, "{bits:x}");
        }
    }

    #[test]
    fn what_is_shown_is_not_what_is_counted_by() {
        let hash = Multilinear::random();
        let (one, other) = (hash.digest(&Key::from("ada")), hash.digest(&Key::from("eve")));
        assert_eq!(one.shown(), hash.digest(&Key::from("ada")).shown());
        assert_ne!(one.shown(), other.shown());
        assert_ne!(one.shown().to_bits(), one.to_bits());
        assert_eq!(one.shown().shown(), one.shown());
        assert_eq!(format!("{one:?}"), format!("{:?}", one.shown()));
    }
}
