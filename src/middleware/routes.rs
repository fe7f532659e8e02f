//! Named policies that routes choose from.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use http::request::Parts;

use super::key::KeyExtractor;
use super::layer::RateLimitLayer;
use super::rule::Rule;
use super::table::Table;
use crate::limiter::RateLimiter;
use crate::policy::{Policy, suggestion};

/// Named policies that routes choose from. A policy is chosen by a layer on a handler, by a table, or by a closure.
///
/// ```
/// use axum::{routing::{get, post}, Router};
/// use tollgate::{key, Policy, Quota, RouteLimits, MINUTE};
///
/// let limits = RouteLimits::new(key::client_ip())
///     .policy(Policy::new("todo/create", Quota::token_bucket(10, MINUTE)))
///     .policy(Policy::new("search", Quota::sliding_window(100, MINUTE)));
///
/// // Choose policies with layers on the handlers.
/// let app: Router = Router::new()
///     .route("/todos", post(|| async {}).layer(limits.route("todo/create")))
///     .route("/search", get(|| async {}).layer(limits.route("search")));
///
/// // Or choose them in a table around all routes. Other requests fall under the default policy.
/// let limits = limits.default_policy(Policy::new("default", Quota::token_bucket(60, MINUTE)));
/// let app: Router = Router::new()
///     .route("/todos", post(|| async {}).get(|| async {}))
///     .route("/search", get(|| async {}))
///     .layer(limits.table([("POST /todos", "todo/create"), ("GET /search", "search")]));
///
/// // Or choose them with a closure.
/// let layer = limits.choose(|req: &http::request::Parts| (!req.method.is_safe()).then_some("todo/create"));
/// ```
///
/// Unknown and duplicate names cause a panic while the router is built. All layers created from one set share a
/// limiter, and routes with the same policy share its rows.
///
/// # Stacked layers
/// A layer around the router and a layer on a route both apply. The outer layer charges first, and also charges
/// requests that the inner layer refuses. To let a route's limit *replace* the default, use a single
/// [`table`](RouteLimits::table).
#[derive(Clone)]
pub struct RouteLimits {
    limiter: RateLimiter,
    key: Arc<dyn KeyExtractor>,
    policies: Vec<Policy>,
    default: Option<Policy>,
}

impl RouteLimits {
    /// Creates an empty set of policies, which apply to the keys that `key` finds.
    pub fn new(key: impl KeyExtractor) -> RouteLimits {
        RouteLimits { limiter: RateLimiter::default(), key: Arc::new(key), policies: Vec::new(), default: None }
    }

    /// Adds a policy.
    ///
    /// # Panics
    /// Panics if there is already a policy with this name.
    #[track_caller]
    #[must_use]
    pub fn policy(mut self, policy: impl Into<Policy>) -> RouteLimits {
        let policy = self.expect_new(policy.into());
        self.policies.push(policy);
        self
    }

    /// Sets the policy for requests to which [`table`](RouteLimits::table) or [`choose`](RouteLimits::choose) assigns
    /// no policy, including requests that match no route. All these requests of a key share one row. By default, they
    /// are not limited.
    ///
    /// # Panics
    /// Panics if there is already a policy with this name.
    #[track_caller]
    #[must_use]
    pub fn default_policy(mut self, policy: impl Into<Policy>) -> RouteLimits {
        self.default = Some(self.expect_new(policy.into()));
        self
    }

    /// Sets the limiter to use. Defaults to a new limiter in memory.
    #[must_use]
    pub fn limiter(mut self, limiter: &RateLimiter) -> RouteLimits {
        self.limiter = limiter.clone();
        self
    }

    /// Creates a layer that applies the policy with this name. Add the layer to one or more routes.
    ///
    /// # Panics
    /// Panics if there is no such policy; the message lists the known policies.
    #[track_caller]
    pub fn route(&self, name: &str) -> RateLimitLayer {
        let policy = self.all().nth(self.expect_index(name));
        RateLimitLayer::from(Rule::choosing(policy, |_| Some(0), Arc::clone(&self.key))).limiter(&self.limiter)
    }

