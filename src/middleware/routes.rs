//! Named policies and groups, from which routes choose.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use http::request::Parts;

use super::choice::{Chooser, RouteChoice, Target};
use super::key::KeyExtractor;
use super::layer::RateLimitLayer;
use super::options::LayerOptions;
use super::rule::Rule;
use super::table::Table;
use crate::limiter::RateLimiter;
use crate::policy::{Policy, suggestion};

/// Named policies that routes choose from. A policy is chosen by a table, by a closure, or by a layer on a handler.
///
/// ```
/// use axum::{routing::post, Router};
/// use tollgate::{key, Policy, Quota, RouteLimits, MINUTE};
///
/// let limits = RouteLimits::new(key::client_ip())
///     .policy(Policy::new("todo/create", Quota::token_bucket(10, MINUTE)))
///     .default_policy(Policy::new("default", Quota::token_bucket(60, MINUTE)));
///
/// // Choose policies in a table for all routes. Requests that match no line fall under the default policy.
/// let app: Router = Router::new()
///     .route("/todos", post(|| async {}).get(|| async {}))
///     .layer(limits.table([("POST /todos", "todo/create")]));
///
/// // Or choose policies with a closure.
/// let layer = limits.choose(|req: &http::request::Parts| (!req.method.is_safe()).then_some("todo/create"));
/// ```
///
/// A duplicate or unknown name causes a panic while the router is built, except for unknown names that a closure
/// returns. All layers created from one `RouteLimits` share a limiter, and routes with the same policy share its rows.
///
/// A layer that wraps the router and a layer on a route both apply. The outer layer also charges requests that the
/// inner layer refuses. To let a route's limit *replace* the default, use a single [`table`](RouteLimits::table).
///
/// # Several limits for a route
/// ```
/// use axum::{routing::post, Router};
/// use tollgate::{key, HeaderFamily, Policy, Quota, RouteLimits, Rule, DAY, MINUTE, SECOND};
/// # #[derive(Clone)] struct User { id: u64, tenant: u64 }
/// const ALL: Policy = Policy::new("all", Quota::token_bucket(5000, SECOND));
/// const EXPORTS: Policy = Policy::new("exports", Quota::fixed_window(100, DAY));
///
/// let tenant = key::extension(|user: &User| user.tenant);
/// let limits = RouteLimits::new(key::extension(|user: &User| user.id))
///     .policy(Policy::new("api", Quota::token_bucket(60, MINUTE)))
///     .rule(Rule::new(EXPORTS, tenant).fixed_cost(5)) // with its own key and cost
///     .group("export", ["api", "exports"]) // both policies under one name
///     .configure(|layer| layer.headers(HeaderFamily::Draft6).and(ALL, key::global())); // for all routes
/// let app: Router = Router::new().route("/export", post(|| async {}).layer(limits.route("export")));
/// ```
/// A request is charged under all policies of a [`group`](RouteLimits::group) or under none of them.
#[derive(Clone)]
pub struct RouteLimits {
    key: Arc<dyn KeyExtractor>,
    /// The layer from which the layers of all routes are made.
    layer: RateLimitLayer,
    /// The name and the target of each policy or group, in the order in which they were added.
    targets: Vec<(String, Target)>,
    /// The index of each target, by name.
    names: HashMap<String, usize>,
    default: Option<usize>,
}

impl RouteLimits {
    /// Creates an empty set of policies. `key` is the extractor for policies that have none of their own.
    pub fn new(key: impl KeyExtractor) -> RouteLimits {
        RouteLimits::shared(Arc::new(key))
    }

    pub(crate) fn shared(key: Arc<dyn KeyExtractor>) -> RouteLimits {
        let layer = RateLimitLayer { options: Arc::new(LayerOptions::default()) };
        RouteLimits { key, layer, targets: Vec::new(), names: HashMap::new(), default: None }
    }

    /// Adds a policy that uses this set's key extractor.
    ///
    /// # Panics
    /// Panics if there is already a policy or a group with this name.
    #[track_caller]
    #[must_use]
    pub fn policy(self, policy: impl Into<Policy>) -> RouteLimits {
        let rule = Rule::shared(policy.into(), Arc::clone(&self.key));
        self.rule(rule)
    }

    /// Adds a rule: a policy with its own key, cost or settlement. Routes choose the rule by the name of its policy.
    ///
    /// # Panics
    /// Panics if there is already a policy or a group with this name.
    #[track_caller]
    #[must_use]
    pub fn rule(mut self, rule: Rule) -> RouteLimits {
        let (name, index) = (rule.policy().name().as_str().to_owned(), self.layer.options.chosen);
        let all_requests = &self.layer.options.rules[index..];
        assert!(all_requests.iter().all(|known| known.policy().name().as_str() != name), "{}", duplicate(&name));
        self.add(name, Target { rules: vec![index], cost: None });
        let options = self.layer.options_mut();
        options.rules.insert(index, rule);
        options.chosen += 1;
        self
    }

