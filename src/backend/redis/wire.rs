//! What goes to the script and what comes back: both packed, since a number as text costs the server as much as a
//! decision.
//!
//! All numbers are little-endian; tokens and microseconds are doubles, as the script computes with.
//!
//! A row, there and in the store, begins with a header of 8 bytes: the version of this layout (1), the number of windows
//! (1; a row of today has one), a bit for each optional section (2; none are known today), and the second at which the
//! server drops the row (4). Then come the windows, of 32 bytes each: spent, at, carry, stamp (4), and the second from
//! which nothing stands (4; 2^32 - 1 = never). Optional sections follow.
//!
//! A call:
//! - a quota: algorithm (1), stamp (4), rate, period (of a bucket in lowest terms), capacity, ceiling, fill;
//! - operations alike: kind (1), how many (2), lines of each (2), the lines of the first. The rows of the others are
//!   those that follow: what most calls are is many that ask the same, each of rows of its own;
//! - a line of an acquire or a peek: row (2, from 1), quota (2, from 0), start of windows, cost, longest wait (-1 =
//!   none);
//! - a settlement: row (2), quota (2), start, cost, actual, the receipt's spent, at, carry, due, stamp (4);
//! - a reset: row (2).
//!
//! A reply: the time, a byte for each operation (1 = granted or done), and each row as it was before; zeros if there was
//! none. A value that is none of our rows is described instead: `FOREIGN` (4), its length (4; 2^32 - 1 = it is of another
//! type), its first byte (1), zeros.

use super::batch::Kind;
use crate::algorithm::{Algorithm, ChargeRecord, MAX_SPENT, Micros, Quota, State};
use crate::backend::{Error, ErrorKind};

/// Defines constants, and the table by which the script gets them under the same names.
macro_rules! shared {
    ($($name:ident: $type:ty = $value:expr;)*) => {
        $(const $name: $type = $value;)*
        pub(super) const SHARED: &[(&str, u64)] = &[$((stringify!($name), $name as u64)),*];
    };
}

shared! {
    // The first four bytes of a row: version, windows, sections.
    OURS: u32 = u32::from_le_bytes([VERSION, 1, 0, 0]);
    FOREIGN: u32 = u32::MAX;
    HEADER: usize = 8;
    ROW: usize = HEADER + 32;
    QUOTA: usize = 45;
    ACQUIRE: u8 = 1;
    SETTLE: u8 = 2;
    RESET: u8 = 3;
    TOKEN_BUCKET: u32 = Algorithm::TokenBucket.tag();
    FIXED_WINDOW: u32 = Algorithm::FixedWindow.tag();
    SLIDING_WINDOW: u32 = Algorithm::SlidingWindow.tag();
    TAGS: u32 = 1 << Algorithm::TAG_BITS;
    NEVER: u32 = u32::MAX;
    // The last instant, and the most that is ever spent.
    LAST: u64 = MAX_SPENT;
}

/// Of the layout of a row, and of its key: rows of 0.1 had the keys of version 1.
pub(super) const VERSION: u8 = 2;

const PEEK: u8 = 0;

/// What a script call is given.
#[derive(Debug, Default)]
pub(super) struct Arguments {
    pub(super) quotas: Vec<u8>,
    pub(super) operations: Vec<u8>,
}

