//! Changes that need a restart, since the layers were built with the old values.

use std::collections::BTreeMap;

use super::Config;
use super::error::{Faults, Path};
use crate::policy::PolicyName;

pub(super) fn compare(old: &Config, new: &Config, faults: &Faults) {
    let by_name = |config| Config::policies(config).map(|policy| (policy.name().as_str(), policy));
    compare_names(&Path::FILE.field("policies"), by_name(old), by_name(new), faults, |path, old, new| {
        let (old_quotas, new_quotas) = (old.quotas(), new.quotas());
        if !old.accepts(new_quotas) {
            let what =
                format!("{new_quotas} has a different algorithm from {old_quotas}; restart the program to change it");
            faults.add(&path.field("quota"), what);
        }
        compare_names(&path.field("tiers"), old.tiers(), new.tiers(), faults, |_, _, _| {});
    });

    let name = |config: &Config| config.default_policy().map(|policy| policy.name().clone());
    compare_policies(name(old), name(new), &Path::FILE.field("default"), faults);
    compare_names(&Path::FILE.field("routes"), old.routes(), new.routes(), faults, |path, old, new| {
        compare_policies(Some(old.name().clone()), Some(new.name().clone()), path, faults);
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

fn compare_policies(old: Option<PolicyName>, new: Option<PolicyName>, path: &Path, faults: &Faults) {
    if old != new {
        let [old, new] = [old, new].map(|name| name.map_or("none".to_owned(), |name| format!("{name:?}")));
        faults.add(path, format_args!("{old} → {new}; restart the program to change it"));
    }
}

const MISSING: &str = "missing, but in use; put it back, or restart the program to remove it";
const NEW: &str = "new; restart the program to add it";
