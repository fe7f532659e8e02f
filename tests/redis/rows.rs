//! Rows as the server keeps them: 32 bytes, which these tests read and write past the backend.

use tollgate::Quota;
use tollgate::algorithm::{Algorithm, Micros, State};

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
            clear: clear_of(number(28)),
        },
        number(28),
    )
}

/// From when a row counts nothing for other quotas: from the second on at which it expires, if that is one.
pub(crate) fn clear_of(expires: u32) -> Micros {
    if expires == u32::MAX { Micros::MAX } else { Micros::new(u64::from(expires) * 1_000_000) }
}

fn expires_of(clear: Micros) -> u32 {
    u32::try_from(clear.get() / 1_000_000).unwrap_or(u32::MAX)
}

/// The row that comes after `before`, as the next operation finds it: one that owes nothing is not kept, and of others the
/// expiry is put off when it has to be, for twice as long. `state` is what the algebra leaves.
pub(crate) fn kept(quota: &Quota, before: &State, state: State, now: Micros) -> State {
    if state.stamp != quota.stamp() {
        return State { clear: clear_of(expires_of(state.clear)), ..state };
    }
    if state.spent == 0.0 && state.carry == 0.0 {
        return State::default();
    }
    let (mut rate, mut period) = (quota.rate(), quota.period().as_micros() as u64);
    if quota.algorithm() == Algorithm::TokenBucket {
        let common = divisor(rate, period);
        (rate, period) = (rate / common, period / common);
    }
    let (rate, period, at, now) = (rate as f64, period as f64, state.at.get() as f64, now.get() as f64);
    // No receipt ever stood above what may be spent and reserved together.
    let ceiling = quota.reservable().map_or(CEILING_WITHOUT_BOUND, |reserved| quota.limit() + reserved) as f64;
    let receipts = if state.carry > 0.0 { (state.spent + state.carry).min(ceiling) } else { 0.0 };
    let instant = match quota.algorithm() {
        Algorithm::SlidingWindow => {
            return State { clear: clear_of(((at + 2.0 * period) / 1e6).ceil() as u32), ..state };
        }
        Algorithm::FixedWindow => at + (state.spent.max(receipts) / rate).ceil() * period,
        _ if receipts > 0.0 => (at + state.spent * period / rate).max(now + receipts * period / rate),
        _ => at + state.spent * period / rate,
    };
    let mut expires = if before.stamp == state.stamp { expires_of(before.clear) } else { 0 };
    if instant >= f64::from(expires) * 1e6 {
        expires = ((instant * 2e-6 - now * 1e-6).ceil() + 1.0) as u32;
    }
    State { clear: clear_of(expires), ..state }
}

const CEILING_WITHOUT_BOUND: u64 = (1 << 53) - 1 - Quota::MAX_TOKENS;

fn divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { divisor(b, a % b) }
}
