//! What all services of a layer share: its choices.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, Response};

use super::headers::HeaderFamily;
use super::items::PolicyItems;
use super::key::ClientIp;
use super::on_response::OnResponseFn;
use super::refusal::Refusal;
use super::rule::{Prepared, Rule};
use super::soon::Cost;
use super::unmatched::UnmatchedRules;
use crate::algorithm::Quota;
use crate::limiter::RateLimiter;
use crate::policy::{Decision, Policy, Signals};

/// The choices of a layer.
#[derive(Clone, Default)]
pub(super) struct Shared {
    pub(super) limiter: RateLimiter,
    pub(super) rules: Vec<Rule>,
    pub(super) skip: Vec<Arc<SkipFn>>,
    pub(super) client_ip: Option<ClientIp>,
    pub(super) labels: Vec<(Cow<'static, str>, Arc<LabelFn>)>,
    /// Of the rules that have none of their own.
    pub(super) cost: Cost,
    pub(super) settle: Option<Arc<OnResponseFn>>,
    /// How long a request may wait for its turn.
    pub(super) wait: Option<Duration>,
    pub(super) wait_jitter: Duration,
    pub(super) settlement: bool,
    /// Denials are acted on for keys whose digest's seed is below this; `None` = for all.
    pub(super) enforced_below: Option<u64>,
    pub(super) shadow_header: Option<HeaderName>,
    pub(super) headers: HeaderFamily,
    /// Whether refusals of gRPC requests are gRPC statuses.
    pub(super) grpc: bool,
    pub(super) jitter: Duration,
    pub(super) status: bool,
    pub(super) refuse: Option<Arc<RefuseFn>>,
    pub(super) unmatched: UnmatchedRules,
    /// Set once these choices were checked.
    pub(super) checked: OnceLock<()>,
}

type SkipFn = dyn Fn(&Parts) -> bool + Send + Sync;
type RefuseFn = dyn Fn(&Refusal<'_>) -> Response<Bytes> + Send + Sync;
type LabelFn = dyn Fn(&Parts) -> Option<String> + Send + Sync;

impl Shared {
    /// What is known of the caller besides its key, if somebody wants to know.
    pub(super) fn signals(&self, parts: &Parts) -> Signals {
        if !self.limiter.wants_signals() {
            return Signals::new();
        }
        self.report_unmatched_rules();
        let address = match &self.client_ip {
            Some(client_ip) => client_ip.resolve(parts),
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
        signals
    }

    /// Looks for mistakes that are known before the first request, once.
    ///
    /// # Panics
    /// If a quota can never grant a cost that is the same for every request, or the deny list has a rule that can never
    /// apply.
    #[track_caller]
    pub(super) fn check(&self) {
        self.expect_matched_rules();
        self.checked.get_or_init(|| {
            self.rules.iter().for_each(|rule| self.check_cost(rule));
            self.limiter.register(self.policies());
        });
    }

    fn check_cost(&self, rule: &Rule) {
        let Cost::Fixed(cost) = *rule.cost.as_ref().unwrap_or(&self.cost) else { return };
        let is_too_small = |quota: &Quota| {
            let most = if self.wait.is_some() { quota.ceiling() } else { quota.limit() };
            cost > most
        };
        for Prepared { policy, .. } in rule.policies.iter() {
            let own = std::iter::once((None, policy.quota()));
            let mut quotas = own.chain(policy.tiers().map(|(tier, quota)| (Some(tier), quota)));
            if let Some((tier, quota)) = quotas.find(|(_, quota)| is_too_small(quota)) {
                let (name, limit) = (policy.name(), quota.limit());
                let tier = tier.map_or(String::new(), |tier| format!(", tier {tier:?}"));
                panic!(
                    "tollgate: policy {name:?}{tier}: every request costs {cost}, and the quota {quota} holds {limit} at \
                     most, so all of them would be refused; raise its capacity, or lower the cost"
                );
            }
        }
    }

    /// Whether somebody may want to settle charges.
    pub(super) fn keeps_charges(&self) -> bool {
        self.settlement || self.settle.is_some() || self.rules.iter().any(|rule| rule.settle.is_some())
    }

    /// The rule that a decision was made by, and which of its policies.
    fn made_by(&self, decision: &Decision) -> Option<(&Rule, &Prepared)> {
        self.rules.iter().find_map(|rule| {
            let mut policies = rule.policies.iter();
            Some((rule, policies.find(|known| known.policy.name() == decision.policy())?))
        })
    }

    /// How the charge of a decision is settled by the response, if it is.
    pub(super) fn settle_of(&self, decision: &Decision) -> Option<&OnResponseFn> {
        self.made_by(decision)?.0.settle.as_deref().or(self.settle.as_deref())
    }

    /// What was rendered of a decision's policy.
    pub(super) fn items_of(&self, decision: &Decision) -> Option<&PolicyItems> {
        self.made_by(decision).map(|(_, known)| &known.items)
    }

    /// The route tables that rules choose by.
    pub(super) fn tables(&self) -> impl Iterator<Item = &super::table::Table> {
        self.rules.iter().filter_map(|rule| rule.table.as_deref())
    }

    pub(super) fn policies(&self) -> impl Iterator<Item = &Policy> {
        self.rules.iter().flat_map(|rule| rule.policies.iter()).map(|known| &known.policy)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer")
            .field("policies", &self.policies().collect::<Vec<_>>())
            .field("limiter", &self.limiter)
            .field("enforced_below", &self.enforced_below)
            .field("headers", &self.headers)
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}
