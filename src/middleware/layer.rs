//! The layer: what to limit, by what, on which limiter.

use std::fmt;
use std::sync::Arc;

use http::request::Parts;
use tower_layer::Layer;

use super::headers::PolicyHeader;
use super::key::KeyExtractor;
use super::service::RateLimit;
use crate::limiter::RateLimiter;
use crate::policy::Policy;

/// Puts limits in front of a service.
///
/// Each rule is a policy and a way to find the key that it counts. A request is charged under all rules at once: if one denies
/// it, none is charged, and it is answered with 429 and never reaches the service.
///
/// ```
/// use axum::{routing::get, Router};
/// use tollgate::{key, Policy, Quota, RateLimitLayer, MINUTE, SECOND};
///
/// const PER_CLIENT: Policy = Policy::new("client", Quota::token_bucket(60, MINUTE).capacity(20));
/// const GLOBAL: Policy = Policy::new("global", Quota::token_bucket(1000, SECOND));
///
/// let app: Router = Router::new()
///     .route("/", get(|| async { "hello" }))
///     .layer(RateLimitLayer::new(PER_CLIENT, key::client_ip()).and(GLOBAL, key::global()));
/// ```
///
/// All services that one layer, or its clones, make share their rows. Every response carries `RateLimit-Policy` and `RateLimit`
/// (draft-ietf-httpapi-ratelimit-headers-11), a denial also `Retry-After`, `Cache-Control: no-store` and an
/// `application/problem+json` body.
#[derive(Clone)]
pub struct RateLimitLayer {
    shared: Arc<Shared>,
}

/// What all services of a layer share.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) limiter: RateLimiter,
    pub(super) rules: Vec<Rule>,
    pub(super) cost: Option<Arc<CostFn>>,
    pub(super) headers: bool,
    pub(super) status: bool,
}

/// A policy, and whom it counts.
#[derive(Clone)]
pub(super) struct Rule {
    pub(super) policy: Policy,
    pub(super) key: Arc<dyn KeyExtractor>,
    pub(super) header: PolicyHeader,
}

type CostFn = dyn Fn(&Parts) -> u64 + Send + Sync;

impl RateLimitLayer {
    /// A layer with one rule: `policy`, counted by `key`. A quota alone is a policy named from itself.
    ///
    /// It gets a limiter of its own, in memory, unless it is [given one](RateLimitLayer::limiter).
    ///
    /// # Panics
    /// If a bare quota refuses everything (capacity 0 without reservations).
    #[track_caller]
    pub fn new(policy: impl Into<Policy>, key: impl KeyExtractor) -> RateLimitLayer {
        let shared =
            Shared { limiter: RateLimiter::default(), rules: Vec::new(), cost: None, headers: true, status: false };
        RateLimitLayer { shared: Arc::new(shared) }.and(policy, key)
    }

    /// Adds a rule. A request is charged under all rules, or under none.
    ///
    /// # Panics
    /// If there is a rule with a policy of the same name already: the two would charge the same rows. As
    /// [`new`](RateLimitLayer::new) if a bare quota refuses everything.
    #[track_caller]
    #[must_use]
    pub fn and(self, policy: impl Into<Policy>, key: impl KeyExtractor) -> RateLimitLayer {
        let policy = policy.into();
        self.with(move |shared| {
            let name = policy.name();
            if shared.rules.iter().any(|rule| rule.policy.name() == name) {
                panic!("tollgate: two rules of one layer have a policy named {name:?}; give one of them another name");
            }
            let header = PolicyHeader::new(&policy);
            shared.rules.push(Rule { policy, key: Arc::new(key), header });
        })
    }

    /// What a request costs under every rule. Defaults to 1.
    ///
    /// ```
    /// # use http::request::Parts;
    /// # use tollgate::{key, Quota, RateLimitLayer, MINUTE};
    /// let by_pages = RateLimitLayer::new(Quota::token_bucket(1000, MINUTE), key::global()).cost(|req: &Parts| {
    ///     if req.uri.path().starts_with("/export") { 50 } else { 1 }
    /// });
    /// ```
    #[must_use]
    pub fn cost(self, cost: impl Fn(&Parts) -> u64 + Send + Sync + 'static) -> RateLimitLayer {
        self.with(|shared| shared.cost = Some(Arc::new(cost)))
    }

    /// The limiter to decide by. Layers on one limiter share the rows of policies with the same name, and so does whoever asks
    /// it from a handler.
    #[must_use]
    pub fn limiter(self, limiter: &RateLimiter) -> RateLimitLayer {
        self.with(|shared| shared.limiter = limiter.clone())
    }

    /// Whether responses carry `RateLimit-Policy` and `RateLimit`. Defaults to `true`. A denial's `Retry-After` is sent in any
    /// case.
    #[must_use]
    pub fn headers(self, send: bool) -> RateLimitLayer {
        self.with(|shared| shared.headers = send)
    }

    /// Puts a [`RateLimitStatus`](super::RateLimitStatus) among the extensions of each request that goes on, for handlers to
    /// look at. Off unless asked for: extensions allocate.
    #[must_use]
    pub fn with_status(self) -> RateLimitLayer {
        self.with(|shared| shared.status = true)
    }

    #[track_caller]
    fn with(mut self, change: impl FnOnce(&mut Shared)) -> RateLimitLayer {
        change(Arc::make_mut(&mut self.shared));
        self
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    fn layer(&self, inner: S) -> RateLimit<S> {
        RateLimit::new(inner, Arc::clone(&self.shared))
    }
}

impl fmt::Debug for RateLimitLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared.fmt(f)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let policies: Vec<_> = self.rules.iter().map(|rule| &rule.policy).collect();
        f.debug_struct("RateLimitLayer")
            .field("policies", &policies)
            .field("limiter", &self.limiter)
            .field("headers", &self.headers)
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}
