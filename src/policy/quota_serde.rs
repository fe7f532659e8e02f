//! Quotas in configuration: the text form, or a table of fields.

use std::fmt;
use std::time::Duration;

use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::duration;
use crate::algorithm::Quota;

/// As text: `"10/s burst 50"`.
impl Serialize for Quota {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// From text, or from a table: `algorithm` (`token_bucket`, `fixed_window`, `sliding_window`), `rate`, `period`, and if
/// wanted `capacity`, `max_reserved` (a number or `"unlimited"`), `start`. Durations are texts such as `"30s"`.
///
/// ```
/// use tollgate::{Quota, DAY};
///
/// let table = r#"{"algorithm": "fixed_window", "rate": 1000, "period": "1d", "capacity": 3000}"#;
/// assert_eq!(serde_json::from_str::<Quota>(table)?, Quota::fixed_window(1000, DAY).capacity(3000));
/// assert_eq!(serde_json::from_str::<Quota>(r#""1000/d fixed burst 3000""#)?, Quota::fixed_window(1000, DAY).capacity(3000));
/// # Ok::<(), serde_json::Error>(())
/// ```
impl<'de> Deserialize<'de> for Quota {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Quota, D::Error> {
        deserializer.deserialize_any(QuotaVisitor)
    }
}

const FIELDS: &[&str] = &["algorithm", "rate", "period", "capacity", "max_reserved", "start"];

struct QuotaVisitor;

impl<'de> Visitor<'de> for QuotaVisitor {
    type Value = Quota;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a quota as text (\"10/s burst 50\") or as a table with rate and period")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Quota, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Quota, A::Error> {
        let (mut algorithm, mut rate, mut period) = (None::<String>, None::<u64>, None::<Span>);
        let (mut capacity, mut reserved, mut start) = (None::<u64>, None::<Reserved>, None::<Span>);
        while let Some(field) = map.next_key::<String>()? {
            match field.as_str() {
                "algorithm" => set(&mut algorithm, "algorithm", map.next_value()?)?,
                "rate" => set(&mut rate, "rate", map.next_value()?)?,
                "period" => set(&mut period, "period", map.next_value()?)?,
                "capacity" => set(&mut capacity, "capacity", map.next_value()?)?,
                "max_reserved" => set(&mut reserved, "max_reserved", map.next_value()?)?,
                "start" => set(&mut start, "start", map.next_value()?)?,
                other => return Err(A::Error::unknown_field(other, FIELDS)),
            }
        }
        let rate = rate.ok_or_else(|| A::Error::missing_field("rate"))?;
        let period = period.ok_or_else(|| A::Error::missing_field("period"))?.0;
        let mut quota = match algorithm.as_deref() {
            None | Some("token_bucket") => Quota::try_token_bucket(rate, period),
            Some("fixed_window") => Quota::try_fixed_window(rate, period),
            Some("sliding_window") => Quota::try_sliding_window(rate, period),
            Some(other) => {
                return Err(A::Error::unknown_variant(other, &["token_bucket", "fixed_window", "sliding_window"]));
            }
        }
        .map_err(A::Error::custom)?;
        if let Some(capacity) = capacity {
            quota = quota.try_capacity(capacity).map_err(A::Error::custom)?;
        }
        quota = match reserved {
            Some(Reserved::UpTo(tokens)) => quota.try_max_reserved(tokens).map_err(A::Error::custom)?,
            Some(Reserved::Unlimited) => quota.try_unlimited_reservations().map_err(A::Error::custom)?,
            None => quota,
        };
        if let Some(Span(start)) = start {
            quota = quota.try_start(start).map_err(A::Error::custom)?;
        }
        quota.validate().map_err(A::Error::custom)?;
        Ok(quota)
    }
}

fn set<T, E: Error>(slot: &mut Option<T>, field: &'static str, value: T) -> Result<(), E> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(E::duplicate_field(field)),
    }
}

struct Span(Duration);

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Span, D::Error> {
        let text = String::deserialize(deserializer)?;
        duration::parse(&text).map(Span).ok_or_else(|| {
            D::Error::custom(format_args!("{text:?} is no duration; write a number and a unit (us ms s min h d w)"))
        })
    }
}

enum Reserved {
    UpTo(u64),
    Unlimited,
}

impl<'de> Deserialize<'de> for Reserved {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Reserved, D::Error> {
        struct ReservedVisitor;
        impl Visitor<'_> for ReservedVisitor {
            type Value = Reserved;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of tokens or \"unlimited\"")
            }

            fn visit_u64<E: Error>(self, tokens: u64) -> Result<Reserved, E> {
                Ok(Reserved::UpTo(tokens))
            }

            fn visit_i64<E: Error>(self, tokens: i64) -> Result<Reserved, E> {
                u64::try_from(tokens)
                    .map(Reserved::UpTo)
                    .map_err(|_| E::custom(format_args!("max_reserved is {tokens}; it must be at least 0 tokens")))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Reserved, E> {
                if text == "unlimited" {
                    Ok(Reserved::Unlimited)
                } else {
                    Err(E::custom(format_args!("max_reserved is {text:?}; write a number of tokens or \"unlimited\"")))
                }
            }
        }
        deserializer.deserialize_any(ReservedVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_name_field_and_value() {
        for (json, part) in [
            (r#"{"period": "1s"}"#, "missing field `rate`"),
            (r#"{"rate": 1, "period": "soon"}"#, "\"soon\" is no duration"),
            (r#"{"rate": 1, "period": "1s", "rat": 2}"#, "unknown field `rat`"),
            (r#"{"rate": 1, "rate": 2, "period": "1s"}"#, "duplicate field `rate`"),
            (r#"{"rate": 0, "period": "1s"}"#, "rate is 0"),
            (r#"{"rate": 1, "period": "1s", "algorithm": "leaky"}"#, "unknown variant `leaky`"),
            (r#"{"rate": 1, "period": "1s", "capacity": 0}"#, "every request would be refused"),
            (r#"{"rate": 1, "period": "1s", "max_reserved": -1}"#, "max_reserved is -1"),
            (r#"{"rate": 1, "period": "1s", "max_reserved": "some"}"#, "max_reserved is \"some\""),
            (r#""1 per blue moon""#, "\"blue\" is no period"),
            ("7", "a quota as text"),
        ] {
            let error = serde_json::from_str::<Quota>(json).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_quota_survives_the_round_trip() {
        let quota =
            Quota::fixed_window(9, Duration::from_secs(90)).unlimited_reservations().start(Duration::from_secs(7));
        let json = serde_json::to_string(&quota).unwrap();
        assert_eq!(serde_json::from_str::<Quota>(&json).unwrap(), quota);
    }
}
