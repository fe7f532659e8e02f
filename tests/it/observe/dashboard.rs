//! `examples/observability/dashboard.json` queries every metric and uses only existing labels.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use metrics::set_default_local_recorder;
use serde_json::Value;
use tollgate::observe::{Metrics, names};
use tollgate::{FailureMode, HOUR, Policy, Quota, protection::Signal};

use super::backends::FlakyBackend;
use crate::support::exporter::{Page, builder};
use crate::support::now;

/// Records every metric at least once.
pub(crate) fn exercise() {
    static API: Policy = Policy::new("api", Quota::token_bucket(1, HOUR));
    let backend = FlakyBackend::new();
    let metrics = Arc::new(Metrics::new());
    let limiter = backend.limiter().on_failure(FailureMode::Allow).observer(Arc::clone(&metrics)).build();
    drop(now(limiter.try_limit(&API, 7)));
    drop(now(limiter.try_check(&API, 7)));
    now(limiter.block(Signal::key(7), HOUR));
    drop(now(limiter.acquire(&API, 9).hold()));
    now(limiter.reset(&API, 9));
    now(limiter.credit(&API, 9, 1));
    backend.set_down(true);
    drop(now(limiter.try_limit(&API, 8)));
    metrics.sample(&limiter);
}

/// Maps the name of each series to its labels, including `instance` and `job`, which Prometheus adds.
fn labels() -> BTreeMap<String, BTreeSet<String>> {
    let recorder = builder().build_recorder();
    let _installed = set_default_local_recorder(&recorder);
    exercise();
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for series in Page::read(&recorder.handle().render()).0 {
        let labels = all.entry(series.name).or_default();
        labels.extend(series.labels.into_keys().chain(["instance".into(), "job".into()]));
    }
    all
}

fn dashboard() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/observability/dashboard.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn queries() -> Vec<(String, String)> {
    let dashboard = dashboard();
    let text = |value: &Value| value.as_str().expect("expected a string").to_owned();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().unwrap());
    let mut all: Vec<_> = targets.map(|target| (text(&target["expr"]), text(&target["legendFormat"]))).collect();
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        all.push((text(&variable["query"]["query"]), String::new()));
    }
    all
}

/// Splits `text` into words made of letters, digits and underscores.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

fn metric(query: &str) -> &str {
    let all: Vec<_> = words(query).filter(|word| word.starts_with("tollgate")).collect();
    assert_eq!(all.len(), 1, "{query}");
    all[0]
}

#[test]
fn the_dashboard_queries_only_existing_metrics_and_labels() {
    let known = labels();
    for (query, legend) in queries() {
        let labels = known.get(metric(&query)).unwrap_or_else(|| panic!("unknown metric in {query}"));
        // Labels occur before `=`, after `by`, as the second argument of `label_values`, and in the legend.
        let mut used: Vec<&str> = Vec::new();
        for (at, _) in query.match_indices("=") {
            used.extend(words(&query[..at]).last());
        }
        for (at, _) in query.match_indices("by (") {
            used.extend(words(query[at + 4..].split(')').next().unwrap()));
        }
        if let Some(arguments) = query.strip_prefix("label_values(") {
            used.extend(words(arguments).nth(1));
        }
        let shown: Vec<&str> = legend.split("{{").skip(1).map(|part| part.split("}}").next().unwrap()).collect();
        for label in used.iter().chain(&shown) {
            assert!(labels.contains(*label), "unknown label {label} in {query}");
        }
        // A legend can show only labels that the aggregation keeps.
        let by = query.split("by (").nth(1).map_or("", |rest| rest.split(')').next().unwrap());
        assert!(
            shown.iter().all(|label| words(by).any(|kept| kept == *label)),
            "the legend {legend} shows a label that {query} drops"
        );
    }
}

#[test]
fn the_dashboard_shows_every_metric() {
    let plain = |name: &str| name.trim_end_matches("_bucket").to_owned();
    let queries = queries();
    let shown: BTreeSet<String> = queries.iter().map(|(query, _)| plain(metric(query))).collect();
    assert_eq!(shown, names::ALL.iter().map(|name| (*name).to_owned()).collect());
    let exported: BTreeSet<String> = labels()
        .into_keys()
        .map(|name| ["_bucket", "_sum", "_count"].iter().fold(name, |name, end| name.trim_end_matches(end).to_owned()))
        .collect();
    assert_eq!(shown, exported);
}

#[test]
fn counters_are_shown_as_rates_and_gauges_are_not() {
    for (query, _) in queries().into_iter().filter(|(query, _)| !query.starts_with("label_values")) {
        let name = metric(&query);
        let counts = name.ends_with("_total") || name.ends_with("_bucket");
        assert_eq!(query.contains("rate("), counts, "{query}");
        assert_eq!(query.contains("[$__rate_interval]"), counts, "{query}");
    }
}

#[test]
fn grafana_can_import_the_dashboard() {
    let dashboard = dashboard();
    // This is the schema version of Grafana 10.0. Later releases migrate the dashboard when they import it.
    assert_eq!(dashboard["schemaVersion"], 38);
    assert_eq!(dashboard["id"], Value::Null);
    let inputs = dashboard["__inputs"].as_array().unwrap();
    assert_eq!(
        (inputs.len(), &inputs[0]["name"], &inputs[0]["pluginId"]),
        (1, &"DS_PROMETHEUS".into(), &"prometheus".into())
    );
    let required: Vec<_> = dashboard["__requires"].as_array().unwrap().iter().map(|one| &one["id"]).collect();
    // The data source is chosen on import.
    let has_datasource =
        |value: &Value| value["datasource"]["uid"] == "${DS_PROMETHEUS}" && value["datasource"]["type"] == "prometheus";
    let (mut ids, mut taken) = (BTreeSet::new(), BTreeSet::new());
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(
            has_datasource(panel) && panel["targets"].as_array().unwrap().iter().all(has_datasource),
            "{}",
            panel["title"]
        );
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "two panels have the id {}", panel["id"]);
        assert!(required.contains(&&panel["type"]), "{}", panel["type"]);
        assert!(!panel["description"].as_str().unwrap().is_empty());
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().unwrap());
        assert!(x + w <= 24, "{}", panel["title"]);
        for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            assert!(taken.insert(cell), "{} overlaps another panel", panel["title"]);
        }
    }
    assert!(dashboard["templating"]["list"].as_array().unwrap().iter().all(has_datasource));
}
