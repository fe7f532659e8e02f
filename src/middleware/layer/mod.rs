//! The layer. It defines which requests are limited, by which keys and under which policies.

mod charging;
mod responses;

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};

use http::request::Parts;
use tower_layer::Layer;

use super::headers::field_name;
use super::key::{ClientIp, KeyExtractor};
use super::options::LayerOptions;
use super::rule::Rule;
use super::service::RateLimit;
use crate::limiter::RateLimiter;
use crate::policy::{DenyRule, Policy};

/// Applies rate limits to a service's requests.
///
/// A layer has one or more rules, each with a policy and a key extractor. The rules decide together: if one of them
/// denies a request, no rule charges it. A denied request does not reach the service, and the client gets a 429.
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
/// All services created by a layer and its clones share rows. Responses carry `RateLimit-Policy` and `RateLimit`
/// (draft-ietf-httpapi-ratelimit-headers-11) unless [`headers`](RateLimitLayer::headers) selects another family. A
/// denial also carries `Retry-After`, `Cache-Control: no-store` and an `application/problem+json` body or, for a [gRPC
/// service](RateLimitLayer::grpc), a gRPC status.
///
/// The inner service must be `Clone`; wrap it in a `Buffer` if it is not. Its response body's `Data` type must
/// implement `From<Bytes>`. To use a limited `Router` outside of axum, map the body back as shown in `docs::axum`.
///
/// # Where to put it
/// Put the layer inside the CORS layer, so that browsers can read a 429 and preflights are not charged. If an
/// authentication layer provides the key, put the limit inside that layer. Also add a per-address limit outside of it,
/// since clients that guess credentials have no such key. `Router::layer` also limits requests that match no route;
/// `route_layer` does not. `docs::axum` recommends an order for all layers.
#[derive(Clone)]
pub struct RateLimitLayer {
    pub(super) options: Arc<LayerOptions>,
}

impl RateLimitLayer {
    /// Creates a layer with one [rule](Rule::new) and a new limiter in memory.
    ///
    /// # Panics
    /// Panics if a bare quota refuses everything (capacity 0 without reservations).
    #[track_caller]
    pub fn new(policy: impl Into<Policy>, key: impl KeyExtractor) -> RateLimitLayer {
        Rule::new(policy, key).into()
    }

    /// Adds a rule. A request is charged under all rules or under none of them. See [`RateLimitLayer`] for an example.
    ///
    /// # Panics
    /// Panics if another rule has a policy with the same name, or if a bare quota refuses everything.
    #[track_caller]
    #[must_use]
    pub fn and(self, policy: impl Into<Policy>, key: impl KeyExtractor) -> RateLimitLayer {
        self.rule(Rule::new(policy, key))
    }

    /// Adds a rule that has its own cost or settlement. See [`Rule`] for an example.
    ///
    /// # Panics
    /// Panics if another rule has a policy with the same name, since both would charge the same rows.
    #[track_caller]
    #[must_use]
    pub fn rule(mut self, rule: Rule) -> RateLimitLayer {
        let names: Vec<_> = self.options.policies().map(Policy::name).collect();
        if names.contains(&rule.policy().name()) {
            let name = rule.policy().name();
            panic!("tollgate: two rules in one layer have a policy named {name:?}; give one of them a different name");
        }
        self.options_mut().rules.push(rule);
        self
    }

    /// Sets the limiter. Layers and handlers that use the same limiter share the rows of policies with the same name.
    #[must_use]
    pub fn limiter(mut self, limiter: &RateLimiter) -> RateLimitLayer {
        self.options_mut().limiter = limiter.clone();
        self
    }

