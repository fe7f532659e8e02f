//! Parsing and formatting of durations such as `250ms`, `30 s`, `5min` and `1 day`.

use std::time::Duration;

use crate::algorithm::{DAY, HOUR, MINUTE, SECOND, WEEK};

/// The units, largest first. The first name of each unit is used for output.
const UNITS: [(Duration, &[&str]); 7] = [
    (WEEK, &["w", "week", "weeks"]),
    (DAY, &["d", "day", "days"]),
    (HOUR, &["h", "hr", "hour", "hours"]),
    (MINUTE, &["min", "m", "mins", "minute", "minutes"]),
    (SECOND, &["s", "sec", "secs", "second", "seconds"]),
    (Duration::from_millis(1), &["ms", "millisecond", "milliseconds"]),
    (Duration::from_micros(1), &["us", "\u{b5}s", "microsecond", "microseconds"]),
];

pub(crate) fn parse(text: &str) -> Option<Duration> {
    let text = text.trim();
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '_').len();
    let count = if digits == 0 { 1 } else { number(&text[..digits])? };
    let name = text[digits..].trim_start();
    let (unit, _) = UNITS.iter().find(|(_, names)| names.contains(&name))?;
    let micros = u64::try_from(unit.as_micros()).ok()?.checked_mul(count)?;
    Some(Duration::from_micros(micros))
}

/// Parses a whole number, in which `_` may separate groups of digits.
pub(super) fn number(text: &str) -> Option<u64> {
    if !text.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    text.replace('_', "").parse().ok()
}

/// Expresses `duration` in the largest unit that divides it.
pub(super) fn parts(duration: Duration) -> (u64, &'static str) {
    let micros = duration.as_micros();
    let largest = UNITS.iter().find(|(unit, _)| micros > 0 && micros % unit.as_micros() == 0);
    largest.map_or((0, "s"), |(unit, names)| (u64::try_from(micros / unit.as_micros()).unwrap_or(u64::MAX), names[0]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_parses_with_and_without_spaces() {
        for (unit, names) in UNITS {
            for name in names {
                assert_eq!(parse(&format!("3{name}")), Some(unit * 3));
                assert_eq!(parse(&format!(" 3  {name} ")), Some(unit * 3));
                assert_eq!(parse(name), Some(unit));
            }
        }
    }

    #[test]
    fn invalid_durations_are_rejected() {
        for text in ["", "3", "3x", "-3s", "3.5s", "_s", "99999999999999999999s", "99999999999999999w", "3 s s"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}
