//! Rules of the deny list that a layer can never apply: an error when the layer is built, a warning later.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::key::PeerAddr;
use super::shared::Shared;
use crate::policy::{DenyKind, DenyRule};

/// What a layer knows of such rules.
#[derive(Debug, Default)]
pub(super) struct UnmatchedRules {
    /// The layer does not look for them.
    pub(super) ignored: bool,
    /// The list as it was looked at last: 1 more than its number of changes; 0 = not at all.
    seen: AtomicU64,
}

/// For a layer that is changed, and has to look again.
impl Clone for UnmatchedRules {
    fn clone(&self) -> UnmatchedRules {
        UnmatchedRules { ignored: self.ignored, ..UnmatchedRules::default() }
    }
}

impl Shared {
    /// Panics if the deny list has a rule that this layer can never apply. Only when the layer is first put around a
    /// service: a list that is changed later must not stop a program that runs.
    #[track_caller]
    pub(super) fn expect_matched_rules(&self) {
        let Some(changes) = self.changed_list().filter(|_| self.unmatched.seen.load(Ordering::Relaxed) == 0) else {
            return;
        };
        let reasons: Vec<String> = self.unmatched().into_iter().map(|(_, reason)| reason).collect();
        if !reasons.is_empty() {
            let reasons = reasons.join("; ");
            panic!(
                "tollgate: this layer can never apply some rules of its limiter's deny list: {reasons}. {ELSEWHERE}"
            );
        }
        self.unmatched.seen.store(changes, Ordering::Relaxed);
    }

    /// Reports such rules as mistakes, if the list was changed since it was looked at.
    pub(super) fn report_unmatched_rules(&self) {
        let Some(changes) = self.changed_list() else { return };
        if self.unmatched.seen.swap(changes, Ordering::Relaxed) == changes {
            return; // Another request was first.
        }
        for (rule, reason) in self.unmatched() {
            self.limiter.unmatched_deny_rule(&rule.kind(), reason);
        }
    }

    /// The deny list's number of changes and 1, unless it was looked at since.
    fn changed_list(&self) -> Option<u64> {
        let changes = self.limiter.deny_list().filter(|_| !self.unmatched.ignored)?.changes() + 1;
        (self.unmatched.seen.load(Ordering::Relaxed) != changes).then_some(changes)
    }

    /// A rule of each kind that can never apply, and why.
    fn unmatched(&self) -> Vec<(Arc<DenyRule>, String)> {
        let Some(list) = self.limiter.deny_list() else { return Vec::new() };
        let unmatched = list.kinds().into_iter().map(|rule| (self.reason(&rule), rule));
        unmatched.filter_map(|(reason, rule)| Some((rule, reason?))).collect()
    }

    /// Why the layer can never apply a rule, and what to do; `None` if it can.
    fn reason(&self, rule: &DenyRule) -> Option<String> {
        match &rule.0 {
            DenyKind::Network(_) if !self.knows_addresses() => Some(format!(
                "{rule}: no address is known of callers here; give the layer `.client_ip(key::client_ip())`"
            )),
            DenyKind::Label { name, .. } if self.labels.iter().all(|(known, _)| known != name) => Some(format!(
                "{rule}: no label {name:?} is known of callers here; give the layer `.label_from_header({name:?}, ..)` or \
                 `.label({name:?}, ..)`"
            )),
            DenyKind::Key(key) if !self.rules.iter().any(|rule| rule.key.can_find(key)) => Some(format!(
                "a key of the kind {}: this layer finds no such keys; write the key as its extractor does, such as \
                 `key::bearer().key(..)`, or \"bearer:…\" in a file",
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

const ELSEWHERE: &str = "If another layer or a handler on the same limiter applies them, give this layer \
    `.ignore_unmatched_deny_rules()`";
