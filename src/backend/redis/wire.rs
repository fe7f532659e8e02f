//! The binary encoding of script calls and replies. Parsing text would take as long as the decisions.
//!
//! All numbers are little-endian. Tokens and microseconds are doubles. Other sizes are in parentheses, in bytes.
//!
//! A row consists of:
//! - a header: layout version (1), window count (1), bit mask of windows with leases (2), expiry in seconds (4);
//! - its windows: spent, at, carry, stamp (4), and the second at which the window expires (4; 2^32 - 1 means never);
//! - for each window with leases: since, turn, and the outstanding tokens of the current and the last generation.
//!
//! A window of zeros is equivalent to a missing window: nothing is spent.
//!
//! A call consists of quotas and operations, which are encoded as:
//! - a quota: algorithm (1), stamp (4), rate and period (in lowest terms for a token bucket), capacity, ceiling, fill;
//! - a group of equal operations: kind (1), number of operations (2), lines per operation (2), rows per operation (2),
//!   and the lines of the first operation (the others use the rows that follow);
//! - a line of an acquire or a peek: row (2), window (1), quota (2), start, cost, maximum wait (-1: does not wait);
//! - a settlement: row (2), window (1), quota (2), start, cost, actual, the receipt's spent, at, carry, due, stamp (4);
//! - a request for a lease: row (2), window (1), quota (2), start, tokens, and two reports: since, turn, spent, unused;
//! - a reset: row (2).
//!
//! A reply consists of the time, a byte for each operation (1 means granted or done), and each row as it was before the
//! call (a header of zeros if the row did not exist). If a value is not a row, the reply instead contains `FOREIGN`
//! (4), the value's length (4; 2^32 - 1 means a different type) and its first byte (1).

use super::batch::{Action, QueuedTake};
use crate::algorithm::{Algorithm, ChargeRecord, LEASE_LIFE, LeaseReport, MAX_SPENT, MIN_LEASE as MIN, Micros};
use crate::algorithm::{Outstanding, Quota, State};
use crate::backend::{Error, ErrorKind};

