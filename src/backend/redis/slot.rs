//! The cluster slot of a key: the CRC-16/XMODEM of its hash tag, modulo 16384 (Redis cluster specification).

/// Returns the slot of all keys that contain `tag` in braces.
pub(super) fn of(tag: &[u8]) -> u16 {
    let mut crc = 0u16;
    for byte in tag {
        crc ^= u16::from(*byte) << 8;
        for _ in 0..8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 };
        }
    }
    crc % 16384
}

#[cfg(test)]
mod tests {
    #[test]
    fn slots_match_the_redis_specification() {
        // The first is the specification's check value, and the second is an example from the documentation.
        assert_eq!(super::of(b"123456789"), 0x31c3);
        assert_eq!(super::of(b"foo"), 12182);
    }
}