impl Arguments {
    /// Adds operations that ask the same of row after row: `kind` is the first, and `rows` are the places of its rows.
    pub(super) fn add(&mut self, kind: &Kind, times: usize, rows: &[usize]) {
        self.operations.push(match kind {
            Kind::Decide { store: false, .. } => PEEK,
            Kind::Decide { store: true, .. } => ACQUIRE,
            Kind::Settle { .. } => SETTLE,
            Kind::Reset { .. } => RESET,
        });
        self.short(times);
        self.short(rows.len());
        match kind {
            Kind::Decide { takes, .. } => {
                for (row, (quota, ask)) in rows.iter().zip(takes) {
                    self.row_and_quota(*row, quota);
                    self.numbers([counted(ask.tokens()), ask.max_wait_micros().map_or(-1.0, counted)]);
                }
            }
            Kind::Settle { quota, receipt: ChargeRecord { cost, state, due }, actual, .. } => {
                self.row_and_quota(rows[0], quota);
                // What is charged more stays exact if it is sent by itself: `actual` may be larger than a double counts.
                let (cost, actual) = if actual < cost { (*cost, *actual) } else { (0, actual - cost) };
                self.numbers([counted(cost), counted(actual), state.spent, counted(state.at.get()), state.carry]);
                self.numbers([counted(due.get())]);
                self.operations.extend(state.stamp.to_le_bytes());
            }
            Kind::Reset { .. } => self.short(rows[0] + 1),
        }
    }

    /// Rows are counted from 1, as the script does.
    fn row_and_quota(&mut self, row: usize, quota: &Quota) {
        let bytes = packed(quota);
        let known = self.quotas.chunks_exact(QUOTA).position(|known| known == bytes);
        let number = known.unwrap_or_else(|| {
            self.quotas.extend(bytes);
            self.quotas.len() / QUOTA - 1
        });
        self.short(row + 1);
        self.short(number);
        self.numbers([counted(quota.start_micros())]);
    }

    /// Rows, and so lines and quotas, are few enough: see `lanes`.
    fn short(&mut self, number: usize) {
        self.operations.extend((number as u16).to_le_bytes());
    }

    fn numbers<const N: usize>(&mut self, numbers: [f64; N]) {
        self.operations.extend(numbers.into_iter().flat_map(f64::to_le_bytes));
    }
}

/// Whole numbers beyond those that a double counts mean the same as the last one: more than anything has.
fn counted(count: u64) -> f64 {
    count.min(MAX_SPENT) as f64
}

/// Without the start of windows, which differs from key to key.
fn packed(quota: &Quota) -> Vec<u8> {
    let (rate, period) = quota.pace();
    let numbers = [rate, period, quota.limit(), quota.ceiling(), quota.fill_micros()];
    let mut bytes = vec![quota.algorithm().tag() as u8];
    bytes.extend(quota.stamp().to_le_bytes());
    bytes.extend(numbers.into_iter().flat_map(|number| counted(number).to_le_bytes()));
    bytes
}

/// What a script call answers.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) now: Micros,
    /// Of each operation, whether it was granted or done.
    pub(super) done: Vec<bool>,
    /// Each row as it was before.
    pub(super) rows: Vec<State>,
    /// The rows that are none of ours; nothing was done to them.
    pub(super) foreign: Vec<(usize, Foreign)>,
}

/// What a key of ours holds in place of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Foreign {
    /// A list, a hash or the like.
    OtherType,
    /// Bytes of another length, another version, or with sections that are not known.
    Bytes { length: u32, first: u8 },
    /// A row as to its header, with numbers that none has. A reset removes it.
    Damaged,
}

impl Foreign {
    pub(super) fn error(self, key: &[u8]) -> Error {
        let found = match self {
            Foreign::OtherType => "a value of another type".to_owned(),
            Foreign::Bytes { length: 0, .. } => "an empty string".to_owned(),
            Foreign::Bytes { length, first } => format!("{length} bytes: version {first}"),
            Foreign::Damaged => "numbers out of range".to_owned(),
        };
        let message = format!(
            "expected a row under the key {} ({ROW} bytes: version {VERSION}, one window, no sections), found {found}; \
             delete it, or use another prefix",
            String::from_utf8_lossy(key)
        );
        Error::new(ErrorKind::Protocol, message)
    }
}

