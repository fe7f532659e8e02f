//! Changes that need a restart: those of values that layers were built from.

use std::collections::BTreeMap;

use super::Config;
use super::error::{Faults, Path};
use crate::policy::PolicyName;

/// Adds a fault for each change from `old` to `new` that needs a restart.
pub(super) fn compare(old: &Config, new: &Config, faults: &Faults) {
    let by_name = |config| Config::policies(config).map(|policy| (policy.name().as_str(), policy));
    compare_names(&Path::FILE.field("policies"), by_name(old), by_name(new), faults, |path, old, new| {
        let (was, is) = (old.quota(), new.quota());
        if was.algorithm() != is.algorithm() {
            let what = format!("{is} has another algorithm than {was}; restart the program to change it");
            faults.add(&path.field("quota"), what);
        }
        compare_names(&path.field("tiers"), old.tiers(), new.tiers(), faults, |_, _, _| {});
    });

    let name = |config: &Config| config.default_policy().map(|policy| policy.name().clone());
    changed(name(old), name(new), &Path::FILE.field("default"), faults);
    compare_names(&Path::FILE.field("routes"), old.routes(), new.routes(), faults, |path, old, new| {
        changed(Some(old.name().clone()), Some(new.name().clone()), path, faults);
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

/// Adds a fault for each added or removed name; calls `compare` for the others.
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

fn changed(was: Option<PolicyName>, is: Option<PolicyName>, path: &Path, faults: &Faults) {
    if was != is {
        let [old, new] = [was, is].map(|name| name.map_or("none".to_owned(), |name| format!("{name:?}")));
        faults.add(path, format_args!("{old} → {new}; restart the program to change it"));
    }
}

const MISSING: &str = "it is missing, but the program runs with it; put it back, or restart without it";
const NEW: &str = "it is new; restart the program to have it";
