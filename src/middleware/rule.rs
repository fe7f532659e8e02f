//! A rule of a layer: which policy applies to a request, and whom it counts.

use std::sync::Arc;

use http::request::Parts;

use super::headers::PolicyHeader;
use super::key::KeyExtractor;
use crate::policy::Policy;

/// One line of a layer. Most have one policy; a route table's has several and chooses.
#[derive(Clone)]
pub(super) struct Rule {
    pub(super) policies: Arc<[Prepared]>,
    pub(super) choose: Option<Arc<Choose>>,
    pub(super) key: Arc<dyn KeyExtractor>,
}

/// A policy with what can be rendered once.
#[derive(Clone)]
pub(super) struct Prepared {
    pub(super) policy: Policy,
    pub(super) header: PolicyHeader,
}

/// The number of the policy for a request; `None` if the rule does not limit it.
pub(super) type Choose = dyn Fn(&Parts) -> Option<usize> + Send + Sync;

impl Rule {
    pub(super) fn new(policy: Policy, key: Arc<dyn KeyExtractor>) -> Rule {
        Rule { policies: Arc::new([Prepared::new(policy)]), choose: None, key }
    }

    pub(super) fn chosen(&self, parts: &Parts) -> Option<usize> {
        match &self.choose {
            None => Some(0),
            Some(choose) => choose(parts).filter(|chosen| *chosen < self.policies.len()),
        }
    }
}

impl Prepared {
    pub(super) fn new(policy: Policy) -> Prepared {
        Prepared { header: PolicyHeader::new(&policy), policy }
    }
}
