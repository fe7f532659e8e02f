//! Parsing and formatting of quotas.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::duration::{self, number};
use crate::algorithm::{Algorithm, Quota, QuotaError};

impl FromStr for Quota {
    type Err = ParseQuotaError;

    /// Parses `RATE/PERIOD` or `RATE per PERIOD`, optionally followed by options in any order: `sliding` or `fixed`
    /// (the default is a token bucket), `burst N` (the capacity), `reserve N` or `reserve unlimited`, `start DURATION`
    /// and `shards N`.
    ///
    /// A period is a unit (`us`, `ms`, `s`, `min`, `h`, `d`, `w`, or a full name such as `day`), optionally preceded by
    /// a number.
    ///
    /// ```
    /// use tollgate::{Quota, DAY, HOUR, SECOND};
    /// assert_eq!("10/s burst 50".parse(), Ok(Quota::token_bucket(10, SECOND).capacity(50)));
    /// assert_eq!("5 per 30 s".parse(), Ok(Quota::token_bucket(5, 30 * SECOND)));
    /// assert_eq!("1_000/day fixed start 8h".parse(), Ok(Quota::fixed_window(1000, DAY).start(8 * HOUR)));
    /// ```
    fn from_str(text: &str) -> Result<Quota, ParseQuotaError> {
        let error = |what, cause| ParseQuotaError::new(text, what, cause);
        let parts = parse(text).map_err(|what| error(what, None))?;
        parts.build().map_err(|cause| error(cause.to_string(), Some(cause)))
    }
}

/// Writes text that [`FromStr`] parses back to the same quota, such as `10/s burst 50` or `100/min sliding`.
impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, unit) = duration::parts(self.period());
        write!(f, "{}/", self.rate())?;
        if count != 1 {
            write!(f, "{count}")?;
        }
        f.write_str(unit)?;
        if let Some(word) = self.algorithm().word() {
            write!(f, " {word}")?;
        }
        if self.get_capacity() != self.rate() {
            write!(f, " burst {}", self.get_capacity())?;
        }
        match self.get_max_reserved() {
            Some(0) => {}
            Some(tokens) => write!(f, " reserve {tokens}")?,
            None => f.write_str(" reserve unlimited")?,
        }
        if let Some(start) = self.get_start() {
            let (count, unit) = duration::parts(start);
            write!(f, " start {count}{unit}")?;
        }
        if self.get_shards() != 1 {
            write!(f, " shards {}", self.get_shards())?;
        }
        Ok(())
    }
}

/// The error for text that is not a valid quota. `source()` returns the [`QuotaError`], if any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseQuotaError {
    message: String,
    cause: Option<QuotaError>,
}

impl ParseQuotaError {
    pub(super) fn new(text: &str, what: String, cause: Option<QuotaError>) -> ParseQuotaError {
        ParseQuotaError { message: format!("quota {:?}: {what}", shortened(text)), cause }
    }
}

impl fmt::Display for ParseQuotaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ParseQuotaError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_ref().map(|cause| cause as _)
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(80).collect()
}

fn parse(text: &str) -> Result<QuotaParts, String> {
    if text.contains(',') {
        return Err("has a comma; write several quotas as \"10/s; 1000/d\"".to_owned());
    }
    let (rate, rest) = text
        .split_once('/')
        .or_else(|| text.split_once(" per "))
        .ok_or("expected RATE/PERIOD, such as \"100/min\" or \"10/s burst 50\"")?;
    let rate = parse_tokens(rate.trim(), "rate")?;
    let mut words = rest.split_whitespace();
    let period = parse_duration(&mut words, "period")?;

    let (mut algorithm, mut capacity, mut max_reserved, mut start, mut shards) = (None, None, None, None, None);
    while let Some(word) = words.next() {
        if let Some(named) = Algorithm::ALL.into_iter().find(|algorithm| algorithm.word() == Some(word)) {
            set_once(&mut algorithm, named, "the algorithm")?;
            continue;
        }
        match word {
            "burst" => set_once(&mut capacity, parse_tokens(words.next().unwrap_or(""), "`burst`")?, "`burst`")?,
            "reserve" => {
                let value = words.next().unwrap_or("");
                let tokens = if value == "unlimited" { None } else { Some(parse_tokens(value, "`reserve`")?) };
                set_once(&mut max_reserved, tokens, "`reserve`")?;
            }
            "start" => set_once(&mut start, parse_duration(&mut words, "`start`")?, "`start`")?,
            "shards" => set_once(&mut shards, parse_shards(words.next().unwrap_or(""))?, "`shards`")?,
            other => {
                return Err(format!(
                    "unknown word {:?}; after RATE/PERIOD write sliding, fixed, burst N, reserve N, start DURATION or shards N",
                    shortened(other)
                ));
            }
        }
    }

    let algorithm = algorithm.unwrap_or(Algorithm::TokenBucket);
    Ok(QuotaParts { algorithm, rate, period, capacity, max_reserved, start, shards })
}

pub(crate) struct QuotaParts {
    pub(crate) algorithm: Algorithm,
    pub(crate) rate: u64,
    pub(crate) period: Duration,
    pub(crate) capacity: Option<u64>,
    /// `Some(None)` means unlimited.
    pub(crate) max_reserved: Option<Option<u64>>,
    pub(crate) start: Option<Duration>,
    pub(crate) shards: Option<u64>,
}

