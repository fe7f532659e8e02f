//! A parser for the output of the Prometheus exporter.

use std::collections::BTreeMap;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use tollgate::observe::names;

pub(crate) fn builder() -> PrometheusBuilder {
    let duration = Matcher::Full(names::DECISION_DURATION.into());
    PrometheusBuilder::new().set_buckets_for_metric(duration, &names::DURATION_BUCKETS).unwrap()
}

#[derive(Debug)]
pub(crate) struct Page(pub(crate) Vec<Series>);

#[derive(Debug, PartialEq)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) value: f64,
}

impl Page {
    pub(crate) fn read(text: &str) -> Page {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        Page(
            lines
                .map(|line| Series::read(line).unwrap_or_else(|| panic!("expected a series, found {line:?}")))
                .collect(),
        )
    }

    /// Returns the sum of a metric over the series with these labels, or `None` if there are no such series.
    pub(crate) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let has = |series: &&Series| {
            let matches = |(key, value): &(&str, &str)| series.labels.get(*key).is_some_and(|known| known == value);
            series.name == name && labels.iter().all(matches)
        };
        self.0.iter().filter(has).map(|series| series.value).reduce(|a, b| a + b)
    }
}

impl Series {
    /// Parses `name{label="value",...} number`. Label values can contain the escapes `\\`, `\"` and `\n`.
    fn read(line: &str) -> Option<Series> {
        let end = line.find(['{', ' '])?;
        let (name, mut rest) = line.split_at(end);
        let mut labels = BTreeMap::new();
        if let Some(labels_text) = rest.strip_prefix('{') {
            rest = labels_text;
            while !rest.starts_with('}') {
                let (key, value) = rest.strip_prefix(',').unwrap_or(rest).split_once("=\"")?;
                let mut text = String::new();
                let mut chars = value.char_indices();
                let end = loop {
                    match chars.next()? {
                        (i, '"') => break i + 1,
                        (_, '\\') => text.push(match chars.next()? {
                            (_, 'n') => '\n',
                            (_, escaped) => escaped,
                        }),
                        (_, other) => text.push(other),
                    }
                };
                labels.insert(key.to_owned(), text);
                rest = &value[end..];
            }
            rest = &rest[1..];
        }
        Some(Series { name: name.to_owned(), labels, value: rest.trim().parse().ok()? })
    }
}
