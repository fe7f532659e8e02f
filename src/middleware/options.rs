//! The options of a layer, shared by its services.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, Response};

use super::cost::Cost;
use super::headers::HeaderFamily;
use super::items::PolicyItems;
use super::key::ClientIp;
use super::on_response::OnResponseFn;
use super::refusal::Refusal;
use super::rule::{PreparedPolicy, Rule};
use super::unmatched::UnmatchedRules;
use crate::algorithm::Quota;
use crate::limiter::RateLimiter;
use crate::policy::{Decision, KeyError, Policy, Signals, limit_conflict};

#[derive(Clone, Default)]
pub(super) struct LayerOptions {
    pub(super) limiter: RateLimiter,
    pub(super) rules: Vec<Rule>,
    pub(super) skip: Vec<Arc<SkipFn>>,
    pub(super) client_ip: Option<ClientIp>,
    pub(super) labels: Vec<(Cow<'static, str>, Arc<LabelFn>)>,
    /// The cost and the settlement under rules that have none of their own.
    pub(super) cost: Cost,
    pub(super) on_response: Option<Arc<OnResponseFn>>,
    /// The maximum delay of a request. If this is `None`, requests are refused instead of delayed.
    pub(super) wait: Option<Duration>,
    pub(super) wait_jitter: Duration,
    pub(super) with_receipt: bool,
    /// Limits are enforced for keys whose digest has a seed below this value or, if this is `None`, for all keys.
    pub(super) enforced_below: Option<u64>,
    pub(super) shadow_header: Option<HeaderName>,
    pub(super) headers: HeaderFamily,
    pub(super) grpc: bool,
    pub(super) retry_jitter: Duration,
    pub(super) with_status: bool,
    pub(super) on_refusal: Option<Arc<OnRefusalFn>>,
    pub(super) unmatched: UnmatchedRules,
    pub(super) checked: OnceLock<()>,
}

type SkipFn = dyn Fn(&Parts) -> bool + Send + Sync;
type OnRefusalFn = dyn Fn(&Refusal<'_>) -> Response<Bytes> + Send + Sync;
type LabelFn = dyn Fn(&Parts) -> Option<String> + Send + Sync;

impl LayerOptions {
    /// Returns the caller's signals, which are empty unless the limiter uses them. Fails if the layer's `client_ip`
    /// finds no address, since deny rules and blocks would then let every client pass.
    pub(super) fn signals(&self, parts: &Parts) -> Result<Signals, KeyError> {
        if !self.limiter.wants_signals() {
            return Ok(Signals::new());
        }
        self.report_unmatched_rules();
        let address = match &self.client_ip {
            Some(client_ip) => Some(client_ip.try_resolve(parts)?),
            None => self.rules.iter().find_map(|rule| rule.key.address(parts)),
        };
        let mut signals = address.map_or_else(Signals::new, |address| Signals::new().ip(address));
        if let Some(agent) = parts.headers.get(http::header::USER_AGENT) {
            signals = signals.user_agent(String::from_utf8_lossy(agent.as_bytes()));
        }
        for (name, value) in &self.labels {
            if let Some(value) = value(parts) {
                signals = signals.label(name.clone(), value);
            }
        }
        Ok(signals)
    }

    /// Checks once for mistakes that can be detected before the first request, and registers the policies. Panics if a
    /// quota can never grant a fixed cost, or if the deny list has a rule that this layer can never apply.
    #[track_caller]
    pub(super) fn check(&self) {
        self.expect_matched_rules();
        self.checked.get_or_init(|| {
            self.rules.iter().for_each(|rule| self.check_cost(rule));
            self.check_names();
            self.limiter.register(self.policies());
        });
    }

    /// Two policies must not have limits with the same name, such as the policy `api;1d` and the daily limit of `api`.
    #[track_caller]
    fn check_names(&self) {
        if let Some(conflict) = limit_conflict(self.policies()) {
            panic!("tollgate: {conflict}");
        }
    }

    fn check_cost(&self, rule: &Rule) {
        let Cost::Fixed(cost) = *rule.cost.as_ref().unwrap_or(&self.cost) else { return };
        let is_too_small = |quota: &Quota| {
            let largest = quota.shard(0);
            let max = if self.wait.is_some() { largest.ceiling() } else { largest.get_capacity() };
            cost > max
        };
        for PreparedPolicy { policy, .. } in rule.policies.iter() {
            let lists =
                std::iter::once((None, policy.quotas())).chain(policy.tiers().map(|(tier, list)| (Some(tier), list)));
            let mut quotas = lists.flat_map(|(tier, list)| list.iter().map(move |quota| (tier, quota)));
            if let Some((tier, quota)) = quotas.find(|(_, quota)| is_too_small(quota)) {
                let (name, limit) = (policy.name(), quota.shard(0).get_capacity());
                let holds = if quota.get_shards() > 1 { "has shards that hold" } else { "holds" };
                let tier = tier.map_or(String::new(), |tier| format!(", tier {tier:?}"));
                panic!(
                    "tollgate: policy {name:?}{tier}: every request costs {cost}, and the quota {quota} {holds} {limit} at \
                     most, so all of them would be refused; raise its capacity, or lower the cost"
                );
            }
        }
    }

    pub(super) fn settles_charges(&self) -> bool {
        self.with_receipt || self.on_response.is_some() || self.rules.iter().any(|rule| rule.on_response.is_some())
    }

    fn rule_of(&self, decision: &Decision) -> Option<(&Rule, &PreparedPolicy)> {
        self.rules.iter().find_map(|rule| {
            let mut policies = rule.policies.iter();
            Some((rule, policies.find(|known| known.policy.name() == decision.policy())?))
        })
    }

    pub(super) fn on_response_of(&self, decision: &Decision) -> Option<&OnResponseFn> {
        self.rule_of(decision)?.0.on_response.as_deref().or(self.on_response.as_deref())
    }

    pub(super) fn items_of(&self, decision: &Decision) -> Option<&PolicyItems> {
        self.rule_of(decision).map(|(_, known)| &known.items)
    }

    pub(super) fn tables(&self) -> impl Iterator<Item = &super::table::Table> {
        self.rules.iter().filter_map(|rule| rule.table.as_deref())
    }

    pub(super) fn policies(&self) -> impl Iterator<Item = &Policy> {
        self.rules.iter().flat_map(|rule| rule.policies.iter()).map(|known| &known.policy)
    }
}

impl fmt::Debug for LayerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer")
            .field("policies", &self.policies().collect::<Vec<_>>())
            .field("limiter", &self.limiter)
            .field("enforced_below", &self.enforced_below)
            .field("headers", &self.headers)
            .field("status", &self.with_status)
            .finish_non_exhaustive()
    }
}
