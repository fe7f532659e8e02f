//! The `Retry-After` header of a response (RFC 9110, section 10.2.3).

use std::time::{Duration, SystemTime};

use http::header::{DATE, HeaderMap, HeaderName, RETRY_AFTER};

/// Returns how long to wait, or `None` if the header is missing or malformed. A past date yields a wait of zero.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = text(headers, RETRY_AFTER)?;
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        // The text contains only digits, so a parse error means that the number is too large.
        return (!text.is_empty()).then(|| Duration::from_secs(text.parse().unwrap_or(u64::MAX)));
    }
    let then = date(text)?;
    let since_epoch = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok();
    let now = match self::text(headers, DATE).and_then(date) {
        Some(now) => Duration::from_secs(now),
        None => since_epoch()?,
    };
    Some(Duration::from_secs(then).saturating_sub(now))
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

/// Parses a date such as `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110, section 5.6.7) into seconds since 1970.
fn date(text: &str) -> Option<u64> {
    let (_weekday, rest) = text.split_once(", ")?;
    let mut fields = rest.splitn(5, ' ');
    let [day, month, year, time, zone] = std::array::from_fn(|_| fields.next());
    let month = MONTHS.iter().position(|name| Some(*name) == month)? as u64 + 1;
    let mut clock = time?.splitn(3, ':');
    let [hour, minute, second] = std::array::from_fn(|_| clock.next());
    let number = |text: Option<&str>, digits, range: std::ops::RangeInclusive<u64>| {
        let text = text.filter(|text| text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit()))?;
        text.parse().ok().filter(|number| range.contains(number))
    };
    let (day, year) = (number(day, 2, 1..=31)?, number(year, 4, 1970..=9999)?);
    // Second 60 is a leap second.
    let (hour, minute, second) = (number(hour, 2, 0..=23)?, number(minute, 2, 0..=59)?, number(second, 2, 0..=60)?);
    (zone? == "GMT").then(|| ((days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second)
}

/// Returns the number of days since 1970 in the Gregorian calendar.
fn days(year: u64, month: u64, day: u64) -> u64 {
    // Years start in March here, so that a leap day is the last day of a year.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year / 4 - year / 100 + year / 400;
    365 * year + leap_days + (153 * month + 2) / 5 + day - 1 - 719_468
}

const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc_9110_dates_are_parsed() {
        for (text, seconds) in [
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(784_111_777)),
            ("Thu, 01 Jan 1970 00:00:00 GMT", Some(0)),
            ("Thu, 29 Feb 2024 23:59:59 GMT", Some(1_709_251_199)),
            ("Fri, 01 Mar 2024 00:00:00 GMT", Some(1_709_251_200)),
            ("Mon, 01 Mar 2100 00:00:00 GMT", Some(4_107_542_400)),
            ("Fri, 31 Dec 9999 23:59:59 GMT", Some(253_402_300_799)),
            ("Sun, 06 Nov 1994 08:49:37 CET", None),
            ("Sun, 6 Nov 1994 08:49:37 GMT", None),
            ("Sun, 06 Nov 1994 24:00:00 GMT", None),
            ("Sun, 06 Nov 1994 +8:49:37 GMT", None),
            ("Sunday, 06-Nov-94 08:49:37 GMT", None),
            ("Sun Nov  6 08:49:37 1994", None),
            ("", None),
        ] {
            assert_eq!(date(text), seconds, "{text:?}");
        }
    }

    #[test]
    fn a_retry_date_is_relative_to_the_date_header() {
        let waits = |retry: &str, date: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, retry.parse().expect("a value"));
            headers.insert(DATE, date.parse().expect("a value"));
            retry_after(&headers)
        };
        let noon = "Sun, 06 Nov 1994 12:00:00 GMT";
        assert_eq!(waits("Sun, 06 Nov 1994 12:00:20 GMT", noon), Some(Duration::from_secs(20)));
        assert_eq!(waits("Sun, 06 Nov 1994 11:59:59 GMT", noon), Some(Duration::ZERO));
        assert_eq!(waits(" 20 ", noon), Some(Duration::from_secs(20)));
        assert_eq!(waits("99999999999999999999999", noon), Some(Duration::from_secs(u64::MAX)));
        // Without a valid `Date`, `Retry-After` is compared with the system clock, which is past 2024.
        assert_eq!(waits("Thu, 29 Feb 2024 23:59:59 GMT", "yesterday"), Some(Duration::ZERO));
        for other in ["", "-1", "1.5", "soon", "20 s"] {
            assert_eq!(waits(other, noon), None, "{other:?}");
        }
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }
}