impl QuotaParts {
    pub(crate) fn build(self) -> Result<Quota, QuotaError> {
        let mut quota = Quota::base(self.algorithm, self.rate, self.period)?;
        if let Some(capacity) = self.capacity {
            quota = quota.try_capacity(capacity)?;
        }
        match self.max_reserved {
            Some(Some(tokens)) => quota = quota.try_max_reserved(tokens)?,
            Some(None) => quota = quota.try_unlimited_reservations()?,
            None => {}
        }
        if let Some(start) = self.start {
            quota = quota.try_start(start)?;
        }
        if let Some(shards) = self.shards {
            quota = quota.try_shards(shards)?;
        }
        quota.validate()?;
        Ok(quota)
    }
}

/// Parses a duration of one or two words, such as `30s` or `30 s`.
fn parse_duration<'a>(words: &mut impl Iterator<Item = &'a str>, what: &str) -> Result<Duration, String> {
    let mut text = words.next().unwrap_or("").to_owned();
    if number(&text).is_some() {
        text.push_str(words.next().unwrap_or(""));
    }
    duration::parse(&text).ok_or_else(|| {
        let expected = if what == "period" {
            "a period such as \"min\" or \"30s\""
        } else {
            "a duration such as \"8h\" after `start`"
        };
        format!("expected {expected}, found {:?}; units: us ms s min h d w", shortened(&text))
    })
}

fn parse_tokens(text: &str, what: &str) -> Result<u64, String> {
    number(text).ok_or_else(|| {
        let (text, max) = (shortened(text), Quota::MAX_TOKENS);
        if what == "rate" {
            return format!("expected a rate from 1 to {max} tokens, found {text:?}");
        }
        let or = if what == "`reserve`" { " or `unlimited`" } else { "" };
        format!("expected a number of tokens from 0 to {max}{or} after {what}, found {text:?}")
    })
}

fn parse_shards(text: &str) -> Result<u64, String> {
    let max = Quota::MAX_SHARDS;
    number(text).ok_or_else(|| format!("expected a number from 1 to {max} after `shards`, found {:?}", shortened(text)))
}

fn set_once<T>(slot: &mut Option<T>, value: T, what: &str) -> Result<(), String> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(format!("{what} is given twice; remove one")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::{DAY, HOUR, MINUTE, SECOND};

    #[test]
    fn a_displayed_quota_parses_back_to_the_same_quota() {
        for (quota, text) in [
            (Quota::token_bucket(100, MINUTE), "100/min"),
            (Quota::token_bucket(10, SECOND).capacity(50), "10/s burst 50"),
            (Quota::token_bucket(5, 30 * SECOND), "5/30s"),
            (Quota::token_bucket(5, Duration::from_micros(1500)), "5/1500us"),
            (Quota::token_bucket(10, MINUTE).capacity(0).unlimited_reservations(), "10/min burst 0 reserve unlimited"),
            (Quota::fixed_window(9, 36 * HOUR).max_reserved(4).start(90 * MINUTE), "9/36h fixed reserve 4 start 90min"),
            (Quota::fixed_window(9, DAY).start(Duration::ZERO), "9/d fixed start 0s"),
            (Quota::sliding_window(7, 14 * DAY), "7/2w sliding"),
            (Quota::token_bucket(100, SECOND).capacity(50).shards(16), "100/s burst 50 shards 16"),
        ] {
            assert_eq!(quota.to_string(), text);
            assert_eq!(text.parse(), Ok(quota));
        }
    }

    #[test]
    fn errors_name_the_quota_and_the_problem() {
        for (text, part) in [
            ("", "expected RATE/PERIOD"),
            ("100", "expected RATE/PERIOD"),
            ("ten/min", "expected a rate from 1 to 999999999999999 tokens, found \"ten\""),
            ("-1/min", "expected a rate from 1 to 999999999999999 tokens, found \"-1\""),
            ("0/min", "rate is 0"),
            ("10/", "expected a period such as \"min\" or \"30s\", found \"\""),
            ("10/min bursts 5", "unknown word \"bursts\""),
            ("10/min burst", "expected a number of tokens from 0 to 999999999999999 after `burst`, found \"\""),
            ("10/min burst 5 burst 6", "`burst` is given twice"),
            ("10/min fixed sliding", "the algorithm is given twice"),
            ("10/min sliding burst 5", "its capacity equals its limit"),
            ("10/min burst 0", "every request would be refused"),
            (
                "10/min reserve some",
                "expected a number of tokens from 0 to 999999999999999 or `unlimited` after `reserve`, found \"some\"",
            ),
            ("10/min start 5", "expected a duration such as \"8h\" after `start`, found \"5\""),
            ("10/0s", "period is 0 s"),
            ("10/s shards", "expected a number from 1 to 64 after `shards`, found \"\""),
            ("10/s shards 0", "shards is 0; it must be between 1 and 64"),
            ("10/s shards 11", "rate is 10; every shard needs at least one token"),
        ] {
            let error = text.parse::<Quota>().unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
            assert!(error.starts_with(&format!("quota {text:?}: ")), "{error}");
        }
    }

    #[test]
    fn only_a_quota_error_is_returned_as_the_source() {
        use std::error::Error;
        let error = "0/min".parse::<Quota>().unwrap_err();
        let source = error.source().and_then(|source| source.downcast_ref::<QuotaError>());
        assert_eq!(source, Quota::try_token_bucket(0, MINUTE).as_ref().err());
        assert!("ten/min".parse::<Quota>().unwrap_err().source().is_none());
    }
}
