//! What a configuration cannot change while the program runs: whatever layers were built of.

use super::Config;
use super::error::{Faults, Path};
use crate::policy::{Policy, PolicyName};

/// What of `new` a program that runs by `old` cannot have without a restart.
pub(super) fn compare(old: &Config, new: &Config, faults: &Faults) {
    let path = Path::FILE.field("policies");
    for policy in old.policies() {
        let path = path.field(policy.name().as_str());
        match new.policy(policy.name().as_str()) {
            Some(new) => compare_policies(policy, new, &path, faults),
            None => gone(&path, faults),
        }
    }
    for policy in new.policies().filter(|policy| old.policy(policy.name().as_str()).is_none()) {
        added(&path.field(policy.name().as_str()), faults);
    }

    let name = |config: &Config| config.default_policy().map(|policy| policy.name().clone());
    changed(name(old), name(new), &Path::FILE.field("default"), faults);
    let path = Path::FILE.field("routes");
    for (line, policy) in old.routes() {
        match policy_of(new, line) {
            None => gone(&path.field(line), faults),
            is => changed(Some(policy.name().clone()), is, &path.field(line), faults),
        }
    }
    for (line, _) in new.routes().filter(|(line, _)| policy_of(old, line).is_none()) {
        added(&path.field(line), faults);
    }
    if old.auto_block() != new.auto_block() {
        faults.add(&Path::FILE.field("auto_block"), "it is another than before; restart the program to change it");
    }
}

fn compare_policies(old: &Policy, new: &Policy, path: &Path, faults: &Faults) {
    let (was, is) = (old.quota(), new.quota());
    if was.algorithm() != is.algorithm() {
        faults.add(
            &path.field("quota"),
            format_args!("{is} has another algorithm than {was}; restart the program to change it"),
        );
    }
    let has = |policy: &Policy, tier: &str| policy.tiers().any(|(known, _)| known == tier);
    let path = path.field("tiers");
    old.tiers().filter(|(tier, _)| !has(new, tier)).for_each(|(tier, _)| gone(&path.field(tier), faults));
    new.tiers().filter(|(tier, _)| !has(old, tier)).for_each(|(tier, _)| added(&path.field(tier), faults));
}

/// The name of the policy of the route with this line.
fn policy_of(config: &Config, line: &str) -> Option<PolicyName> {
    let at = config.routes.binary_search_by(|(known, _)| known.as_str().cmp(line)).ok()?;
    let (_, policy) = config.routes.get(at)?;
    Some(config.policies.get(*policy)?.name().clone())
}

fn gone(path: &Path, faults: &Faults) {
    faults.add(path, "it is missing, but the program runs with it; put it back, or restart without it");
}

fn added(path: &Path, faults: &Faults) {
    faults.add(path, "it is new; restart the program to have it");
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
