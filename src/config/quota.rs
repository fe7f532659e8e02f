//! Quotas in a configuration, written as a string, as a table of fields, or as a list of strings and tables.

use std::time::Duration;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::error::Faults;
use super::fields::QUOTA;
use super::raw::{Node, RawConfig};
use super::value::Value;
use crate::algorithm::{Algorithm, Quota};
use crate::policy::{QuotaParts, Quotas, parse_duration};

/// Serializes the quota as a string, such as `"10/s burst 50"`.
impl Serialize for Quota {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Deserializes a quota from a string or from a [table](crate::config#fields-of-a-file).
/// ```
/// use tollgate::{Quota, DAY};
/// let table = r#"{"algorithm": "fixed_window", "rate": 1000, "period": "1d", "capacity": 3000}"#;
/// assert_eq!(serde_json::from_str::<Quota>(table)?, Quota::fixed_window(1000, DAY).capacity(3000));
/// # Ok::<(), serde_json::Error>(())
/// ```
impl<'de> Deserialize<'de> for Quota {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Quota, D::Error> {
        let RawConfig(node) = RawConfig::deserialize(deserializer)?;
        let faults = Faults::default();
        match read(&Value::file(&node, &faults)) {
            Some(quota) if faults.is_empty() => Ok(quota),
            _ => Err(D::Error::custom(faults)),
        }
    }
}

impl Serialize for Quotas {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quotas {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Quotas, D::Error> {
        let RawConfig(node) = RawConfig::deserialize(deserializer)?;
        let faults = Faults::default();
        match read_list(&Value::file(&node, &faults)) {
            Some(quotas) if faults.is_empty() => Ok(quotas),
            _ => Err(D::Error::custom(faults)),
        }
    }
}

/// Reads one quota, several quotas in one string, or a list of quotas.
pub(super) fn read_list(value: &Value<'_>) -> Option<Quotas> {
    match value.node {
        Node::Text(text) => value.accept(text.parse::<Quotas>()),
        Node::List(_) => {
            let quotas = value.list(|item| Some((read(&item)?, item)))?;
            let add = |list: Option<Quotas>, (quota, item): (Quota, Value<'_>)| match list {
                None => Some(quota.into()),
                Some(list) => item.accept(list.try_and(quota)).or(Some(list)),
            };
            quotas.into_iter().fold(None, add).or_else(|| value.refuse("no quotas; add one such as \"10/s\""))
        }
        _ => read(value).map(Quotas::from),
    }
}

pub(super) fn read(value: &Value<'_>) -> Option<Quota> {
    match value.node {
        Node::Text(text) => value.accept(text.parse::<Quota>()),
        Node::Table(_) => table(value),
        node => value.refuse(format_args!("expected a quota such as \"10/s burst 50\", or a table, found {node}")),
    }
}

fn table(value: &Value<'_>) -> Option<Quota> {
    let mut fields = value.fields(&QUOTA)?;
    let algorithm = fields.take("algorithm").map_or(Some(Algorithm::TokenBucket), |value| algorithm(&value));
    let rate = fields.need("rate").and_then(|value| value.number(1, Quota::MAX_TOKENS));
    let period = fields.need("period").and_then(|value| value.duration());
    let capacity = fields.take("capacity").and_then(|value| value.number(0, Quota::MAX_TOKENS));
    let max_reserved = fields.take("max_reserved").and_then(|value| reserved(&value));
    let start = fields.take("start").and_then(|value| start(&value));
    let shards = fields.take("shards").and_then(|value| value.number(1, Quota::MAX_SHARDS));
    fields.end();
    let parts =
        QuotaParts { algorithm: algorithm?, rate: rate?, period: period?, capacity, max_reserved, start, shards };
    value.accept(parts.build())
}

fn algorithm(value: &Value<'_>) -> Option<Algorithm> {
    let name = value.text()?;
    Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == name).or_else(|| {
        value.refuse(format_args!(
            "expected \"token_bucket\", \"fixed_window\" or \"sliding_window\", found {}",
            value.node
        ))
    })
}

/// Returns `Some(None)` for `"unlimited"`.
fn reserved(value: &Value<'_>) -> Option<Option<u64>> {
    match value.node {
        Node::Text(text) if text == "unlimited" => Some(None),
        Node::Text(_) => {
            value.refuse(format_args!("expected a number of tokens or \"unlimited\", found {}", value.node))
        }
        _ => value.number(0, Quota::MAX_TOKENS).map(Some),
    }
}

/// Reads the start of the windows. Unlike other durations, it may be 0, which means midnight UTC.
fn start(value: &Value<'_>) -> Option<Duration> {
    match value.node {
        Node::Text(text) => parse_duration(text).or_else(|| value.duration()),
        _ => value.duration(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn faults_name_the_field_and_the_value() {
        for (json, part) in [
            (r#"{"period": "1s"}"#, "rate: missing; add a value such as 100"),
            (
                r#"{"rate": 1, "period": "soon"}"#,
                "period: expected a duration such as \"10 min\" (units: us ms s min h d w), found the string \"soon\"",
            ),
            (r#"{"rate": 1, "period": "1s", "rat": 2}"#, "rat: unknown field (did you mean \"rate\"?)"),
            (r#"{"rate": 1, "rate": 2, "period": "1s"}"#, "rate: given more than once"),
            (
                r#"{"rate": 0, "period": "1s"}"#,
                "rate: expected a whole number from 1 to 999999999999999, found the number 0",
            ),
            (r#"{"rate": 1, "period": "1s", "algorithm": "leaky"}"#, r#"found the string "leaky""#),
            (r#"{"rate": 1, "period": "1s", "capacity": 0}"#, "every request would be refused"),
            (
                r#"{"rate": 1, "period": "1s", "max_reserved": -1}"#,
                "max_reserved: expected a whole number from 0 to 999999999999999, found the number -1",
            ),
            (
                r#"{"rate": 1, "period": "1s", "max_reserved": "some"}"#,
                "max_reserved: expected a number of tokens or \"unlimited\", found the string \"some\"",
            ),
            (r#""1 per blue moon""#, "expected a period such as \"min\" or \"30s\", found \"blue\""),
            ("7", "expected a quota such as \"10/s burst 50\", or a table, found the number 7"),
        ] {
            let error = serde_json::from_str::<Quota>(json).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_quota_survives_a_round_trip() {
        let quota =
            Quota::fixed_window(9, Duration::from_secs(90)).unlimited_reservations().start(Duration::from_secs(7));
        let json = serde_json::to_string(&quota).unwrap();
        assert_eq!(serde_json::from_str::<Quota>(&json).unwrap(), quota);
    }
}
