//! Rows as the server keeps them: 32 bytes, which these tests read and write past the backend.

use tollgate::algorithm::{Micros, State};

/// spent, at, carry, stamp; little-endian, the instant a double. Four more tell the second at which the row expires.
pub(crate) fn bytes(state: &State) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(32);
    bytes.extend(state.spent.to_le_bytes());
    bytes.extend((state.at.get() as f64).to_le_bytes());
    bytes.extend(state.carry.to_le_bytes());
    bytes.extend(state.stamp.to_le_bytes());
    bytes
}

/// The row with these bytes, and when it expires.
pub(crate) fn row(bytes: &[u8]) -> (State, u32) {
    assert_eq!(bytes.len(), 32, "a row of another length");
    let double = |at: usize| f64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    (
        State {
            spent: double(0),
            at: Micros::new(double(8) as u64),
            carry: double(16),
            stamp: number(24),
            ..State::default()
        },
        number(28),
    )
}

/// The row as the next operation finds it: one that owes nothing is not kept.
pub(crate) fn kept(state: State) -> State {
    if state.spent == 0.0 && state.carry == 0.0 { State::default() } else { state }
}
