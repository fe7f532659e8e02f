//! What a configuration cannot change while the program runs: whatever layers were built of.

use std::collections::BTreeMap;

use super::Config;
use super::error::{Faults, Path};
use crate::policy::PolicyName;

/// What of `new` a program that runs by `old` cannot have without a restart.
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
    if old.auto_block() != new.auto_block() {
        faults.add(&Path::FILE.field("auto_block"), "it is another than before; restart the program to change it");
    }
}

/// No name may come or go; of those that stay, `compare` looks at both values.
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
            None => {
                faults.add(&path, "it is missing, but the program runs with it; put it back, or restart without it")
            }
        }
    }
    for name in new.into_keys() {
        faults.add(&path.field(name), "it is new; restart the program to have it");
    }
}

fn changed(was: Option<PolicyName>, is: Option<PolicyName>, path: &Path, faults: &Faults) {
    match (was, is) {
        (was, is) if was == is => {}
        (was, Some(is)) => {
            let was = was.map_or("there was none".to_owned(), |was| format!("it was {was:?}"));
            faults.add(path, format_args!("{was} and is {is:?}; restart the program to change it"));
        }
        (was, None) => {
            let was = was.as_ref().map_or("none", PolicyName::as_str);
            faults.add(path, format_args!("it was {was:?} and is no more; restart the program to change it"));
        }
    }
}