    /// Exempts requests for which `skip` returns true, such as health checks, from all limits. Further calls add
    /// predicates. See [`client_ip`](RateLimitLayer::client_ip) for an example.
    #[must_use]
    pub fn skip(mut self, skip: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> RateLimitLayer {
        self.options_mut().skip.push(Arc::new(skip));
        self
    }

    /// Sets how to determine the client's address for [deny lists](crate::protection::DenyList) and
    /// [blocks](crate::protection::AutoBlock). By default, the address comes from the first rule whose key includes
    /// [`client_ip`](crate::key::client_ip). If there is no such rule, the layer has no client address.
    ///
    /// ```
    /// # use http::request::Parts;
    /// # use tollgate::{key, middleware::is_cors_preflight, MemoryBackend, Quota, RateLimitLayer, RateLimiter, MINUTE};
    /// use tollgate::protection::{DenyList, DenyRule};
    /// # #[derive(Clone)] struct Network(u32);
    /// let list = DenyList::from_iter([DenyRule::network("192.0.2.0/24")?, DenyRule::country("KP")?]);
    /// let limiter = RateLimiter::builder(MemoryBackend::new()).deny_list(&list).build();
    /// RateLimitLayer::new(Quota::token_bucket(100, MINUTE), key::global())
    ///     .limiter(&limiter)
    ///     .client_ip(key::client_ip().trust(["10.0.0.0/8"]))
    ///     .label_from_header("country", "cf-ipcountry")
    ///     .label("asn", |req: &Parts| req.extensions.get::<Network>().map(|network| network.0.to_string()))
    ///     .skip(key::client_ip().within(["198.51.100.0/24"]))
    ///     .skip(|req: &Parts| req.uri.path() == "/health" || is_cors_preflight(req));
    /// # Ok::<(), tollgate::protection::DenyRuleError>(())
    /// ```
    #[must_use]
    pub fn client_ip(mut self, client_ip: ClientIp) -> RateLimitLayer {
        self.options_mut().client_ip = Some(client_ip);
        self
    }

    /// Adds a label, such as a country, that deny lists and blocks can match. The user agent can be matched without a
    /// label.
    #[must_use]
    pub fn label(
        mut self,
        name: impl Into<Cow<'static, str>>,
        value: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static,
    ) -> RateLimitLayer {
        self.options_mut().labels.push((name.into(), Arc::new(value)));
        self
    }

    /// Adds a [`label`](RateLimitLayer::label) from a header such as `cf-ipcountry`, which your proxy must always
    /// overwrite. If the header is repeated, the last value is used.
    ///
    /// # Panics
    /// Panics if `header` is not a valid header name in lower case.
    #[track_caller]
    #[must_use]
    pub fn label_from_header(self, name: impl Into<Cow<'static, str>>, header: &'static str) -> RateLimitLayer {
        let header = field_name(header);
        self.label(name, move |parts: &Parts| {
            let value = parts.headers.get_all(&header).iter().next_back()?.to_str().ok()?.trim();
            (!value.is_empty() && value.len() <= DenyRule::MAX_LENGTH).then(|| value.to_owned())
        })
    }

    /// Returns the lines of this layer's [table](super::RouteLimits::table) that no request has matched yet.
    pub fn unused_routes(&self) -> Vec<&str> {
        self.options.table().into_iter().flat_map(|table| table.unused()).collect()
    }

    /// Returns the number of requests that matched no line of this layer's [table](super::RouteLimits::table).
    pub fn unmatched_requests(&self) -> u64 {
        self.options.table().map_or(0, |table| table.unmatched())
    }

    pub(super) fn options_mut(&mut self) -> &mut LayerOptions {
        let options = Arc::make_mut(&mut self.options);
        options.checked = OnceLock::new();
        options
    }
}

impl From<Rule> for RateLimitLayer {
    fn from(rule: Rule) -> RateLimitLayer {
        RateLimitLayer { options: Arc::new(LayerOptions { rules: vec![rule], ..LayerOptions::default() }) }
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    /// Wraps a service.
    ///
    /// # Panics
    /// Panics if a quota can never grant the [fixed cost](RateLimitLayer::fixed_cost), or if two limits have the same
    /// name.
    #[track_caller]
    fn layer(&self, inner: S) -> RateLimit<S> {
        self.options.check();
        RateLimit::new(inner, Arc::clone(&self.options))
    }
}

impl fmt::Debug for RateLimitLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.options.fmt(f)
    }
}
