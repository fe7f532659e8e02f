//! `tollgate diff`: the callers that only one of two configurations would have refused.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;

use serde::Serialize;
use serde_json::Value;

use crate::simulate::limit::{Limit, read_file};
use crate::simulate::run::Reading;

/// Compares what two configurations would have done to the requests in an access log.
#[derive(clap::Args, Debug)]
pub struct Diff {
    /// The current configuration file
    old: PathBuf,
    /// The changed configuration file
    new: PathBuf,
    /// The log, which may be compressed with gzip or Zstandard; `-` means standard input
    #[arg(long, value_name = "FILE")]
    log: PathBuf,
    /// Fail if more callers than this are newly refused: a number, or a share such as 0.1%
    #[arg(long, value_name = "CALLERS")]
    fail_over: Option<Limitation>,
    #[command(flatten)]
    reading: Reading,
    /// How many callers to list
    #[arg(long, value_name = "NUMBER", default_value_t = 20)]
    worst: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A number of callers, such as `50` or `50-keys`, or a share of all callers, such as `0.1%`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limitation {
    Callers(usize),
    Share(f64),
}

impl FromStr for Limitation {
    type Err = String;

    fn from_str(text: &str) -> Result<Limitation, String> {
        let share = text.strip_suffix('%').and_then(|percent| percent.trim().parse::<f64>().ok());
        let number = text.strip_suffix("-keys").unwrap_or(text).parse().ok().map(Limitation::Callers);
        let share =
            share.filter(|percent| (0.0..=100.0).contains(percent)).map(|percent| Limitation::Share(percent / 100.0));
        share.or(number).ok_or_else(|| "expected a number of callers, such as 50, or a share, such as 0.1%".to_owned())
    }
}

impl Limitation {
    /// Returns the maximum number of callers, given the total number of callers.
    pub fn of(self, callers: usize) -> usize {
        match self {
            Limitation::Callers(number) => number,
            Limitation::Share(share) => (share * callers as f64) as usize,
        }
    }
}

#[derive(Debug, Serialize)]
struct Difference {
    /// The fields that differ between the files.
    changes: Vec<Change>,
    /// The number of refused requests under the old and under the new configuration.
    refused_requests: [u64; 2],
    callers: usize,
    newly_refused_callers: usize,
    no_longer_refused_callers: usize,
    newly_refused: Vec<Changed>,
    no_longer_refused: Vec<Changed>,
    notes: Vec<String>,
}

#[derive(Debug, PartialEq, Serialize)]
struct Change {
    field: String,
    old: Option<String>,
    new: Option<String>,
}

#[derive(Debug, Serialize)]
struct Changed {
    caller: String,
    requests: u32,
    refused: u32,
}

impl Diff {
    /// Returns whether the difference is within the limit.
    pub fn run(&self) -> Result<bool, String> {
        let limits = [Limit::of_file(&self.old)?, Limit::of_file(&self.new)?];
        let applied = self.reading.apply(&self.log, &limits)?;
        let gates = [0, applied.cases];
        let changes = |from: usize, to: usize| {
            let both = applied.callers.of_gate(gates[from]).zip(applied.callers.of_gate(gates[to]));
            let mut changed: Vec<Changed> = both
                .filter(|((_, _, before), (_, _, after))| before.count == 0 && after.count > 0)
                .map(|(_, (caller, requests, after))| Changed {
                    caller: caller.to_string(),
                    requests,
                    refused: after.count,
                })
                .collect();
            changed.sort_by_key(|changed| std::cmp::Reverse(changed.refused));
            changed
        };
        let (mut new, mut gone) = (changes(0, 1), changes(1, 0));
        let callers = applied.callers.len();
        let is_within = self.fail_over.is_none_or(|most| new.len() <= most.of(callers));
        let (newly_refused_callers, no_longer_refused_callers) = (new.len(), gone.len());
        new.truncate(self.worst);
        gone.truncate(self.worst);
        let refused_requests =
            gates.map(|gate| applied.callers.of_gate(gate).map(|(.., refusals)| u64::from(refusals.count)).sum());
        let mut notes: Vec<String> = limits.iter().flat_map(|limit| limit.notes.iter().cloned()).collect();
        notes.dedup();
        let difference = Difference {
            changes: changes_of([read_file(&self.old)?, read_file(&self.new)?]),
            refused_requests,
            callers,
            newly_refused_callers,
            no_longer_refused_callers,
            newly_refused: new,
            no_longer_refused: gone,
            notes,
        };
        match self.json {
            true => println!("{}", serde_json::to_string_pretty(&difference).map_err(|error| error.to_string())?),
            false => difference.print(),
        }
        if !is_within {
            eprintln!("error: newly refused callers: {newly_refused_callers}, which is more than --fail-over allows");
        }
        Ok(is_within)
    }
}

/// Returns the fields that differ, sorted by name.
fn changes_of(files: [Value; 2]) -> Vec<Change> {
    let [old, mut new] = files.map(|file| {
        let mut fields = BTreeMap::new();
        flatten(&file, "", &mut fields);
        fields
    });
    let mut changes: Vec<Change> = old
        .into_iter()
        .map(|(field, old)| Change { new: new.remove(&field), field, old: Some(old) })
        .filter(|change| change.old != change.new)
        .collect();
    changes.extend(new.into_iter().map(|(field, new)| Change { field, old: None, new: Some(new) }));
    changes.sort_by(|one, other| one.field.cmp(&other.field));
    changes
}

fn flatten(value: &Value, path: &str, fields: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                flatten(value, &if path.is_empty() { name.clone() } else { format!("{path}.{name}") }, fields);
            }
        }
        Value::String(text) => _ = fields.insert(path.to_owned(), text.clone()),
        value => _ = fields.insert(path.to_owned(), value.to_string()),
    }
}

