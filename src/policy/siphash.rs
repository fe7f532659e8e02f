//! SipHash-1-3 with 128 bits out, word by word, and usable in a `const`: policies are named in statics.

/// A hash under way (Aumasson and Bernstein, 2012).
#[derive(Clone, Copy)]
pub(super) struct SipHash {
    v: [u64; 4],
    /// Bytes.
    length: u64,
}

impl SipHash {
    pub(super) const fn new(key: [u64; 2]) -> SipHash {
        let v = [
            key[0] ^ 0x736f_6d65_7073_6575,
            key[1] ^ 0x646f_7261_6e64_6f6d ^ 0xee,
            key[0] ^ 0x6c79_6765_6e65_7261,
            key[1] ^ 0x7465_6462_7974_6573,
        ];
        SipHash { v, length: 0 }
    }

    /// With eight more bytes, the first of them the lowest.
    #[inline(always)]
    pub(super) const fn word(self, word: u64) -> SipHash {
        SipHash { v: absorbed(self.v, word), length: self.length + 8 }
    }

    /// With all bytes of a text; nothing can follow it.
    pub(super) const fn finish_with(mut self, bytes: &[u8]) -> u128 {
        let (mut i, mut word) = (0, 0);
        while i < bytes.len() {
            word |= (bytes[i] as u64) << (8 * (i % 8));
            i += 1;
            if i % 8 == 0 {
                self = self.word(word);
                word = 0;
            }
        }
        SipHash { length: self.length + bytes.len() as u64 % 8, ..self }.last(word)
    }

    #[inline(always)]
    pub(super) const fn finish(self) -> u128 {
        self.last(0)
    }

    #[inline(always)]
    const fn last(self, rest: u64) -> u128 {
        let mut v = absorbed(self.v, self.length << 56 | rest);
        v[2] ^= 0xee;
        v = round(round(round(v)));
        let low = v[0] ^ v[1] ^ v[2] ^ v[3];
        v[1] ^= 0xdd;
        v = round(round(round(v)));
        let high = v[0] ^ v[1] ^ v[2] ^ v[3];
        (high as u128) << 64 | low as u128
    }
}

#[inline(always)]
const fn absorbed(mut v: [u64; 4], word: u64) -> [u64; 4] {
    v[3] ^= word;
    v = round(v);
    v[0] ^= word;
    v
}

#[inline(always)]
const fn round([mut a, mut b, mut c, mut d]: [u64; 4]) -> [u64; 4] {
    a = a.wrapping_add(b);
    c = c.wrapping_add(d);
    b = b.rotate_left(13) ^ a;
    d = d.rotate_left(16) ^ c;
    a = a.rotate_left(32);
    c = c.wrapping_add(b);
    a = a.wrapping_add(d);
    b = b.rotate_left(17) ^ c;
    d = d.rotate_left(21) ^ a;
    c = c.rotate_left(32);
    [a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;
    use siphasher::sip128::SipHasher13;

    #[test]
    fn it_is_siphash_1_3_for_every_length() {
        let text: Vec<u8> = (0..=255).chain(0..=255).collect();
        let key = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        for length in 0..text.len() {
            let bytes = &text[..length];
            let expected = SipHasher13::new_with_keys(key[0], key[1]).hash(bytes).as_u128();
            assert_eq!(SipHash::new(key).finish_with(bytes), expected, "{length}");
            if length % 8 == 0 {
                let words = bytes.chunks(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
                assert_eq!(words.fold(SipHash::new(key), SipHash::word).finish(), expected, "{length}");
            }
        }
    }
}
