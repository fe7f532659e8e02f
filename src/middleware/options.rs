//! The options of a layer, shared by its services.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, Response};

use super::choice::RouteChoice;
use super::cost::Cost;
use super::headers::HeaderFamily;
use super::items::PolicyItems;
use super::key::ClientIp;
use super::on_response::OnResponseFn;
use super::refusal::Refusal;
use super::rule::Rule;
use super::table::Table;
use super::unmatched::UnmatchedRules;
use crate::limiter::RateLimiter;
use crate::policy::{Decision, KeyError, Policy, Signals, limit_conflict};

#[derive(Clone, Default)]
pub(super) struct LayerOptions {
    pub(super) limiter: RateLimiter,
    /// The first `chosen` rules apply only if `choice` chooses them for a request. The others apply to all requests.
    pub(super) rules: Vec<Rule>,
    pub(super) chosen: usize,
    pub(super) choice: Option<Arc<RouteChoice>>,
    pub(super) skip: Vec<Arc<SkipFn>>,
    pub(super) client_ip: Option<ClientIp>,
    pub(super) labels: Vec<(Cow<'static, str>, Arc<LabelFn>)>,
    /// The cost and the `on_response` closure for rules that have none of their own.
    pub(super) cost: Cost,
    pub(super) on_response: Option<Arc<OnResponseFn>>,
    /// The maximum delay of a request. If this is `None`, requests are refused instead of delayed.
    pub(super) wait: Option<Duration>,
    pub(super) wait_jitter: Duration,
    pub(super) with_receipt: bool,
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
    /// finds no address, since no deny rule or block for an address could then match the client.
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

    /// Checks for mistakes that can be detected before the first request, and registers the policies.
    #[track_caller]
    pub(super) fn check(&self) {
        self.report_unmatched_rules();
        self.checked.get_or_init(|| {
            self.rules.iter().for_each(|rule| self.check_cost(rule, &self.cost));
            for (rules, cost) in self.choice.iter().flat_map(|choice| choice.fixed_costs()) {
                rules.iter().for_each(|&rule| self.check_cost(&self.rules[rule], &Cost::Fixed(cost)));
            }
            self.check_names();
            self.limiter.register(self.policies());
        });
    }

    /// Panics if two policies have limits with the same name. For example, a policy named `api;1d` conflicts with the
    /// daily limit of the policy `api`.
    #[track_caller]
    fn check_names(&self) {
        if let Some(conflict) = limit_conflict(self.policies()) {
            panic!("tollgate: {conflict}");
        }
    }

    /// Panics if a quota of `rule` can never grant its fixed cost. `cost` applies if the rule has no cost of its own.
    #[track_caller]
    fn check_cost(&self, rule: &Rule, cost: &Cost) {
        let Cost::Fixed(cost) = *rule.cost.as_ref().unwrap_or(cost) else { return };
        if let Some((tier, what)) = impossible_cost(rule.policy(), cost, self.wait_of(rule).is_some()) {
            let name = rule.policy().name();
            let tier = tier.map_or(String::new(), |tier| format!(", tier {tier:?}"));
            panic!("tollgate: policy {name:?}{tier}: {what}");
        }
    }

    pub(super) fn wait_of(&self, rule: &Rule) -> Option<Duration> {
        rule.wait.or(self.wait)
    }

    pub(super) fn settles_charges(&self) -> bool {
        self.with_receipt || self.on_response.is_some() || self.rules.iter().any(|rule| rule.on_response.is_some())
    }

    fn rule_of(&self, decision: &Decision) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.policy().name() == decision.policy())
    }

    pub(super) fn on_response_of(&self, decision: &Decision) -> Option<&OnResponseFn> {
        self.rule_of(decision)?.on_response.as_deref().or(self.on_response.as_deref())
    }

    pub(super) fn items_of(&self, decision: &Decision) -> Option<&PolicyItems> {
        self.rule_of(decision).map(|rule| &rule.prepared.items)
    }

    pub(super) fn table(&self) -> Option<&Table> {
        self.choice.as_ref()?.table()
    }

    pub(super) fn policies(&self) -> impl Iterator<Item = &Policy> {
        self.rules.iter().map(Rule::policy)
    }
}

/// Finds a quota that can never grant `cost`. Returns its tier and the reason why requests would be refused.
pub(crate) fn impossible_cost(policy: &Policy, cost: u64, waits: bool) -> Option<(Option<&str>, String)> {
    let lists = std::iter::once((None, policy.quotas())).chain(policy.tiers().map(|(tier, list)| (Some(tier), list)));
    let mut quotas = lists.flat_map(|(tier, list)| list.iter().map(move |quota| (tier, quota)));
    let (tier, quota) = quotas.find(|(_, quota)| quota.shards_for(cost, waits) == 0)?;
    let holds = if quota.get_shards() > 1 { "has shards that each hold" } else { "holds" };
    let what = format!(
        "every request costs {cost}, but the quota {quota} {holds} at most {}, so no request would be allowed; raise \
         its capacity, or lower the cost",
        quota.shard(0).get_capacity()
    );
    Some((tier, what))
}

/// Panics if none of the policies allows reservations.
#[cfg(feature = "wait")]
#[track_caller]
pub(super) fn expect_reservations<'a>(policies: impl IntoIterator<Item = &'a Policy>) {
    let policies: Vec<_> = policies.into_iter().collect();
    if !policies.iter().any(|policy| allows_reservations(policy)) {
        let names: Vec<_> = policies.iter().map(|policy| policy.name()).collect();
        panic!(
            "tollgate: none of the policies {names:?} allows reservations, so no request could wait; add \
             `.max_reserved(tokens)` or `.unlimited_reservations()` to a quota (sliding windows do not support \
             reservations)"
        );
    }
}

#[cfg(feature = "wait")]
pub(crate) fn allows_reservations(policy: &Policy) -> bool {
    policy.lists().any(|list| list.iter().any(|quota| quota.reserves()))
}

impl fmt::Debug for LayerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer")
            .field("policies", &self.policies().collect::<Vec<_>>())
            .field("limiter", &self.limiter)
            .field("headers", &self.headers)
            .field("status", &self.with_status)
            .finish_non_exhaustive()
    }
}
