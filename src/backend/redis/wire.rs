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
//! - a settlement: row (2), quota (2), start, cost, actual, the receipt's spent, at, carry, stamp (4), due;
//! - a reset: row (2).
//!
//! A reply: the time, a byte for each operation (1 = granted or done), and each row as it was before; zeros if there was
//! none. A value that is none of our rows is described instead: `FOREIGN` (4), its length (4; 2^32 - 1 = it is of another
//! type), its first byte (1), zeros.

use crate::algorithm::{Algorithm, Ask, MOST_SPENT, Micros, Quota, Receipt, State};
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
    LAST: u64 = MOST_SPENT;
}

/// Of the layout of a row, and of its key: rows of 0.1 had the keys of version 1.
pub(super) const VERSION: u8 = 2;

const PEEK: u8 = 0;

/// What a script call is given.
#[derive(Debug, Default)]
pub(super) struct Arguments<'a> {
    pub(super) quotas: Vec<u8>,
    pub(super) operations: Vec<u8>,
    /// The acquires that were begun last, if nothing came after them.
    alike: Option<Alike<'a>>,
}

/// Operations that ask the same of row after row.
#[derive(Debug)]
struct Alike<'a> {
    /// Where they begin.
    place: usize,
    count: u16,
    /// The row of the next one's first line.
    next: usize,
    takes: &'a [(Quota, Ask)],
}

impl<'a> Arguments<'a> {
    /// An acquire; each take of the row at the same place in `rows`.
    pub(super) fn acquire(&mut self, rows: &[usize], takes: &'a [(Quota, Ask)]) {
        let in_turn = rows.windows(2).all(|rows| rows[1] == rows[0] + 1);
        let first = rows.first().copied().filter(|_| in_turn);
        if let Some(alike) = self.alike.as_mut().filter(|alike| first == Some(alike.next) && alike.takes == takes) {
            (alike.count, alike.next) = (alike.count + 1, alike.next + rows.len());
            self.operations[alike.place + 1..][..2].copy_from_slice(&alike.count.to_le_bytes());
            return;
        }
        let place = self.operations.len();
        self.decision(ACQUIRE, rows, takes);
        self.alike = first.map(|first| Alike { place, count: 1, next: first + rows.len(), takes });
    }

    /// What an acquire would do.
    pub(super) fn peek(&mut self, rows: &[usize], takes: &[(Quota, Ask)]) {
        self.decision(PEEK, rows, takes);
    }

    fn decision(&mut self, kind: u8, rows: &[usize], takes: &[(Quota, Ask)]) {
        self.operation(kind, takes.len());
        for (row, (quota, ask)) in rows.iter().zip(takes) {
            self.row_and_quota(*row, quota);
            self.count(ask.tokens());
            match ask.max_wait_micros() {
                Some(wait) => self.count(wait),
                None => self.number(-1.0),
            }
        }
    }

    pub(super) fn settlement(&mut self, row: usize, quota: &Quota, receipt: &Receipt, actual: u64) {
        self.operation(SETTLE, 1);
        self.row_and_quota(row, quota);
        // What is charged more stays exact if it is sent by itself: `actual` may be larger than a double counts.
        let (cost, actual) = if actual < receipt.cost { (receipt.cost, actual) } else { (0, actual - receipt.cost) };
        self.count(cost);
        self.count(actual);
        self.number(receipt.state.spent);
        self.count(receipt.state.at.get());
        self.number(receipt.state.carry);
        self.operations.extend(receipt.state.stamp.to_le_bytes());
        self.count(receipt.due.get());
    }

    pub(super) fn reset(&mut self, row: usize) {
        self.operation(RESET, 1);
        self.row(row);
    }

    /// Begins an operation of so many lines.
    fn operation(&mut self, kind: u8, lines: usize) {
        self.alike = None;
        self.operations.push(kind);
        self.operations.extend(1u16.to_le_bytes());
        self.operations.extend((lines as u16).to_le_bytes());
    }

    /// Counted from 1, as the script does; as many as there may be fit.
    fn row(&mut self, row: usize) {
        self.operations.extend((row as u16 + 1).to_le_bytes());
    }

    fn row_and_quota(&mut self, row: usize, quota: &Quota) {
        let bytes = packed(quota);
        let known = self.quotas.chunks_exact(QUOTA).position(|known| known == bytes);
        let number = known.unwrap_or_else(|| {
            self.quotas.extend(bytes);
            self.quotas.len() / QUOTA - 1
        });
        self.row(row);
        // As many as there are lines at most.
        self.operations.extend((number as u16).to_le_bytes());
        self.count(quota.start_micros());
    }

    fn number(&mut self, number: f64) {
        self.operations.extend(number.to_le_bytes());
    }

    /// Whole numbers beyond those that a double counts mean the same as the last one: more than anything has.
    fn count(&mut self, count: u64) {
        self.number(count.min(MOST_SPENT) as f64);
    }
}

