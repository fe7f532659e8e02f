//! A rule of a layer: a policy, a key extractor and a cost.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;

use super::cost::Cost;
use super::items::PolicyItems;
use super::key::KeyExtractor;
use super::on_response::{OnResponse, OnResponseFn};
#[cfg(feature = "wait")]
use super::options::expect_reservations;
use crate::policy::Policy;

/// One limit of a layer, optionally with its own cost and settlement. Convert a rule into a layer with
/// [`RateLimitLayer::from`](super::RateLimitLayer), or add it to a layer with [`rule`](super::RateLimitLayer::rule).
///
/// ```
/// use http::request::Parts;
/// use tollgate::{key, Policy, Quota, RateLimitLayer, Rule, DAY, MINUTE};
///
/// const CALLS: Policy = Policy::new("calls", Quota::token_bucket(60, MINUTE));
/// const BYTES: Policy = Policy::new("bytes", Quota::fixed_window(1_000_000_000, DAY));
/// // Uploads without `Content-Length` are charged roughly what axum's default body limit allows, rather than 0.
/// const MAX_LENGTH: u64 = 2_000_000;
///
/// let bytes = Rule::new(BYTES, key::client_ip()).cost(|req: &Parts| {
///     let length = req.headers.get("content-length").and_then(|value| value.to_str().ok()?.parse().ok());
///     length.filter(|_| !req.headers.contains_key("transfer-encoding")).unwrap_or(MAX_LENGTH)
/// });
/// let layer = RateLimitLayer::new(CALLS, key::client_ip()).rule(bytes);
/// ```
#[derive(Clone)]
pub struct Rule {
    pub(super) prepared: Arc<PreparedPolicy>,
    pub(super) key: Arc<dyn KeyExtractor>,
    pub(super) cost: Option<Cost>,
    pub(super) on_response: Option<Arc<OnResponseFn>>,
    /// The maximum delay of a request under this rule. If `None`, the layer's maximum applies.
    pub(super) wait: Option<Duration>,
}

pub(super) struct PreparedPolicy {
    pub(super) policy: Policy,
    pub(super) items: PolicyItems,
}

impl Rule {
    /// Creates a rule. A bare quota is converted to a policy whose name is the quota's text form.
    ///
    /// # Panics
    /// Panics if a bare quota refuses everything (capacity 0 without reservations).
    #[track_caller]
    pub fn new(policy: impl Into<Policy>, key: impl KeyExtractor) -> Rule {
        Rule::shared(policy.into(), Arc::new(key))
    }

    pub(crate) fn shared(policy: Policy, key: Arc<dyn KeyExtractor>) -> Rule {
        let prepared = Arc::new(PreparedPolicy { items: PolicyItems::new(&policy), policy });
        Rule { prepared, key, cost: None, on_response: None, wait: None }
    }

    /// Like [`RateLimitLayer::cost`](super::RateLimitLayer::cost), but only for this rule.
    #[must_use]
    pub fn cost(mut self, cost: impl Fn(&Parts) -> u64 + Send + Sync + 'static) -> Rule {
        self.cost = Some(Cost::PerRequest(Arc::new(cost)));
        self
    }

    /// Like [`RateLimitLayer::fixed_cost`](super::RateLimitLayer::fixed_cost), but only for this rule.
    #[must_use]
    pub fn fixed_cost(mut self, tokens: u64) -> Rule {
        self.cost = Some(Cost::Fixed(tokens));
        self
    }

    /// Like [`RateLimitLayer::on_response`](super::RateLimitLayer::on_response), but only for this rule.
    #[must_use]
    pub fn on_response(
        mut self,
        settle: impl Fn(&http::response::Parts) -> OnResponse + Send + Sync + 'static,
    ) -> Rule {
        self.on_response = Some(Arc::new(settle));
        self
    }

    /// Like [`RateLimitLayer::wait_up_to`](super::RateLimitLayer::wait_up_to), but only for this rule.
    ///
    /// # Panics
    /// Panics if the policy does not allow reservations.
    #[cfg(feature = "wait")]
    #[track_caller]
    #[must_use]
    pub fn wait_up_to(mut self, wait: Duration) -> Rule {
        expect_reservations([self.policy()]);
        self.wait = Some(wait);
        self
    }

    pub(super) fn policy(&self) -> &Policy {
        &self.prepared.policy
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Rule").field(self.policy()).finish()
    }
}
