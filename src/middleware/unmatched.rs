//! Detects deny rules that can never match in a layer. They are reported as mistakes when the layer is first added to a
//! service, or when they are added to the deny list later.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::key::PeerAddr;
use super::options::LayerOptions;
use crate::policy::{DenyKind, DenyRule};

#[derive(Debug, Default)]
pub(super) struct UnmatchedRules {
    /// The version of the deny list at the last check: 1 plus the number of changes, or 0 before the first check.
    checked_version: AtomicU64,
}

/// A clone has to check the deny list again, since its options can be changed.
impl Clone for UnmatchedRules {
    fn clone(&self) -> UnmatchedRules {
        UnmatchedRules::default()
    }
}

impl LayerOptions {
    pub(super) fn report_unmatched_rules(&self) {
        let Some(version) = self.limiter.deny_list().map(|list| list.changes() + 1) else { return };
        if self.unmatched.checked_version.load(Ordering::Relaxed) == version
            || self.unmatched.checked_version.swap(version, Ordering::Relaxed) == version
        {
            return; // These rules have been reported, perhaps by another request.
        }
        for (rule, reason) in self.unmatched() {
            self.limiter.unmatched_deny_rule(&rule.kind(), reason);
        }
    }

    /// Returns one unmatched rule of each kind, with the reason why it is unmatched.
    fn unmatched(&self) -> Vec<(Arc<DenyRule>, String)> {
        let Some(list) = self.limiter.deny_list() else { return Vec::new() };
        let unmatched = list.kinds().into_iter().map(|rule| (self.reason(&rule), rule));
        unmatched.filter_map(|(reason, rule)| Some((rule, reason?))).collect()
    }

    /// Returns why a rule can never match in this layer and how to fix that, or `None` if the rule can match.
    fn reason(&self, rule: &DenyRule) -> Option<String> {
        match &rule.0 {
            DenyKind::Network(_) if !self.knows_addresses() => {
                Some(format!("{rule}: this layer finds no client addresses; add `.client_ip(key::client_ip())` to it"))
            }
            DenyKind::Label { name, .. } if self.labels.iter().all(|(known, _)| known != name) => Some(format!(
                "{rule}: this layer sets no label {name:?}; add `.label_from_header({name:?}, ..)` or \
                 `.label({name:?}, ..)` to it"
            )),
            DenyKind::Key(key) if !self.rules.iter().any(|rule| rule.key.can_find(key)) => Some(format!(
                "a key that is {}: this layer's key extractors find no such keys; create the key with the extractor, \
                 as in `key::bearer().key(..)`; in a file, write its text form, such as \"bearer:…\" or \
                 \"header(x-api-key):…\"",
                key.kind()
            )),
            _ => None,
        }
    }

    fn knows_addresses(&self) -> bool {
        let (mut parts, ()) = http::Request::new(()).into_parts();
        parts.extensions.insert(PeerAddr(([192, 0, 2, 1], 1).into()));
        self.client_ip.is_some() || self.rules.iter().any(|rule| rule.key.address(&parts).is_some())
    }
}
