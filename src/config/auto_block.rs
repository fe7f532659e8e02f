//! `[auto_block]`: whom to block for being denied again and again.

use std::time::Duration;

use super::error::{Faults, Path};
use super::fields::{Fields, duration, list, number, text, truth};
use super::raw::Node;
use super::routes::Policies;
use crate::algorithm::DAY;
use crate::limiter::AutoBlock;
use crate::policy::{DenyRule, PolicyName};

pub(super) fn read(node: &Node, path: &Path<'_>, known: &Policies<'_>, faults: &mut Faults) -> Option<AutoBlock> {
    let mut fields = Fields::of(node, path, r#"policies = ["api"]"#, faults)?;
    let names = fields.need("policies", "[\"api\"]", faults, |node, path, faults| policies(node, path, known, faults));
    let threshold = fields.read("threshold", faults, |node, path, faults| number(node, 1_u32, u32::MAX, path, faults));
    let within = fields.read("within", faults, duration);
    let block_for = fields.read("block_for", faults, duration);
    let escalation = fields.read("escalate", faults, escalate);
    let forgive = fields.read("reset_on_success", faults, truth).unwrap_or(false);
    let by_key = fields.read("keys", faults, truth).unwrap_or(true);
    let by_ip = fields.read("ips", faults, truth).unwrap_or(true);
    let by_agent = fields.read("user_agents", faults, truth).unwrap_or(false);
    let labels = fields.read("labels", faults, labels).unwrap_or_default();
    let most_entries = fields
        .read("max_entries", faults, |node, path, faults| number(node, LEAST_ENTRIES, MOST_ENTRIES, path, faults));
    fields.end(faults);
    if !(by_key || by_ip || by_agent || !labels.is_empty()) {
        faults.add(path, "it would block nobody: keys and ips are false, user_agents and labels not asked for");
    }

    let mut rules = AutoBlock::of_names(names?);
    if let Some(threshold) = threshold {
        rules = rules.threshold(threshold);
    }
    if let Some(within) = within {
        rules = rules.within(within);
    }
    if let Some(block_for) = block_for {
        rules = rules.block_for(block_for);
    }
    if let Some((factor, most)) = escalation {
        // A block that cannot grow: one of the two is a slip.
        if most < block_for.unwrap_or(DAY) {
            let path = path.field("escalate");
            faults.add(&path.field("most"), "it is shorter than block_for (1 d unless said); write a longer time");
        }
        rules = rules.escalate(factor, most);
    }
    if let Some(entries) = most_entries {
        rules = rules.max_entries(usize::try_from(entries).unwrap_or(usize::MAX));
    }
    rules = if forgive { rules.reset_on_success() } else { rules };
    rules = if by_key { rules } else { rules.without_keys() };
    rules = if by_ip { rules } else { rules.without_ips() };
    rules = if by_agent { rules.user_agents() } else { rules };
    Some(labels.into_iter().fold(rules, AutoBlock::label))
}

fn policies(node: &Node, path: &Path<'_>, known: &Policies<'_>, faults: &mut Faults) -> Option<Vec<PolicyName>> {
    let names = list(node, path, faults, |node, path, faults| {
        let name = text(node, path, faults)?;
        known.expect(name, path, faults);
        PolicyName::try_new(name).ok()
    })?;
    if matches!(node, Node::List(items) if items.is_empty()) {
        faults.add(path, "the list is empty, so nobody would be blocked; name a policy, or leave out auto_block");
    }
    Some(names)
}

fn escalate(node: &Node, path: &Path<'_>, faults: &mut Faults) -> Option<(u32, Duration)> {
    let mut fields = Fields::of(node, path, r#"factor = 2, most = "30 d""#, faults)?;
    let factor = fields.need("factor", "2", faults, |node, path, faults| number(node, 2_u32, u32::MAX, path, faults));
    let most = fields.need("most", "\"30 d\"", faults, duration);
    fields.end(faults);
    Some((factor?, most?))
}

fn labels(node: &Node, path: &Path<'_>, faults: &mut Faults) -> Option<Vec<String>> {
    list(node, path, faults, |node, path, faults| {
        let label = text(node, path, faults)?;
        if label.is_empty() || label.len() > DenyRule::MAX_LENGTH {
            faults.add(path, format_args!("a label's name must be 1 to {} bytes long", DenyRule::MAX_LENGTH));
        }
        Some(label.to_owned())
    })
}

/// What [`AutoBlock::max_entries`] takes, and half a gigabyte.
const LEAST_ENTRIES: u64 = 64;
const MOST_ENTRIES: u64 = 10_000_000;
