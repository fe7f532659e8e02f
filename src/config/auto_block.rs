//! The `[auto_block]` table, which configures temporary blocks after repeated denials.

use std::time::Duration;

use super::fields::{AUTO_BLOCK, ESCALATE};
use super::raw::Node;
use super::routes::PolicyNames;
use super::value::Value;
use crate::algorithm::DAY;
use crate::limiter::AutoBlock;
use crate::policy::{DenyRule, PolicyName};

pub(super) fn read(value: &Value<'_>, known: &PolicyNames<'_>) -> Option<AutoBlock> {
    let mut fields = value.fields(&AUTO_BLOCK)?;
    let names = fields.need("policies").and_then(|value| policies(&value, known));
    let threshold = fields.take("threshold").and_then(|value| value.number(1, u32::MAX));
    let within = fields.take("within").and_then(|value| value.duration());
    let block_for = fields.take("block_for").and_then(|value| value.duration());
    let escalation = fields.take("escalate").and_then(|value| escalate(&value, block_for.unwrap_or(DAY)));
    let forgive = fields.take("reset_on_success").and_then(|value| value.boolean()).unwrap_or(false);
    let by_key = fields.take("keys").and_then(|value| value.boolean()).unwrap_or(true);
    let by_ip = fields.take("ips").and_then(|value| value.boolean()).unwrap_or(true);
    let by_agent = fields.take("user_agents").and_then(|value| value.boolean()).unwrap_or(false);
    let labels = fields.take("labels").and_then(|value| value.list(|value| label(&value))).unwrap_or_default();
    let max_entries = fields.take("max_entries").and_then(|value| value.number(MIN_ENTRIES, MAX_ENTRIES));
    fields.end();
    if !(by_key || by_ip || by_agent || !labels.is_empty()) {
        value.fault(
            "nothing would be blocked: keys, ips and user_agents are false, and labels is empty; enable one of them",
        );
    }

    let rules = threshold.into_iter().fold(AutoBlock::of_names(names?), AutoBlock::threshold);
    let rules = within.into_iter().fold(rules, AutoBlock::within);
    let rules = block_for.into_iter().fold(rules, AutoBlock::block_for);
    let rules = escalation.into_iter().fold(rules, |rules, (factor, most)| rules.escalate(factor, most));
    let mut rules = max_entries.into_iter().fold(rules, AutoBlock::max_entries);
    rules = if forgive { rules.reset_on_success() } else { rules };
    rules = if by_key { rules } else { rules.without_keys() };
    rules = if by_ip { rules } else { rules.without_ips() };
    rules = if by_agent { rules.user_agents() } else { rules };
    Some(labels.into_iter().fold(rules, AutoBlock::label))
}

fn policies(value: &Value<'_>, known: &PolicyNames<'_>) -> Option<Vec<PolicyName>> {
    let names = value.list(|value| PolicyName::try_new(known.name(&value)?).ok())?;
    if matches!(value.node, Node::List(items) if items.is_empty()) {
        value.fault("expected at least one policy, found an empty list; name a policy, or remove auto_block");
    }
    Some(names)
}

fn escalate(value: &Value<'_>, block_for: Duration) -> Option<(u32, Duration)> {
    let mut fields = value.fields(&ESCALATE)?;
    let factor = fields.need("factor").and_then(|value| value.number(2, u32::MAX));
    let most = fields.need("most").and_then(|value| {
        let most = value.duration()?;
        if most < block_for {
            value.fault("shorter than block_for (default: 1 d); write a longer duration");
        }
        Some(most)
    });
    fields.end();
    Some((factor?, most?))
}

fn label(value: &Value<'_>) -> Option<String> {
    let label = value.text()?;
    if label.is_empty() || label.len() > DenyRule::MAX_LENGTH {
        let (max, len) = (DenyRule::MAX_LENGTH, label.len());
        value.fault(format_args!("expected a label name of 1 to {max} bytes, found {len} bytes"));
    }
    Some(label.to_owned())
}

/// The bounds of [`AutoBlock::max_entries`]. At the upper bound, the entries take half a gigabyte of memory.
pub(super) const MIN_ENTRIES: usize = 64;
pub(super) const MAX_ENTRIES: usize = 10_000_000;