    /// Creates a single layer for all routes from lines such as `("POST /todos", "todo/create")`. Each line consists of
    /// a method, a route as it is given to the router, and a policy. A line without a method (`"/todos"`) covers all
    /// methods. `HEAD` requests match the line for `GET`, unless there is a line for `HEAD`. Requests that match no
    /// line fall under the [default policy](RouteLimits::default_policy).
    ///
    /// In axum, add the layer with `Router::layer` or `route_layer`. For a router that is nested at `/api`, write the
    /// whole route, such as `/api/users/{id}`. The route `/` of the nested router becomes `/api`. Requests to a service
    /// that was added with `Router::nest_service` match no route. A line for `/todos/` also covers `/todos`, and vice
    /// versa, unless the table has lines for both.
    ///
    /// # Without axum
    /// Outside of axum's routers, as with tonic or plain hyper, lines are compared with the request's path. For
    /// example, `/package.Service/Method` matches one gRPC method, and `/package.Service/{*rest}` covers the other
    /// methods of the service. A line that is equal to the path takes precedence. Otherwise, the longest matching line
    /// that ends with a wildcard applies. Lines with other parameters, such as `/users/{id}`, match nothing. Inside of
    /// axum's routers, the same applies to routes that end with a wildcard, such as tonic's routes. Paths are not
    /// decoded, so `/%61` does not match `/a`. Therefore, set a default policy. See `docs::grpc` for an example.
    ///
    /// # Mistakes
    /// A table does not know the router's routes. A line with a typo or with another parameter name (`/users/{user}`
    /// instead of `/users/{id}`) therefore applies to no request. After some requests, for instance in a test,
    /// [`RateLimitLayer::unused_routes`] lists such lines, and [`RateLimitLayer::unmatched_requests`] counts the
    /// requests that match no line.
    ///
    /// # Panics
    /// Panics if a line names an unknown policy, occurs twice or can never apply. A line can never apply if it has no
    /// route, axum 0.7 syntax (`:id`, `*rest`), a query, an unmatched brace, or a method that is misspelled or not in
    /// upper case.
    #[track_caller]
    pub fn table<'a>(&self, lines: impl IntoIterator<Item = (&'a str, &'a str)>) -> RateLimitLayer {
        let mut table = Table::default();
        for (line, name) in lines {
            if let Err(error) = table.add(line, self.expect_index(name)) {
                panic!("tollgate: {line:?} {error}");
            }
        }
        let table = Arc::new(table.finish());
        let lookup = Arc::clone(&table);
        let mut rule = self.choosing(move |parts| lookup.policy(parts));
        rule.table = Some(table);
        RateLimitLayer::from(rule).limiter(&self.limiter)
    }

    /// Creates a layer that chooses the policy of each request with a closure. If the closure returns `None` or an
    /// unknown name, the layer applies the [default policy](RouteLimits::default_policy).
    pub fn choose<F>(&self, choose: F) -> RateLimitLayer
    where
        F: Fn(&Parts) -> Option<&'static str> + Send + Sync + 'static,
    {
        let names: HashMap<String, usize> =
            self.all().enumerate().map(|(i, policy)| (policy.name().as_str().to_owned(), i)).collect();
        let rule = self.choosing(move |parts| choose(parts).and_then(|name| names.get(name)).copied());
        RateLimitLayer::from(rule).limiter(&self.limiter)
    }

    fn choosing(&self, choose: impl Fn(&Parts) -> Option<usize> + Send + Sync + 'static) -> Rule {
        let default = self.default.as_ref().map(|_| self.policies.len());
        let choose = move |parts: &Parts| choose(parts).or(default);
        Rule::choosing(self.all(), choose, Arc::clone(&self.key))
    }

    /// Returns all policies. The default policy is the last one.
    fn all(&self) -> impl Iterator<Item = &Policy> {
        self.policies.iter().chain(&self.default)
    }

    fn index(&self, name: &str) -> Option<usize> {
        self.all().position(|policy| policy.name().as_str() == name)
    }

    #[track_caller]
    fn expect_new(&self, policy: Policy) -> Policy {
        let name = policy.name();
        assert!(
            self.index(name.as_str()).is_none(),
            "tollgate: there are two policies named {name:?}, and routes choose policies by name; rename one of them"
        );
        policy
    }

    #[track_caller]
    fn expect_index(&self, name: &str) -> usize {
        let Some(index) = self.index(name) else {
            let known: Vec<_> = self.all().map(|policy| policy.name().as_str()).collect();
            let near = suggestion(name, known.iter().copied());
            panic!("tollgate: unknown policy {name:?}{near}; the policies are {known:?}")
        };
        index
    }
}

impl fmt::Debug for RouteLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RouteLimits")
            .field("policies", &self.policies)
            .field("default", &self.default)
            .finish_non_exhaustive()
    }
}

/// Returns whether a request is a CORS preflight, which is an `OPTIONS` request with `Origin` and
/// `Access-Control-Request-Method` headers. Pass this function to [`skip`](RateLimitLayer::skip) if the CORS layer is
/// inside the limiter.
pub fn is_cors_preflight(parts: &Parts) -> bool {
    parts.method == http::Method::OPTIONS
        && parts.headers.contains_key(http::header::ORIGIN)
        && parts.headers.contains_key(http::header::ACCESS_CONTROL_REQUEST_METHOD)
}