impl Difference {
    fn print(&self) {
        for Change { field, old, new } in &self.changes {
            let [old, new] = [old, new].map(|value| value.as_deref().unwrap_or("(none)"));
            println!("{field}: {old} → {new}");
        }
        let [old, new] = self.refused_requests;
        println!("refused requests: {old} → {new}");
        let lists = [
            ("newly refused", self.newly_refused_callers, &self.newly_refused),
            ("no longer refused", self.no_longer_refused_callers, &self.no_longer_refused),
        ];
        for (name, count, changed) in lists {
            println!("{name}: {count} of {} callers", self.callers);
            for Changed { caller, requests, refused } in changed {
                println!("  {caller:40}  {refused} of {requests} requests");
            }
        }
        self.notes.iter().for_each(|note| println!("note: {note}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_added_and_removed_fields_are_listed() {
        let old = serde_json::json!({ "policies": { "api": { "quota": "60/min", "cost": 2 } }, "default": "api" });
        let new = serde_json::json!({ "policies": { "api": { "quota": "30/min" } }, "default": ["api"] });
        let change = |field: &str, old: &str, new: Option<&str>| Change {
            field: field.to_owned(),
            old: Some(old.to_owned()),
            new: new.map(str::to_owned),
        };
        let expected = [
            change("default", "api", Some("[\"api\"]")),
            change("policies.api.cost", "2", None),
            change("policies.api.quota", "60/min", Some("30/min")),
        ];
        assert_eq!(changes_of([old, new]), expected);
    }

    #[test]
    fn a_limitation_is_a_number_or_a_share_of_callers() {
        let of = |text: &str| text.parse::<Limitation>().map(|most| most.of(2_000));
        assert_eq!([of("50"), of("50-keys"), of("0.1%"), of("100 %")], [Ok(50), Ok(50), Ok(2), Ok(2_000)]);
        for text in ["", "-1", "101%", "x%", "1.5"] {
            assert!(of(text).is_err(), "{text}");
        }
    }
}
