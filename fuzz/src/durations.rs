//! Durations as text: parsing follows the documentation, and printed durations parse to the same value.

use std::time::Duration;

use tollgate::{Quota, fuzzing};

/// Reads `data` as a duration.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let read = fuzzing::duration(text);
    assert_eq!(read, expected(text), "{text:?}");
    let Some(duration) = read else { return };
    // Durations are printed as parts of quotas.
    match Quota::try_token_bucket(1, duration) {
        Ok(quota) => {
            let printed = quota.to_string();
            assert_eq!(fuzzing::duration(&printed["1/".len()..]), Some(duration), "{text:?} as {printed}");
            assert_eq!(printed.parse(), Ok(quota), "{printed}");
        }
        Err(error) => {
            assert!(duration.is_zero() || duration > Quota::MAX_PERIOD, "{text:?}: {error}");
        }
    }
    if let Ok(quota) = Quota::fixed_window(1, Quota::MAX_PERIOD).try_start(duration) {
        assert_eq!(quota.to_string().parse(), Ok(quota), "{quota}");
    }
}

/// Parses a duration as the documentation describes: an optional number and a unit.
fn expected(text: &str) -> Option<Duration> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit: u64 = match unit.trim_start() {
        "w" | "week" | "weeks" => 604_800_000_000,
        "d" | "day" | "days" => 86_400_000_000,
        "h" | "hr" | "hour" | "hours" => 3_600_000_000,
        "m" | "min" | "mins" | "minute" | "minutes" => 60_000_000,
        "s" | "sec" | "secs" | "second" | "seconds" => 1_000_000,
        "ms" | "millisecond" | "milliseconds" => 1000,
        "us" | "\u{b5}s" | "microsecond" | "microseconds" => 1,
        _ => return None,
    };
    if number.starts_with('_') {
        return None;
    }
    let number = if number.is_empty() { 1 } else { number.replace('_', "").parse().ok()? };
    unit.checked_mul(number).map(Duration::from_micros)
}
