//! A rule of a layer: which policy applies to a request, whom it counts, what it costs.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use http::request::Parts;

use super::items::PolicyItems;
use super::key::KeyExtractor;
use super::on_response::{OnResponse, OnResponseFn};
use super::soon::{Cost, Soon};
use super::table::Table;
use crate::policy::Policy;

/// One of a layer's limits, with its own cost and its own way to settle: where several limits apply to a request and
/// each counts something else. It becomes a layer by [`RateLimitLayer::from`](super::RateLimitLayer), or part of one by
/// [`rule`](super::RateLimitLayer::rule).
///
/// ```
/// use http::request::Parts;
/// use tollgate::{key, Policy, Quota, RateLimitLayer, Rule, OnResponse, DAY, MINUTE};
///
/// const TOKENS: Policy = Policy::new("tokens", Quota::token_bucket(100_000, MINUTE));
/// const CALLS: Policy = Policy::new("calls", Quota::fixed_window(500, DAY));
/// # fn estimate(req: &Parts) -> u64 { 1 }
/// # struct Team(u64);
///
/// let team = || key::extension(|team: &Team| team.0); // put there by authentication
/// let layer = RateLimitLayer::from(Rule::new(TOKENS, team()).cost(|req: &Parts| estimate(req)))
///     .rule(Rule::new(CALLS, team()).on_response(|res| {
///         if res.status.is_server_error() { OnResponse::Refund } else { OnResponse::Keep }
///     }));
/// ```
#[derive(Clone)]
pub struct Rule {
    /// Most have one; a route table's has several and chooses.
    pub(super) policies: Arc<[Prepared]>,
    pub(super) choose: Arc<ChooseFn>,
    pub(super) key: Arc<dyn KeyExtractor>,
    pub(super) cost: Option<Cost>,
    pub(super) settle: Option<Arc<OnResponseFn>>,
    /// The table that it chooses by, if it does.
    pub(super) table: Option<Arc<Table>>,
}

/// A policy with what can be rendered once.
#[derive(Clone)]
pub(super) struct Prepared {
    pub(super) policy: Policy,
    pub(super) items: PolicyItems,
}

/// The number of the policy for a request; `None` if the rule does not limit it.
type ChooseFn = dyn Fn(&Parts) -> Option<usize> + Send + Sync;

impl Rule {
    /// `policy`, counted by `key`. A quota alone is a policy named from itself.
    ///
    /// ```
    /// use tollgate::{key, Quota, RateLimitLayer, Rule, MINUTE};
    ///
    /// let layer: RateLimitLayer = Rule::new(Quota::token_bucket(10, MINUTE), key::client_ip()).into();
    /// ```
    ///
    /// # Panics
    /// If a bare quota refuses everything (capacity 0 without reservations).
    #[track_caller]
    pub fn new(policy: impl Into<Policy>, key: impl KeyExtractor) -> Rule {
        Rule::choosing([&policy.into()], |_| Some(0), Arc::new(key))
    }

    /// A rule that chooses among policies.
    pub(super) fn choosing<'a>(
        policies: impl IntoIterator<Item = &'a Policy>,
        choose: impl Fn(&Parts) -> Option<usize> + Send + Sync + 'static,
        key: Arc<dyn KeyExtractor>,
    ) -> Rule {
        let prepared = |policy: &Policy| Prepared { items: PolicyItems::new(policy), policy: policy.clone() };
        let policies = policies.into_iter().map(prepared).collect();
        Rule { policies, choose: Arc::new(choose), key, cost: None, settle: None, table: None }
    }

    /// What a request costs under this rule. Defaults to the [layer's cost](super::RateLimitLayer::cost), which counts
    /// under every rule that has none of its own. A constant is a [`fixed_cost`](Rule::fixed_cost). The capacity has to
    /// hold the dearest request, of each tier too: one that costs more is refused without `Retry-After`, and reported
    /// once as a [mistake](crate::observe::Mistake).
    ///
    /// ```
    /// use http::request::Parts;
    /// use tollgate::{key, Quota, Rule, MINUTE};
    ///
    /// Rule::new(Quota::token_bucket(10, MINUTE), key::client_ip())
    ///     .cost(|req: &Parts| if req.method.is_safe() { 1 } else { 5 });
    /// ```
    #[must_use]
    pub fn cost(mut self, cost: impl Fn(&Parts) -> u64 + Send + Sync + 'static) -> Rule {
        self.cost = Some(Cost::Of(Arc::new(move |parts| Soon::Now(cost(parts)))));
        self
    }

    /// [`cost`](Rule::cost) of a rule under which every request costs the same.
    ///
    /// ```
    /// use tollgate::{key, Quota, RateLimitLayer, Rule, MINUTE};
    ///
    /// let export = Rule::new(Quota::token_bucket(60, MINUTE), key::client_ip()).fixed_cost(10);
    /// let layer = RateLimitLayer::from(export);
    /// ```
    ///
    /// A quota that can never grant it is an error at start-up: see
    /// [`RateLimitLayer::fixed_cost`](super::RateLimitLayer::fixed_cost).
    #[must_use]
    pub fn fixed_cost(mut self, tokens: u64) -> Rule {
        self.cost = Some(Cost::Fixed(tokens));
        self
    }

    /// [`cost`](Rule::cost), where it has to be waited for. The future owns what it needs; the inner service is not
    /// called before.
    ///
    /// ```
    /// use http::request::Parts;
    /// use tollgate::{key, Quota, Rule, MINUTE};
    /// # async fn price_of(path: String) -> u64 { 1 }
    ///
    /// Rule::new(Quota::token_bucket(1000, MINUTE), key::client_ip()).cost_async(|req: &Parts| {
    ///     let path = req.uri.path().to_owned();
    ///     async move { price_of(path).await }
    /// });
    /// ```
    #[must_use]
    pub fn cost_async<F>(mut self, cost: impl Fn(&Parts) -> F + Send + Sync + 'static) -> Rule
    where
        F: Future<Output = u64> + Send + 'static,
    {
        self.cost = Some(Cost::Of(Arc::new(move |parts| Soon::later(cost(parts)))));
        self
    }

    /// What becomes of this rule's charge, by the response. Defaults to the [layer's](super::RateLimitLayer::on_response).
    ///
    /// ```
    /// use tollgate::{key, Quota, Rule, OnResponse, MINUTE};
    ///
    /// Rule::new(Quota::token_bucket(10, MINUTE), key::client_ip())
    ///     .on_response(|res| if res.status.is_server_error() { OnResponse::Refund } else { OnResponse::Keep });
    /// ```
    #[must_use]
    pub fn on_response(
        mut self,
        settle: impl Fn(&http::response::Parts) -> OnResponse + Send + Sync + 'static,
    ) -> Rule {
        self.settle = Some(Arc::new(settle));
        self
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.policies.iter().map(|known| &known.policy)).finish()
    }
}
