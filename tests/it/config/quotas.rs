//! Quotas in files, written as text and as tables.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use tollgate::algorithm::Algorithm;
use tollgate::{Quota, config::ConfigError};

use super::app::parse;

fn read(quota: &Value) -> Result<Quota, ConfigError> {
    let text = json!({ "policies": { "p": { "quota": quota } } }).to_string();
    parse("limits.json", &text).map(|config| config.policy("p").expect("expected a policy").quotas()[0])
}

fn quota() -> impl Strategy<Value = Quota> {
    let tokens = || prop_oneof![1..100_u64, 1..=Quota::MAX_TOKENS];
    let micros = prop_oneof![
        (1..1000_u64).prop_map(|seconds| seconds * 1_000_000),
        (1..100_u64).prop_map(|hours| hours * 3_600_000_000),
        1..3_155_760_000_000_000_u64,
    ];
    let reserved = prop_oneof![Just(None), Just(Some(None)), tokens().prop_map(|tokens| Some(Some(tokens)))];
    let start = prop::option::of(0..100_000_000_000_u64);
    (0..3, tokens(), micros, prop::option::of(tokens()), reserved, start).prop_filter_map(
        "an invalid quota",
        |(algorithm, rate, micros, capacity, reserved, start)| {
            let period = Duration::from_micros(micros);
            let mut quota = match algorithm {
                0 => Quota::try_token_bucket(rate, period),
                1 => Quota::try_fixed_window(rate, period),
                _ => return Quota::try_sliding_window(rate, period).ok(),
            }
            .ok()?;
            quota = capacity.map_or(Ok(quota), |tokens| quota.try_capacity(tokens)).ok()?;
            quota = match reserved {
                None => quota,
                Some(None) => quota.try_unlimited_reservations().ok()?,
                Some(Some(tokens)) => quota.try_max_reserved(tokens).ok()?,
            };
            start.map_or(Ok(quota), |start| quota.try_start(Duration::from_micros(start))).ok()
        },
    )
}

/// Writes a quota as a table with all fields.
fn fields(quota: &Quota) -> Value {
    let algorithm = match quota.algorithm() {
        Algorithm::TokenBucket => "token_bucket",
        Algorithm::FixedWindow => "fixed_window",
        Algorithm::SlidingWindow => "sliding_window",
        other => panic!("unknown algorithm {other:?}"),
    };
    let mut table = Map::new();
    table.insert("algorithm".into(), json!(algorithm));
    table.insert("rate".into(), json!(quota.rate()));
    table.insert("period".into(), json!(format!("{}us", quota.period().as_micros())));
    if quota.algorithm() != Algorithm::SlidingWindow {
        table.insert("capacity".into(), json!(quota.get_capacity()));
        table
            .insert("max_reserved".into(), quota.get_max_reserved().map_or(json!("unlimited"), |tokens| json!(tokens)));
    }
    if let Some(start) = quota.get_start() {
        table.insert("start".into(), json!(format!("{} us", start.as_micros())));
    }
    Value::Object(table)
}

/// Generates valid and invalid values for a quota in a file.
fn any_quota_value() -> impl Strategy<Value = Value> {
    let value = || {
        prop::sample::select(vec![
            json!(0),
            json!(1),
            json!(-1),
            json!(60),
            json!(1.5),
            json!(u64::MAX),
            json!(999_999_999_999_999_u64),
            json!(null),
            json!(true),
            json!([1]),
            json!({}),
            json!(""),
            json!("60"),
            json!("1 min"),
            json!("0 s"),
            json!("day"),
            json!("90 years"),
            json!("101 years"),
            json!("6000 w"),
            json!("unlimited"),
            json!("token_bucket"),
            json!("fixed_window"),
            json!("sliding_window"),
            json!("leaky"),
        ])
    };
    let field = prop::sample::select(vec!["algorithm", "rate", "period", "capacity", "max_reserved", "start", "burst"]);
    let table = (
        prop::option::of(Just(json!("1 min"))),
        prop::option::of(Just(json!(60))),
        prop::collection::vec((field, value()), 0..4),
    )
        .prop_map(|(period, rate, more)| {
            let mut table = Map::new();
            let named = period.map(|period| ("period", period)).into_iter().chain(rate.map(|rate| ("rate", rate)));
            table.extend(named.chain(more).map(|(name, value)| (name.to_owned(), value)));
            Value::Object(table)
        });
    prop_oneof![1 => value(), 6 => table]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn every_quota_survives_a_round_trip_as_text_and_as_a_table(quota in quota()) {
        prop_assume!(tollgate::algorithm::validate(&quota).is_ok());
        for form in [json!(quota.to_string()), json!(quota), fields(&quota)] {
            prop_assert_eq!(read(&form).map_err(|error| error.to_string()), Ok(quota), "{}", form);
        }
    }

    #[test]
    fn a_quota_parses_the_same_in_a_file_and_on_its_own(form in any_quota_value()) {
        let alone = serde_json::from_value::<Quota>(form.clone());
        match (read(&form), alone) {
            (Ok(in_file), Ok(alone)) => prop_assert_eq!(in_file, alone),
            (Err(_), Err(_)) => {}
            (in_file, alone) => prop_assert!(false, "{}: {:?} in a file, {:?} on its own", form, in_file, alone),
        }
    }
}