/// Defines constants that are also passed to the script, under the same names.
macro_rules! shared {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $value:expr;)*) => {
        $($(#[$doc])* pub(super) const $name: $type = $value;)*
        pub(super) const SHARED: &[(&str, u64)] = &[$((stringify!($name), $name as u64)),*];
    };
}

shared! {
    /// The version of the row layout, which is also part of the key.
    VERSION: u8 = 2;
    FOREIGN: u32 = u32::MAX;
    HEADER: usize = 8;
    WINDOW: usize = 32;
    /// The size of a window's outstanding tokens.
    LEASE: usize = 32;
    LIFE: u64 = LEASE_LIFE.as_micros() as u64;
    MIN_LEASE: u64 = MIN;
    MAX_WINDOWS: usize = crate::policy::MAX_WINDOWS;
    QUOTA: usize = 45;
    ACQUIRE: u8 = 1;
    SETTLE: u8 = 2;
    RESET: u8 = 3;
    LEASE_TOKENS: u8 = 4;
    TOKEN_BUCKET: u32 = Algorithm::TokenBucket.tag();
    FIXED_WINDOW: u32 = Algorithm::FixedWindow.tag();
    SLIDING_WINDOW: u32 = Algorithm::SlidingWindow.tag();
    TAGS: u32 = 1 << Algorithm::TAG_BITS;
    NEVER: u32 = u32::MAX;
    LAST: u64 = MAX_SPENT;
}

const PEEK: u8 = 0;

#[derive(Debug, Default)]
pub(super) struct Arguments {
    pub(super) quotas: Vec<u8>,
    pub(super) operations: Vec<u8>,
}

impl Arguments {
    /// Adds `times` equal operations: `action` on `rows`, and on the rows that follow.
    pub(super) fn add(&mut self, action: &Action, times: usize, rows: &[usize]) {
        self.operations.push(match action {
            Action::Decide { store: false, .. } => PEEK,
            Action::Decide { store: true, .. } => ACQUIRE,
            Action::Settle { .. } => SETTLE,
            Action::Lease { .. } => LEASE_TOKENS,
            Action::Reset { .. } => RESET,
        });
        self.push_u16(times);
        self.push_u16(rows.len());
        self.push_u16(stride(rows));
        match action {
            Action::Decide { takes, .. } => {
                for (row, QueuedTake { window, quota, ask }) in rows.iter().zip(takes) {
                    self.push_window_and_quota(*row, *window, quota);
                    self.push_numbers([to_double(ask.tokens()), ask.max_wait_micros().map_or(-1.0, to_double)]);
                }
            }
            Action::Settle { window, quota, receipt: ChargeRecord { cost, state, due }, actual, .. } => {
                self.push_window_and_quota(rows[0], *window, quota);
                // A double may be unable to represent `actual` exactly, so an increase is sent as a difference.
                let (cost, actual) = if actual < cost { (*cost, *actual) } else { (0, actual - cost) };
                self.push_numbers([
                    to_double(cost),
                    to_double(actual),
                    state.spent,
                    to_double(state.at.get()),
                    state.carry,
                ]);
                self.push_numbers([to_double(due.get())]);
                self.operations.extend(state.stamp.to_le_bytes());
            }
            Action::Lease { window, quota, reports, tokens, .. } => {
                self.push_window_and_quota(rows[0], *window, quota);
                self.push_numbers([to_double(*tokens)]);
                for LeaseReport { id, spent, unused } in reports {
                    self.push_numbers([id.since.get(), id.turn.get(), *spent, *unused].map(to_double));
                }
            }
            Action::Reset { .. } => self.push_u16(rows[0] + 1),
        }
    }

    /// Adds the row number (counted from 1, as in Lua), the window and the quota.
    fn push_window_and_quota(&mut self, row: usize, window: u8, quota: &Quota) {
        let bytes = packed(quota);
        let known = self.quotas.chunks_exact(QUOTA).position(|known| known == bytes);
        let number = known.unwrap_or_else(|| {
            self.quotas.extend(bytes);
            self.quotas.len() / QUOTA - 1
        });
        self.push_u16(row + 1);
        self.operations.push(window);
        self.push_u16(number);
        self.push_numbers([to_double(quota.start_micros())]);
    }

    /// Every number fits, because the batcher limits the number of rows.
    fn push_u16(&mut self, number: usize) {
        self.operations.extend((number as u16).to_le_bytes());
    }

    fn push_numbers<const N: usize>(&mut self, numbers: [f64; N]) {
        self.operations.extend(numbers.into_iter().flat_map(f64::to_le_bytes));
    }
}

/// Returns the distance from an operation's rows to those of the next operation in a group of equal operations.
pub(super) fn stride(rows: &[usize]) -> usize {
    rows.iter().max().map_or(0, |last| last + 1 - rows[0])
}

/// Clamps to [`MAX_SPENT`], which a double represents exactly, and which exceeds every capacity.
fn to_double(count: u64) -> f64 {
    count.min(MAX_SPENT) as f64
}

fn packed(quota: &Quota) -> Vec<u8> {
    let (rate, period) = quota.pace();
    let numbers = [rate, period, quota.get_capacity(), quota.ceiling(), quota.fill_micros()];
    let mut bytes = vec![quota.algorithm().tag() as u8];
    bytes.extend(quota.stamp().to_le_bytes());
    bytes.extend(numbers.into_iter().flat_map(|number| to_double(number).to_le_bytes()));
    bytes
}

#[derive(Debug)]
pub(super) struct Reply {
    pub(super) now: Micros,
    pub(super) done: Vec<bool>,
    /// The first windows of each row, padded to the same number.
    pub(super) windows: Vec<State>,
    pub(super) outstanding: Vec<Outstanding>,
    /// Values that are not valid rows, with their indexes in `windows`.
    pub(super) foreign: Vec<(usize, Foreign)>,
}

/// A value under a row's key that is not a valid row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Foreign {
    /// A value of a different type, such as a list or a hash.
    OtherType,
    /// A string with an invalid length, version or set of leased windows.
    Bytes { length: u32, first: u8 },
    /// A row with a valid header, but numbers that are out of range. A reset removes such a row.
    Damaged,
}

