//! The JSON schema accepts every file that the reader accepts, and rejects files with unknown or missing fields.
//!
//! `TOLLGATE_MESSAGES=write cargo test --all-features --test it config::` rewrites `docs/tollgate.schema.json`.

use std::path::Path;
use std::sync::LazyLock;

use boon::{Compiler, SchemaIndex, Schemas};
use serde_json::{Map, Value, json};

use super::app::reader;

static SCHEMA: LazyLock<(Schemas, SchemaIndex)> = LazyLock::new(|| {
    let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
    compiler.add_resource("tollgate.schema.json", schema()).unwrap();
    let index = compiler.compile("tollgate.schema.json", &mut schemas).unwrap();
    (schemas, index)
});

fn schema() -> Value {
    serde_json::to_value(tollgate::config::schema()).unwrap()
}

/// Validates a file against the schema.
pub(crate) fn check(file: &Value) -> Result<(), String> {
    let (schemas, index) = &*SCHEMA;
    schemas.validate(file, *index).map_err(|error| error.to_string())
}

/// Converts a file to JSON from the format indicated by the extension of `name`.
pub(crate) fn json(name: &str, text: &str) -> Value {
    let text = text.trim_start_matches('\u{feff}');
    match name.rsplit_once('.').unwrap().1 {
        "toml" => toml::from_str(text).unwrap(),
        "yaml" => with_text_names(yaml_serde::from_str(text).unwrap()),
        _ => serde_json::from_str(text).unwrap(),
    }
}

/// Converts names to strings, because YAML parsers read the name `404` as a number.
fn with_text_names(value: yaml_serde::Value) -> Value {
    match value {
        yaml_serde::Value::Mapping(entries) => {
            let name = |name: yaml_serde::Value| match name {
                yaml_serde::Value::String(name) => name,
                other => yaml_serde::to_string(&other).unwrap().trim().to_owned(),
            };
            entries.into_iter().map(|(key, value)| (name(key), with_text_names(value))).collect::<Map<_, _>>().into()
        }
        yaml_serde::Value::Sequence(items) => items.into_iter().map(with_text_names).collect(),
        other => serde_json::to_value(other).unwrap(),
    }
}

/// Returns a valid file that uses every field.
fn every_field() -> Value {
    json!({
        "policies": {
            "api": {"quota": "60/min", "tiers": {"free": {"rate": 30, "period": "1 min"}}, "key": "user", "cost": 2},
            "queue": {"quota": "10/s burst 1 reserve 20", "wait": "5 s", "shadow": false, "enforce": 0.5, "leases": true},
            "daily": {
                "quota": [
                    {
                        "algorithm": "fixed_window", "rate": 1000, "period": "1 d", "capacity": 3000, "start": "8 h", "shards": 4,
                        "max_reserved": "unlimited",
                    },
                    "50/s shards 4",
                ],
                "key": "tenant",
            },
            "all": {"quota": "1000/s; 10000/min", "key": "global"},
        },
        "default": ["api"],
        "all_routes": ["all"],
        "routes": {
            "POST /todos": "queue",
            "/search": ["api", "daily"],
            "/export": {"policies": ["queue", "daily"], "cost": 10},
            "/download": {"policies": "queue"},
            "/health": [],
        },
        "deny": {
            "ips": ["192.0.2.0/24"], "user_agents": ["*bot*"], "countries": ["KP"], "keys": [7, "bearer:leaked"],
            "labels": {"asn": ["64496"]},
        },
        "auto_block": {
            "policies": ["api"], "threshold": 5, "within": "10 min", "block_for": "1 d", "reset_on_success": true,
            "escalate": {"factor": 2, "most": "30 d"}, "keys": true, "ips": true, "user_agents": true,
            "labels": ["asn"], "max_entries": 1000,
        },
    })
}

/// Returns the reader's error for a file, or `None` if the file is valid.
fn error(file: &Value) -> Option<String> {
    let error = reader().parse("limits.json", &file.to_string(), |text| serde_json::from_str(text)).err()?;
    Some(error.to_string())
}

/// Calls `visit` with a JSON pointer to each value of a file.
fn for_each_value(file: &Value, pointer: &str, visit: &mut impl FnMut(&str)) {
    visit(pointer);
    let escaped = |name: &str| name.replace('~', "~0").replace('/', "~1");
    match file {
        Value::Object(fields) => fields
            .iter()
            .for_each(|(name, value)| for_each_value(value, &format!("{pointer}/{}", escaped(name)), visit)),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(i, item)| for_each_value(item, &format!("{pointer}/{i}"), visit));
        }
        _ => {}
    }
}