    /// Adds a group: a name for several policies or other groups that apply together. A route that chooses a group
    /// without policies is limited only by the rules that [apply to all requests](RouteLimits::configure).
    ///
    /// # Panics
    /// Panics if there is already a policy or group with this name, or if a policy is unknown or occurs twice.
    #[track_caller]
    #[must_use]
    pub fn group<'a>(self, name: impl Into<String>, policies: impl IntoIterator<Item = &'a str>) -> RouteLimits {
        self.group_with_cost(name.into(), policies, None)
    }

    /// Adds a group in which `cost` applies to every rule that has no cost of its own.
    #[track_caller]
    pub(crate) fn group_with_cost<'a>(
        mut self,
        name: String,
        policies: impl IntoIterator<Item = &'a str>,
        cost: Option<u64>,
    ) -> RouteLimits {
        let mut rules = Vec::new();
        for policy in policies {
            for &rule in &self.targets[self.expect_index(policy)].1.rules {
                assert!(
                    !rules.contains(&rule),
                    "tollgate: in group {name:?}, {policy:?} adds a policy that is already there; remove the duplicate"
                );
                rules.push(rule);
            }
        }
        self.add(name, Target { rules, cost });
        self
    }

    /// Adds the policy for requests to which [`table`](RouteLimits::table) or [`choose`](RouteLimits::choose) assigns
    /// no policy, including requests that match no route. Such requests with the same key share one row. Without a
    /// default policy, they are limited only by the rules that [apply to all requests](RouteLimits::configure).
    ///
    /// # Panics
    /// Panics if there is already a policy or a group with this name.
    #[track_caller]
    #[must_use]
    pub fn default_policy(self, policy: impl Into<Policy>) -> RouteLimits {
        let default = Some(self.targets.len());
        RouteLimits { default, ..self.policy(policy) }
    }

    /// Like [`default_policy`](RouteLimits::default_policy), but with the name of an existing policy or group.
    ///
    /// # Panics
    /// Panics if there is no such policy or group.
    #[track_caller]
    #[must_use]
    pub fn default_group(self, name: &str) -> RouteLimits {
        RouteLimits { default: Some(self.expect_index(name)), ..self }
    }

    /// Sets options of all layers created from this set, such as [`headers`](RateLimitLayer::headers),
    /// [`skip`](RateLimitLayer::skip) or a default [`cost`](RateLimitLayer::cost). Rules added by the closure apply to
    /// every request, in addition to the rules of the request's route. See
    /// [`RouteLimits`](RouteLimits#several-limits-for-a-route) for an example.
    ///
    /// # Panics
    /// Panics if the closure returns a layer other than the one passed to it.
    #[track_caller]
    #[must_use]
    pub fn configure(mut self, options: impl FnOnce(RateLimitLayer) -> RateLimitLayer) -> RouteLimits {
        let chosen = self.layer.options.chosen;
        self.layer = options(self.layer);
        let is_same = self.layer.options.chosen == chosen;
        assert!(
            is_same,
            "tollgate: the closure passed to `configure` must return the layer that it receives, not a different one"
        );
        self
    }

    /// Sets the limiter to use. Defaults to a new in-memory limiter.
    #[must_use]
    pub fn limiter(mut self, limiter: &RateLimiter) -> RouteLimits {
        self.layer = self.layer.limiter(limiter);
        self
    }

    /// Creates a layer that applies the policy or the group with this name. Add the layer to one or more routes.
    ///
    /// # Panics
    /// Panics if there is no such policy or group; the message lists the known ones.
    #[track_caller]
    pub fn route(&self, name: &str) -> RateLimitLayer {
        let target = &self.targets[self.expect_index(name)].1;
        let mut layer = self.layer.clone();
        let options = layer.options_mut();
        let all_requests = options.rules.split_off(options.chosen);
        let chosen = target.rules.iter().map(|&rule| options.rules[rule].clone());
        options.rules = chosen.chain(all_requests).collect();
        options.chosen = 0;
        layer
    }

    /// Creates a single layer for all routes from lines such as `("POST /todos", "todo/create")`. Each line consists of
    /// a method, a route exactly as given to the router, and the name of a policy or a group. A line without a method
    /// (`"/todos"`) covers all methods. `HEAD` requests match the line for `GET`, unless there is a line for `HEAD`.
    /// Requests that match no line fall under the [default policy](RouteLimits::default_policy).
    ///
    /// A line that ends with a wildcard, such as `/api/{*rest}`, covers all routes below `/api/` that have no line of
    /// their own. If several such lines match, the longest applies. A line for `/todos/` also covers `/todos`, and vice
    /// versa, unless the table has lines for both.
    ///
    /// In axum, add the layer with `Router::layer` or `route_layer`. For a router that is nested at `/api`, write the
    /// whole route, such as `/api/users/{id}`. The nested router's route `/` becomes `/api`. Requests to a service that
    /// was added with `Router::nest_service` match no route.
    ///
    /// # Without axum
    /// Outside of axum's routers, and for axum routes that end with a wildcard, such as tonic's, lines are compared
    /// with the request's path. For example, `/package.Service/Method` matches one gRPC method, and
    /// `/package.Service/{*rest}` covers the other methods. Lines with other parameters, such as `/users/{id}`, match
    /// nothing. Paths are not decoded, so `/%61` does not match `/a`. Therefore, set a default policy.
    ///
    /// # Mistakes
    /// A table does not know the router's routes. A line with a typo or with a different parameter name
    /// (`/users/{user}` instead of `/users/{id}`) therefore never matches a request. In a test, check
    /// [`RateLimitLayer::unused_routes`] and [`RateLimitLayer::unmatched_requests`] after sending a request to each
    /// route.
    ///
    /// # Panics
    /// Panics if a line names an unknown policy, occurs twice, or can never match a request. A line can never match if
    /// it has no route, if it contains axum 0.7 syntax (`:id`, `*rest`), a query or an unmatched brace, or if its
    /// method is misspelled or not in upper case.
    #[track_caller]
    pub fn table<'a>(&self, lines: impl IntoIterator<Item = (&'a str, &'a str)>) -> RateLimitLayer {
        let mut table = Table::default();
        for (line, name) in lines {
            if let Err(error) = table.add(line, self.expect_index(name)) {
                panic!("tollgate: {line:?} {error}");
            }
        }
        self.choosing(Chooser::Table(table.finish()))
    }

    /// Creates a layer that uses a closure to choose the policy or the group for each request. If the closure returns
    /// `None` or an unknown name, the layer applies the [default policy](RouteLimits::default_policy). An unknown name
    /// is counted as a [mistake](crate::observe::Mistake).
    pub fn choose<F>(&self, choose: F) -> RateLimitLayer
    where
        F: Fn(&Parts) -> Option<&'static str> + Send + Sync + 'static,
    {
        self.choosing(Chooser::Closure(Box::new(choose), self.names.clone()))
    }

    fn choosing(&self, chooser: Chooser) -> RateLimitLayer {
        let targets = self.targets.iter().map(|(_, target)| target.clone()).collect();
        let mut layer = self.layer.clone();
        layer.options_mut().choice = Some(Arc::new(RouteChoice::new(targets, self.default, chooser)));
        layer
    }

    #[track_caller]
    fn add(&mut self, name: String, target: Target) {
        assert!(!self.names.contains_key(&name), "{}", duplicate(&name));
        self.names.insert(name.clone(), self.targets.len());
        self.targets.push((name, target));
    }

    #[track_caller]
    fn expect_index(&self, name: &str) -> usize {
        let Some(index) = self.names.get(name) else {
            let known: Vec<_> = self.targets.iter().map(|(name, _)| name).collect();
            let near = suggestion(name, known.iter().map(|name| name.as_str()));
            panic!("tollgate: unknown policy {name:?}{near}; the policies are {known:?}")
        };
        *index
    }
}

fn duplicate(name: &str) -> String {
    format!(
        "tollgate: there are two policies or groups named {name:?}, and routes choose them by name; rename one of them"
    )
}

impl fmt::Debug for RouteLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let default = self.default.map(|index| &self.targets[index].0);
        f.debug_struct("RouteLimits").field("layer", &self.layer).field("default", &default).finish_non_exhaustive()
    }
}

/// Returns whether a request is a CORS preflight: `OPTIONS` with `Origin` and `Access-Control-Request-Method`. Pass
/// this function to [`skip`](RateLimitLayer::skip) if the CORS layer is inside the limiter.
pub fn is_cors_preflight(parts: &Parts) -> bool {
    parts.method == http::Method::OPTIONS
        && parts.headers.contains_key(http::header::ORIGIN)
        && parts.headers.contains_key(http::header::ACCESS_CONTROL_REQUEST_METHOD)
}