impl Foreign {
    pub(super) fn error(self, key: &[u8]) -> Error {
        let found = match self {
            Foreign::OtherType => "a value of a different type".to_owned(),
            Foreign::Bytes { length: 0, .. } => "an empty string".to_owned(),
            Foreign::Bytes { length, first } => format!("{length} bytes with version {first}"),
            Foreign::Damaged => "numbers out of range".to_owned(),
        };
        let message = format!(
            "expected a row under the key {} (version {VERSION}, up to {MAX_WINDOWS} windows), found {found}; \
             delete it, or use a different prefix",
            String::from_utf8_lossy(key)
        );
        Error::new(ErrorKind::Protocol, message)
    }
}

impl Reply {
    /// Reads the first `windows` windows of each row. Returns `None` if the bytes are not a reply of the expected form.
    pub(super) fn read(bytes: &[u8], operations: usize, rows: usize, windows: usize) -> Option<Reply> {
        let (now, rest) = bytes.split_first_chunk::<8>()?;
        let (done, mut rest) = rest.split_at_checked(operations)?;
        let mut reply = Reply {
            now: instant(f64::from_le_bytes(*now))?,
            done: done.iter().map(|byte| *byte == 1).collect(),
            windows: Vec::with_capacity(rows * windows),
            outstanding: vec![Outstanding::default(); rows * windows],
            foreign: Vec::new(),
        };
        for _ in 0..rows {
            rest = reply.read_row(rest, windows)?;
        }
        rest.is_empty().then_some(reply)
    }

