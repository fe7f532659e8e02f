//! Finds changes that need a restart because the limiter and its layers were built with the old values.

use std::collections::BTreeMap;
use std::fmt;

use super::Config;
use super::error::{Faults, Path};
use super::policies::Settings;
use crate::policy::Policy;

pub(super) fn compare(old: &Config, new: &Config, faults: &Faults) {
    compare_names(
        &Path::FILE.field("policies"),
        by_name(&old.policies),
        by_name(&new.policies),
        faults,
        |path, old, new| {
            compare_settings(&old.settings, &new.settings, path, faults);
            let (old, new) = (&old.policy, &new.policy);
            let leases = |policy: &Policy| Some(policy.uses_leases());
            compare_shown(leases(old), leases(new), &path.field("leases"), faults);
            let (old_quotas, new_quotas) = (old.quotas(), new.quotas());
            if !old.accepts(new_quotas) {
                let what = format!(
                    "\"{new_quotas}\" has a different algorithm from \"{old_quotas}\"; restart the program to change it"
                );
                faults.add(&path.field("quota"), what);
            }
            compare_names(&path.field("tiers"), old.tiers(), new.tiers(), faults, |_, _, _| {});
        },
    );

    compare_shown(old.default.as_ref(), new.default.as_ref(), &Path::FILE.field("default"), faults);
    let all_routes = |config: &Config| format!("{:?}", config.all_routes);
    compare_shown(Some(all_routes(old)), Some(all_routes(new)), &Path::FILE.field("all_routes"), faults);
    compare_names(&Path::FILE.field("routes"), by_name(&old.routes), by_name(&new.routes), faults, |path, old, new| {
        compare_shown(Some(old), Some(new), path, faults);
    });
    let path = Path::FILE.field("auto_block");
    match (old.auto_block(), new.auto_block()) {
        (Some(old), Some(new)) => {
            for (field, old, new) in old.differences(new) {
                faults.add(&path.field(field), format_args!("{old} → {new}; restart the program to change it"));
            }
        }
        (Some(_), None) => faults.add(&path, MISSING),
        (None, Some(_)) => faults.add(&path, NEW),
        (None, None) => {}
    }
}

fn by_name<T>(values: &BTreeMap<String, T>) -> impl Iterator<Item = (&str, &T)> {
    values.iter().map(|(name, value)| (name.as_str(), value))
}

/// Adds a fault for each added or removed name, and calls `compare` for all other names.
fn compare_names<'c, T>(
    path: &Path,
    old: impl Iterator<Item = (&'c str, T)>,
    new: impl Iterator<Item = (&'c str, T)>,
    faults: &Faults,
    compare: impl Fn(&Path, T, T),
) {
    let mut new: BTreeMap<&str, T> = new.collect();
    for (name, old) in old {
        let path = path.field(name);
        match new.remove(name) {
            Some(new) => compare(&path, old, new),
            None => faults.add(&path, MISSING),
        }
    }
    for name in new.into_keys() {
        faults.add(&path.field(name), NEW);
    }
}

fn compare_settings(old: &Settings, new: &Settings, path: &Path, faults: &Faults) {
    let name = |settings: &Settings| settings.key.as_ref().map(|name| format!("{name:?}"));
    compare_shown(name(old), name(new), &path.field("key"), faults);
    compare_shown(old.cost, new.cost, &path.field("cost"), faults);
    let wait = |settings: &Settings| settings.wait.map(|wait| format!("{wait:?}"));
    compare_shown(wait(old), wait(new), &path.field("wait"), faults);
}

/// If the values differ, adds a fault that shows both.
fn compare_shown<T: PartialEq + fmt::Display>(old: Option<T>, new: Option<T>, path: &Path, faults: &Faults) {
    if old != new {
        let [old, new] = [old, new].map(|value| value.map_or("none".to_owned(), |value| value.to_string()));
        faults.add(path, format_args!("{old} → {new}; restart the program to change it"));
    }
}

const MISSING: &str = "missing, but in use; put it back, or restart the program to remove it";
const NEW: &str = "new; restart the program to add it";
