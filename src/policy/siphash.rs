//! SipHash-2-4 with 128 bits out, as a `const` function: policies are named in statics.

/// The hash of `bytes` under a fixed key (Aumasson and Bernstein, 2012).
///
/// Two names share a hash with a chance of 2^-128 a pair, and a pair that does takes 2^64 tries to find.
pub(super) const fn hash(bytes: &[u8]) -> u128 {
    let mut v = [
        KEY[0] ^ 0x736f_6d65_7073_6575,
        KEY[1] ^ 0x646f_7261_6e64_6f6d ^ 0xee,
        KEY[0] ^ 0x6c79_6765_6e65_7261,
        KEY[1] ^ 0x7465_6462_7974_6573,
    ];
    let (mut i, mut word) = (0, 0);
    while i < bytes.len() {
        word |= (bytes[i] as u64) << (8 * (i % 8));
        i += 1;
        if i % 8 == 0 {
            v = absorbed(v, word);
            word = 0;
        }
    }
    v = absorbed(v, word | (bytes.len() as u64) << 56);
    v[2] ^= 0xee;
    v = rounds(v, 4);
    let low = v[0] ^ v[1] ^ v[2] ^ v[3];
    v[1] ^= 0xdd;
    v = rounds(v, 4);
    let high = v[0] ^ v[1] ^ v[2] ^ v[3];
    (high as u128) << 64 | low as u128
}

const fn absorbed(mut v: [u64; 4], word: u64) -> [u64; 4] {
    v[3] ^= word;
    v = rounds(v, 2);
    v[0] ^= word;
    v
}

const fn rounds(mut v: [u64; 4], times: u32) -> [u64; 4] {
    let mut round = 0;
    while round < times {
        v[0] = v[0].wrapping_add(v[1]);
        v[2] = v[2].wrapping_add(v[3]);
        v[1] = v[1].rotate_left(13) ^ v[0];
        v[3] = v[3].rotate_left(16) ^ v[2];
        v[0] = v[0].rotate_left(32);
        v[2] = v[2].wrapping_add(v[1]);
        v[0] = v[0].wrapping_add(v[3]);
        v[1] = v[1].rotate_left(17) ^ v[2];
        v[3] = v[3].rotate_left(21) ^ v[0];
        v[2] = v[2].rotate_left(32);
        round += 1;
    }
    v
}

/// Rows on a shared store depend on it.
const KEY: [u64; 2] = [0x746f_6c6c_6761_7465, 0x706f_6c69_6379_2e31];

#[cfg(test)]
mod tests {
    use super::*;
    use siphasher::sip128::SipHasher24;

    #[test]
    fn it_is_siphash_2_4_for_every_length() {
        let text: Vec<u8> = (0..200).collect();
        for length in 0..text.len() {
            let bytes = &text[..length];
            assert_eq!(hash(bytes), SipHasher24::new_with_keys(KEY[0], KEY[1]).hash(bytes).as_u128(), "{length}");
        }
    }
}