    fn read_row<'b>(&mut self, bytes: &'b [u8], windows: usize) -> Option<&'b [u8]> {
        let (header, rest) = bytes.split_first_chunk::<HEADER>()?;
        let next = self.windows.len();
        if header[..4] == FOREIGN.to_le_bytes() {
            let (first, rest) = rest.split_first()?;
            let value = match u32_at(header, 4) {
                NEVER => Foreign::OtherType,
                length => Foreign::Bytes { length, first: *first },
            };
            self.windows.resize(next + windows, State::default());
            self.foreign.extend((next..next + windows).map(|index| (index, value)));
            return Some(rest);
        }
        let (count, leased) = match u32_at(header, 0).to_le_bytes() {
            [0, 0, 0, 0] => (0, 0),
            // Only windows that exist can have leases.
            [VERSION, count, leased, 0] if usize::from(count) <= MAX_WINDOWS && u16::from(leased) >> count == 0 => {
                (count, leased)
            }
            _ => return None,
        };
        let (row, rest) = rest.split_at_checked(usize::from(count) * WINDOW)?;
        let (leases, rest) = rest.split_at_checked(leased.count_ones() as usize * LEASE)?;
        let with_leases = (0..MAX_WINDOWS).filter(|window| leased & 1 << window > 0);
        for (window, bytes) in with_leases.zip(leases.chunks_exact(LEASE)).filter(|(window, _)| *window < windows) {
            match outstanding(bytes) {
                Some(outstanding) => self.outstanding[next + window] = outstanding,
                None => self.foreign.push((next + window, Foreign::Damaged)),
            }
        }
        for window in row.chunks_exact(WINDOW).take(windows) {
            let state = state(window);
            if state.is_none() {
                self.foreign.push((self.windows.len(), Foreign::Damaged));
            }
            self.windows.push(state.unwrap_or_default());
        }
        self.windows.resize(next + windows, State::default());
        Some(rest)
    }
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    bytes[offset..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// Returns `None` if a number is out of range.
fn state(window: &[u8]) -> Option<State> {
    let number = |offset: usize| window[offset..].first_chunk().map_or(f64::NAN, |bytes| f64::from_le_bytes(*bytes));
    let (spent, at, carry) = (number(0), instant(number(8))?, number(16));
    let in_range = |tokens: f64| (0.0..=MAX_SPENT as f64).contains(&tokens);
    let (stamp, clear) = (u32_at(window, 24), Micros::from_seconds(u32_at(window, 28)));
    (in_range(spent) && in_range(carry)).then_some(State { spent, at, carry, stamp, clear })
}

fn outstanding(bytes: &[u8]) -> Option<Outstanding> {
    let number =
        |offset: usize| instant(bytes[offset..].first_chunk().map_or(f64::NAN, |bytes| f64::from_le_bytes(*bytes)));
    let (since, turn, current, last) = (number(0)?, number(8)?, number(16)?.get(), number(24)?.get());
    Some(Outstanding { since, turn, current, last })
}

/// Returns `None` unless `micros` is a whole number in range.
fn instant(micros: f64) -> Option<Micros> {
    let whole = micros as u64;
    (whole as f64 == micros && whole <= Micros::MAX.get()).then(|| Micros::new(whole))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::{Ask, MINUTE};

    #[test]
    fn a_reply_is_decoded() {
        let mut bytes = Vec::new();
        bytes.extend(1_700_000_000_000_000f64.to_le_bytes());
        bytes.extend([1, 0]);
        bytes.extend([2, 1, 0, 0]);
        bytes.extend(1_700_000_120u32.to_le_bytes());
        bytes.extend(2.0f64.to_le_bytes());
        bytes.extend(1_699_999_999_999_999f64.to_le_bytes());
        bytes.extend(0.5f64.to_le_bytes());
        bytes.extend(7u32.to_le_bytes());
        bytes.extend(1_700_000_060u32.to_le_bytes());
        let reply = Reply::read(&bytes, 2, 1, 1).expect("a reply");
        assert_eq!(reply.now, Micros::new(1_700_000_000_000_000));
        assert_eq!(reply.done, [true, false]);
        assert_eq!(
            reply.windows,
            [State {
                spent: 2.0,
                at: Micros::new(1_699_999_999_999_999),
                stamp: 7,
                carry: 0.5,
                clear: Micros::new(1_700_000_060_000_000)
            }]
        );
        assert_eq!(reply.foreign, []);
        for cut in 0..bytes.len() {
            assert!(Reply::read(&bytes[..cut], 2, 1, 1).is_none());
        }
        // The header claims a lease, but no windows.
        let mut leased = bytes.clone();
        leased[10..14].copy_from_slice(&[2, 0, 2, 0]);
        assert!(Reply::read(&leased, 2, 1, 1).is_none());
        for offset in [18, 26, 34] {
            let mut bytes = bytes.clone();
            bytes[offset..offset + 8].copy_from_slice(&f64::NAN.to_le_bytes());
            let reply = Reply::read(&bytes, 2, 1, 1).expect("a reply");
            assert_eq!((reply.windows, reply.foreign), (vec![State::default()], vec![(0, Foreign::Damaged)]));
        }
        bytes[..8].copy_from_slice(&f64::NAN.to_le_bytes());
        assert!(Reply::read(&bytes, 2, 1, 1).is_none());
    }

    fn acquire(takes: &[(Quota, Ask)]) -> Action {
        let rows = takes.iter().map(|_| [].into()).collect();
        let takes = takes.iter().map(|(quota, ask)| QueuedTake { window: 0, quota: *quota, ask: *ask }).collect();
        Action::Decide { rows, takes, store: true }
    }

    #[test]
    fn a_quota_that_several_takes_use_is_sent_once() {
        let mut arguments = Arguments::default();
        let (quota, ask) = (Quota::fixed_window(10, MINUTE), Ask::cost(1));
        arguments.add(&acquire(&[(quota.seeded(1), ask), (quota.seeded(2), ask)]), 1, &[0, 1]);
        assert_eq!(arguments.quotas.len(), QUOTA);
        arguments.add(&acquire(&[(quota.capacity(20), ask)]), 1, &[1]);
        assert_eq!(arguments.quotas.len(), 2 * QUOTA);
    }
}