/// Without the start of windows, which differs from key to key.
fn packed(quota: &Quota) -> [u8; QUOTA] {
    let mut bytes = [0; QUOTA];
    bytes[0] = quota.algorithm().tag() as u8;
    bytes[1..5].copy_from_slice(&quota.stamp().to_le_bytes());
    let (rate, period) = quota.pace();
    let numbers = [rate, period, quota.limit(), quota.ceiling(), quota.fill_micros()];
    for (place, number) in bytes[5..].chunks_exact_mut(8).zip(numbers) {
        place.copy_from_slice(&(number as f64).to_le_bytes());
    }
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
    let in_range = |tokens: f64| (0.0..=MOST_SPENT as f64).contains(&tokens);
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
    use crate::algorithm::MINUTE;

    #[test]
    fn a_row_reads_back() {
        let mut bytes = Vec::new();
        bytes.extend(1_700_000_000_000_000f64.to_le_bytes());
        bytes.extend([1, 0]);
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
        // Cut anywhere, it is no reply; nor are numbers that are none.
        for cut in 0..bytes.len() {
            assert!(Reply::read(&bytes[..cut], 2, 1).is_none());
        }
        bytes[10..18].copy_from_slice(&f64::NAN.to_le_bytes());
        assert!(Reply::read(&bytes, 2, 1).is_none());
    }

    #[test]
    fn what_is_asked_of_row_after_row_is_sent_once() {
        let quota = Quota::token_bucket(10, MINUTE);
        let sent = |acquires: &[(&[usize], Quota, u64)]| {
            let takes = acquires.iter().map(|(rows, quota, cost)| vec![(*quota, Ask::cost(*cost)); rows.len()]);
            let takes: Vec<_> = takes.collect();
            let mut arguments = Arguments::default();
            acquires.iter().zip(&takes).for_each(|((rows, ..), takes)| arguments.acquire(rows, takes));
            arguments.operations
        };
        let one = HEAD + LINE;
        let alike = sent(&[(&[0], quota, 1), (&[1], quota, 1), (&[2], quota, 1)]);
        assert_eq!((alike.len(), &alike[..7]), (one, &[BUCKETS, 3, 0, 1, 0, 1, 0][..]));
        let alike = sent(&[(&[0, 1], quota, 1), (&[2, 3], quota, 1)]);
        assert_eq!((alike.len(), &alike[..7]), (one + LINE, &[BUCKETS, 2, 0, 2, 0, 1, 0][..]));
        // The same row again, another cost, another quota, more or fewer lines, rows that are not in turn: apart.
        assert_eq!(sent(&[(&[0], quota, 1), (&[0], quota, 1)]).len(), 2 * one);
        assert_eq!(sent(&[(&[0], quota, 1), (&[1], quota, 2)]).len(), 2 * one);
        assert_eq!(sent(&[(&[0], quota, 1), (&[1], quota.capacity(5), 1)]).len(), 2 * one);
        assert_eq!(sent(&[(&[0], quota, 1), (&[1, 2], quota, 1)]).len(), 2 * one + LINE);
        assert_eq!(sent(&[(&[0, 1], quota, 1), (&[2, 4], quota, 1)]).len(), 2 * (one + LINE));
        assert_eq!(sent(&[(&[0, 2], quota, 1), (&[2, 3], quota, 1)]).len(), 2 * (one + LINE));
        // So is what comes after something else.
        let mut arguments = Arguments::default();
        let takes = [(quota, Ask::cost(1))];
        arguments.acquire(&[0], &takes);
        arguments.reset(8);
        arguments.acquire(&[1], &takes);
        arguments.peek(&[2], &takes);
        arguments.acquire(&[2], &takes);
        assert_eq!(arguments.operations.len(), one + HEAD + 2 + one + one + one);
    }

    #[test]
    fn only_buckets_of_different_rows_without_a_wait_are_decided_the_short_way() {
        let (bucket, window) = (Quota::token_bucket(10, MINUTE), Quota::sliding_window(10, MINUTE));
        let kind = |rows: &[usize], takes: &[(Quota, Ask)]| {
            let mut arguments = Arguments::default();
            arguments.acquire(rows, takes);
            arguments.operations[0]
        };
        let (once, waiting) = (Ask::cost(1), Ask::cost(1).wait_up_to(MINUTE));
        assert_eq!(kind(&[0], &[(bucket, once)]), BUCKETS);
        assert_eq!(kind(&[5, 2, 9], &[(bucket, once); 3]), BUCKETS);
        assert_eq!(kind(&[5, 2, 5], &[(bucket, once); 3]), ACQUIRE);
        assert_eq!(kind(&[0, 1], &[(bucket, once), (window, once)]), ACQUIRE);
        assert_eq!(kind(&[0, 1], &[(bucket, waiting), (bucket, once)]), ACQUIRE);
    }

    #[test]
    fn a_quota_is_sent_once() {
        let mut arguments = Arguments::default();
        let (quota, ask) = (Quota::fixed_window(10, MINUTE), Ask::cost(1));
        let takes = [(quota.seeded(1), ask), (quota.seeded(2), ask)];
        arguments.acquire(&[0, 1], &takes);
        assert_eq!(arguments.quotas.len(), QUOTA);
        let takes = [(quota.capacity(20), ask)];
        arguments.acquire(&[1], &takes);
        assert_eq!(arguments.quotas.len(), 2 * QUOTA);
    }
}
