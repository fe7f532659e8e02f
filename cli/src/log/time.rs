//! Time stamps of log lines, as microseconds since 1970-01-01 UTC.

use jiff::{Timestamp, civil, tz};

/// The notation of a time stamp.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Stamp {
    /// `10/Oct/2000:13:55:36 -0700`
    Common,
    /// RFC 3339: `2000-10-10T13:55:36.123-07:00`
    Rfc3339,
    /// Seconds since 1970, with or without a fraction. Numbers too large for seconds are milli-, micro- or nanoseconds.
    Epoch,
}

/// The text and the value of the last time stamp. It is cached because many lines of a log have the same second.
#[derive(Clone, Debug, Default)]
pub struct LastSecond([u8; 26], u64);

impl Stamp {
    /// Returns the time in microseconds, and whether the stamp has no fraction of a second.
    pub fn parse(self, text: &str, last: &mut LastSecond) -> Option<(u64, bool)> {
        match self {
            Stamp::Common => {
                let bytes: [u8; 26] = text.as_bytes().try_into().ok()?;
                if last.0 != bytes {
                    *last = LastSecond(bytes, common(&bytes)?);
                }
                Some((last.1, true))
            }
            Stamp::Rfc3339 => {
                let micros = text.parse::<Timestamp>().ok()?.as_microsecond();
                Some((u64::try_from(micros).ok()?, !text.contains('.')))
            }
            Stamp::Epoch => epoch(text),
        }
    }
}

/// Parses `dd/Mon/yyyy:hh:mm:ss +hhmm`.
fn common(text: &[u8; 26]) -> Option<u64> {
    const MONTHS: &[u8; 36] = b"JanFebMarAprMayJunJulAugSepOctNovDec";
    let number = |from: usize, to: usize| {
        text[from..to]
            .iter()
            .try_fold(0i16, |sum, byte| byte.is_ascii_digit().then(|| sum * 10 + i16::from(byte - b'0')))
    };
    let small = |from: usize| number(from, from + 2).and_then(|number| i8::try_from(number).ok());
    let separators = [(2, b'/'), (6, b'/'), (11, b':'), (14, b':'), (17, b':'), (20, b' ')];
    if separators.iter().any(|(at, separator)| text[*at] != *separator) {
        return None;
    }
    let month = MONTHS.chunks(3).position(|month| *month == text[3..6])? as i8 + 1;
    // A leap second counts as the second before it.
    let second = small(18)?.min(59);
    let time = civil::DateTime::new(number(7, 11)?, month, small(0)?, small(12)?, small(15)?, second, 0).ok()?;
    let sign = match text[21] {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let offset = tz::Offset::from_seconds(sign * (i32::from(small(22)?) * 3600 + i32::from(small(24)?) * 60)).ok()?;
    u64::try_from(offset.to_timestamp(time).ok()?.as_microsecond()).ok()
}

fn epoch(text: &str) -> Option<(u64, bool)> {
    let (whole, fraction) = text.split_once('.').map_or((text, None), |(whole, fraction)| (whole, Some(fraction)));
    let whole: u64 = whole.parse().ok()?;
    let Some(fraction) = fraction else {
        // In seconds, 100,000,000,000 would be in the year 5138, so larger numbers must have a smaller unit.
        return Some(match whole {
            0..100_000_000_000 => (whole * 1_000_000, true),
            100_000_000_000..100_000_000_000_000 => (whole * 1_000, false),
            100_000_000_000_000..100_000_000_000_000_000 => (whole, false),
            _ => (whole / 1_000, false),
        });
    };
    if fraction.is_empty() || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits = |sum: u64, digit: u8| sum * 10 + u64::from(digit - b'0');
    let micros = fraction.bytes().chain(std::iter::repeat(b'0')).take(6).fold(0, digits);
    Some((whole.checked_mul(1_000_000)?.checked_add(micros)?, false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_notations_give_the_same_instant() {
        let parse = |stamp: Stamp, text| stamp.parse(text, &mut LastSecond::default());
        let instant = 971_211_336_000_000;
        assert_eq!(parse(Stamp::Common, "10/Oct/2000:13:55:36 -0700"), Some((instant, true)));
        assert_eq!(parse(Stamp::Common, "11/Oct/2000:02:25:36 +0530"), Some((instant, true)));
        assert_eq!(parse(Stamp::Rfc3339, "2000-10-10T13:55:36-07:00"), Some((instant, true)));
        assert_eq!(parse(Stamp::Rfc3339, "2000-10-10T20:55:36.000001Z"), Some((instant + 1, false)));
        assert_eq!(parse(Stamp::Epoch, "971211336"), Some((instant, true)));
        assert_eq!(parse(Stamp::Epoch, "971211336.25"), Some((instant + 250_000, false)));
        assert_eq!(parse(Stamp::Epoch, "971211336.1234567"), Some((instant + 123_456, false)));
        assert_eq!(parse(Stamp::Epoch, "971211336001"), Some((instant + 1_000, false)));
    }

    #[test]
    fn a_cached_second_is_not_used_for_other_time_stamps() {
        let mut last = LastSecond::default();
        let mut parse = |text| Stamp::Common.parse(text, &mut last).map(|(micros, _)| micros);
        let first = parse("10/Oct/2000:13:55:36 -0700").unwrap();
        assert_eq!(parse("10/Oct/2000:13:55:36 -0700"), Some(first));
        assert_eq!(parse("10/Oct/2000:13:55:37 -0700"), Some(first + 1_000_000));
        assert_eq!(parse("10/Oct/2000:13:55:36 -0800"), Some(first + 3_600_000_000));
    }

    #[test]
    fn malformed_time_stamps_are_rejected() {
        for text in ["", "-", "10/Okt/2000:13:55:36 -0700", "32/Oct/2000:13:55:36 -0700", "10/Oct/2000 13:55:36 -0700"]
        {
            assert_eq!(Stamp::Common.parse(text, &mut LastSecond::default()), None, "{text}");
        }
        for text in ["", "-1", "1.", "1.x", "99999999999999999999", "1e9"] {
            assert_eq!(Stamp::Epoch.parse(text, &mut LastSecond::default()), None, "{text}");
        }
    }
}