impl Reply {
    /// `None` if this is no answer to so many operations on so many rows.
    pub(super) fn read(bytes: &[u8], operations: usize, rows: usize) -> Option<Reply> {
        let (now, rest) = bytes.split_first_chunk::<8>()?;
        let (done, rest) = rest.split_at_checked(operations)?;
        if rest.len() != rows * ROW {
            return None;
        }
        let (rows, mut foreign) = (rest.chunks_exact(ROW), Vec::new());
        let mut state = |(place, row)| {
            state(row).unwrap_or_else(|what| {
                foreign.push((place, what));
                State::default()
            })
        };
        let rows = rows.enumerate().map(&mut state).collect();
        let done = done.iter().map(|byte| *byte == 1).collect();
        Some(Reply { now: instant(f64::from_le_bytes(*now))?, done, rows, foreign })
    }
}

/// Reads the [`ROW`] bytes of a row, of none, or of what is there in place of one.
fn state(row: &[u8]) -> Result<State, Foreign> {
    let word = |place: usize| row[place..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    let number = |place: usize| row[place..].first_chunk().map_or(f64::NAN, |bytes| f64::from_le_bytes(*bytes));
    match word(0) {
        0 => return Ok(State::default()),
        OURS => {}
        _ if word(4) == NEVER => return Err(Foreign::OtherType),
        _ => return Err(Foreign::Bytes { length: word(4), first: row[8] }),
    }
    let (spent, at, carry) = (number(HEADER), instant(number(HEADER + 8)), number(HEADER + 16));
    let in_range = |tokens: f64| (0.0..=MAX_SPENT as f64).contains(&tokens);
    let at = at.filter(|_| in_range(spent) && in_range(carry)).ok_or(Foreign::Damaged)?;
    let clear = Micros::from_seconds(word(HEADER + 28));
    Ok(State { spent, at, carry, stamp: word(HEADER + 24), clear })
}

/// `None` if it is no whole number of microseconds in range.
fn instant(micros: f64) -> Option<Micros> {
    let whole = micros as u64;
    (whole as f64 == micros && whole <= Micros::MAX.get()).then(|| Micros::new(whole))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::{Ask, MINUTE};

    #[test]
    fn a_row_reads_back() {
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
        let reply = Reply::read(&bytes, 2, 1).expect("a reply");
        assert_eq!(reply.now, Micros::new(1_700_000_000_000_000));
        assert_eq!(reply.done, [true, false]);
        assert_eq!(
            reply.rows,
            [State {
                spent: 2.0,
                at: Micros::new(1_699_999_999_999_999),
                stamp: 7,
                carry: 0.5,
                clear: Micros::new(1_700_000_060_000_000)
            }]
        );
        assert_eq!(reply.foreign, []);
        // Cut anywhere, it is no reply; nor is it one at an instant that is none.
        for cut in 0..bytes.len() {
            assert!(Reply::read(&bytes[..cut], 2, 1).is_none());
        }
        // A row with numbers that are none is damaged, and nothing else is.
        for place in [18, 26, 34] {
            let mut bytes = bytes.clone();
            bytes[place..place + 8].copy_from_slice(&f64::NAN.to_le_bytes());
            let reply = Reply::read(&bytes, 2, 1).expect("a reply");
            assert_eq!((reply.rows, reply.foreign), (vec![State::default()], vec![(0, Foreign::Damaged)]));
        }
        bytes[..8].copy_from_slice(&f64::NAN.to_le_bytes());
        assert!(Reply::read(&bytes, 2, 1).is_none());
    }

    fn acquire(takes: &[(Quota, Ask)]) -> Kind {
        let rows = takes.iter().map(|_| [].into()).collect();
        Kind::Decide { rows, takes: takes.into(), store: true }
    }

    #[test]
    fn a_quota_is_sent_once() {
        let mut arguments = Arguments::default();
        let (quota, ask) = (Quota::fixed_window(10, MINUTE), Ask::cost(1));
        arguments.add(&acquire(&[(quota.seeded(1), ask), (quota.seeded(2), ask)]), 1, &[0, 1]);
        assert_eq!(arguments.quotas.len(), QUOTA);
        arguments.add(&acquire(&[(quota.capacity(20), ask)]), 1, &[1]);
        assert_eq!(arguments.quotas.len(), 2 * QUOTA);
    }
}