#[test]
fn the_schema_in_the_repository_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/tollgate.schema.json");
    let text = serde_json::to_string_pretty(&tollgate::config::schema()).unwrap() + "\n";
    if std::env::var_os("TOLLGATE_MESSAGES").is_some_and(|value| value == "write") {
        std::fs::write(&path, text).unwrap();
        return;
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), text);
}

#[test]
fn the_sample_with_every_field_is_valid_and_complete() {
    let file = every_field();
    assert_eq!((error(&file), check(&file)), (None, Ok(())));
    // Each field of the schema occurs in the sample and in the documentation.
    let docs = include_str!("../../../src/config/mod.rs");
    let (mut missing, mut count) = (Vec::new(), 0);
    for_each_value(&schema(), "", &mut |pointer| {
        let Some((table, name)) = pointer.rsplit_once("/properties/").filter(|(_, name)| !name.contains('/')) else {
            return;
        };
        count += 1;
        let mut used = false;
        for_each_value(&file, "", &mut |pointer| used |= pointer.ends_with(&format!("/{name}")));
        if !used || !docs.contains(name) {
            missing.push(format!("{table}/{name}"));
        }
    });
    assert!(count > 35 && missing.is_empty(), "{count} fields; missing: {missing:?}");
}

#[test]
fn unknown_fields_are_rejected_by_the_reader_and_by_the_schema() {
    let mut tables = 0;
    for_each_value(&every_field(), "", &mut |pointer| {
        let mut file = every_field();
        let Some(table) = file.pointer_mut(pointer).and_then(Value::as_object_mut) else { return };
        table.insert("/unheard-of".into(), json!("60/min"));
        if error(&file).is_some_and(|error| error.contains("unknown field")) {
            tables += 1;
            check(&file).expect_err(pointer);
        }
    });
    assert_eq!(tables, 12, "unexpected number of tables that reject unknown fields");
}

#[test]
fn missing_fields_are_rejected_by_the_reader_and_by_the_schema() {
    let mut required = 0;
    for_each_value(&every_field(), "", &mut |pointer| {
        let mut file = every_field();
        let Some((table, name)) = pointer.rsplit_once('/') else { return };
        let Some(table) = file.pointer_mut(table).and_then(Value::as_object_mut) else { return };
        table.remove(name);
        if error(&file).is_some_and(|error| error.contains("missing")) {
            required += 1;
            check(&file).expect_err(pointer);
        }
    });
    assert!(required >= 10, "{required} required fields");
}

#[test]
fn the_schema_accepts_every_value_that_the_reader_accepts() {
    let values = [
        json!(null),
        json!(true),
        json!(0),
        json!(7),
        json!(-1),
        json!(1.5),
        json!("text"),
        json!("api"),
        json!("user"),
        json!("5/s"),
        json!("10 s"),
        json!("0 s"),
        json!(""),
        json!([]),
        json!(["api"]),
        json!(["5/s"]),
        json!([7]),
        json!({}),
        json!({"policies": ["api"]}),
        json!({"quota": "5/s"}),
        json!({"rate": 1, "period": "1 s"}),
    ];
    let (mut accepted, mut both_refuse) = (0, 0);
    for_each_value(&every_field(), "", &mut |pointer| {
        for other in &values {
            let mut file = every_field();
            *file.pointer_mut(pointer).unwrap() = other.clone();
            match (error(&file), check(&file)) {
                (None, schema) => {
                    accepted += 1;
                    assert_eq!(schema, Ok(()), "{pointer}: {other}");
                }
                (Some(_), Err(_)) => both_refuse += 1,
                // The schema does not check the contents of strings such as quotas and policy names.
                (Some(_), Ok(())) => {}
            }
        }
    });
    assert!(accepted > 50 && both_refuse > 500, "{accepted} accepted, {both_refuse} rejected by both");
}

#[test]
fn broken_files_with_unknown_or_missing_fields_are_rejected_by_the_schema() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/config");
    let messages = std::fs::read_to_string(folder.join("messages.txt")).unwrap();
    let mut count = 0;
    for section in messages.split("## ").filter(|text| text.contains(": unknown field") || text.contains(": missing")) {
        let name = section.lines().next().unwrap();
        let text = std::fs::read_to_string(folder.join("broken").join(name)).unwrap();
        check(&json(name, &text)).expect_err(name);
        count += 1;
    }
    assert!(count >= 8, "{count} files");
}

#[test]
fn the_example_files_are_valid() {
    for path in ["examples/config_file/limits.toml", "examples/service/limits.toml"] {
        let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
        check(&json(path, &text)).unwrap_or_else(|error| panic!("{path}: {error}"));
    }
}
