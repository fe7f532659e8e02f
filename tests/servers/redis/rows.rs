//! The encoding of rows on the server, for tests that read and write rows directly.

use tollgate::algorithm::{Ask, Micros, State};
use tollgate::backend::Take;

pub(crate) const OURS: [u8; 4] = [2, 1, 0, 0];

/// Encodes `spent`, `at` (as a double), `carry` and `stamp` in little-endian order.
pub(crate) fn bytes(state: &State) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(32);
    bytes.extend(state.spent.to_le_bytes());
    bytes.extend((state.at.get() as f64).to_le_bytes());
    bytes.extend(state.carry.to_le_bytes());
    bytes.extend(state.stamp.to_le_bytes());
    bytes
}

pub(crate) fn stored(state: &State, expires: u32) -> Vec<u8> {
    let clear = u32::try_from(state.clear.get() / 1_000_000).unwrap_or(u32::MAX);
    [&OURS[..], &expires.to_le_bytes(), &bytes(state), &clear.to_le_bytes()].concat()
}

pub(crate) fn row(bytes: &[u8]) -> (State, u32) {
    assert_eq!((bytes.len(), &bytes[..4]), (40, &OURS[..]), "expected a row in the current layout");
    let double = |at: usize| f64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let state = State {
        spent: double(8),
        at: Micros::new(double(16) as u64),
        carry: double(24),
        stamp: number(32),
        clear: clear_of(number(36)),
    };
    (state, number(4))
}

fn clear_of(second: u32) -> Micros {
    if second == u32::MAX { Micros::MAX } else { Micros::new(u64::from(second) * 1_000_000) }
}

/// Returns the row as the server stores it. Rows without spent tokens are not stored.
pub(crate) fn or_none(state: State) -> State {
    if state.spent == 0.0 && state.carry == 0.0 { State::default() } else { state }
}

pub(crate) fn with_ask<'a>(take: Take<'a>, ask: Ask) -> Take<'a> {
    let mut other = take;
    other.ask = ask;
    other
}
