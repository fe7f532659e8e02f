//! Limits by route: named policies in one place, chosen where the routes are.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use http::request::Parts;

use super::key::KeyExtractor;
use super::layer::RateLimitLayer;
use super::rule::Rule;
use super::table::Table;
use crate::limiter::RateLimiter;
use crate::policy::Policy;

/// Policies by name, for routes to choose from: beside the handler, in a table, or by a closure.
///
/// ```
/// use axum::{routing::{get, post}, Router};
/// use tollgate::{key, Policy, Quota, RouteLimits, MINUTE};
///
/// let limits = RouteLimits::new(key::client_ip())
///     .policy(Policy::new("todo/create", Quota::token_bucket(10, MINUTE)))
///     .policy(Policy::new("search", Quota::sliding_window(100, MINUTE)));
///
/// // Beside the handlers:
/// let app: Router = Router::new()
///     .route("/todos", post(|| async {}).layer(limits.route("todo/create")))
///     .route("/search", get(|| async {}).layer(limits.route("search")));
///
/// // Or in a table, around all of them; whatever is not in it falls under the default.
/// let limits = limits.default_policy(Policy::new("default", Quota::token_bucket(60, MINUTE)));
/// let app: Router = Router::new()
///     .route("/todos", post(|| async {}).get(|| async {}))
///     .route("/search", get(|| async {}))
///     .layer(limits.table([("POST /todos", "todo/create"), ("GET /search", "search")]));
/// ```
///
/// A name that is not there, or there twice, panics when the router is built. All layers made here share one limiter,
/// and routes with the same policy share its buckets.
///
/// # Stacked layers
/// A layer around the router and one on a route both apply: the outer one is charged first, and a request that the
/// inner one refuses has been charged by the outer. Where a route's limit should stand *instead of* the default, use
/// one `table`.
#[derive(Clone)]
pub struct RouteLimits {
    limiter: RateLimiter,
    key: Arc<dyn KeyExtractor>,
    policies: Vec<Policy>,
    default: Option<Policy>,
}

impl RouteLimits {
    /// No policies yet; callers are told apart by `key`. The limiter is one of its own, in memory, unless it is
    /// [given](RouteLimits::limiter).
    ///
    /// ```
    /// use tollgate::{key, RouteLimits};
    ///
    /// let limits = RouteLimits::new(key::client_ip());
    /// ```
    pub fn new(key: impl KeyExtractor) -> RouteLimits {
        RouteLimits { limiter: RateLimiter::default(), key: Arc::new(key), policies: Vec::new(), default: None }
    }

    /// Adds a policy.
    ///
    /// # Panics
    /// If one of that name is there already.
    #[track_caller]
    #[must_use]
    pub fn policy(mut self, policy: impl Into<Policy>) -> RouteLimits {
        let policy = self.expect_new(policy.into());
        self.policies.push(policy);
        self
    }

    /// The policy of requests for which `table` or [`choose`](RouteLimits::choose) name none,
    /// those that match no route included: they share one bucket a caller. Without it such requests are not limited.
    ///
    /// # Panics
    /// If one of that name is there already.
    #[track_caller]
    #[must_use]
    pub fn default_policy(mut self, policy: impl Into<Policy>) -> RouteLimits {
        self.default = Some(self.expect_new(policy.into()));
        self
    }

    /// The limiter to decide by. Defaults to one of its own, in memory.
    ///
    /// ```
    /// use tollgate::{key, MemoryBackend, Policy, Quota, RateLimiter, RouteLimits, MINUTE};
    ///
    /// let limiter = RateLimiter::new(MemoryBackend::builder().max_rows(100_000).build());
    /// let limits = RouteLimits::new(key::client_ip())
    ///     .policy(Policy::new("search", Quota::sliding_window(100, MINUTE)))
    ///     .limiter(&limiter);
    /// ```
    #[must_use]
    pub fn limiter(mut self, limiter: &RateLimiter) -> RouteLimits {
        self.limiter = limiter.clone();
        self
    }

    /// A layer with the policy of that name, for one route or several.
    ///
    /// # Panics
    /// If there is none; the message lists those that there are.
    #[track_caller]
    pub fn route(&self, name: &str) -> RateLimitLayer {
        let policy = self.all().nth(self.expect_index(name));
        RateLimitLayer::from(Rule::choosing(policy, |_| Some(0), Arc::clone(&self.key))).limiter(&self.limiter)
    }

    /// One layer for all routes: `("POST /todos", "todo/create")` puts a method and a route, as it was given to the
    /// router, under a policy; without a method (`"/todos"`) all of them. `HEAD` falls under `GET`'s. Requests that are
    /// not in it, or match no route, fall under the default policy.
    ///
    /// In axum, put it where the route is matched: `Router::layer` or `route_layer`. Of nested routers a route
    /// is the whole of it: `/users/{id}` of a router nested at `/api` is `/api/users/{id}`, and its `/` is `/api`. What
    /// is below `Router::nest_service` matches no route of axum's. A line for `/todos/` is also for `/todos`, and the
    /// other way around, unless the table has lines for both.
    ///
    /// # Without axum
    /// Where no router of axum's has seen the request, around a tonic server or in plain hyper, lines are compared with
    /// the request's path as it was sent: `/package.Service/Method` is a method of a gRPC service, and
    /// `/package.Service/{*rest}` are all others of it. The line for exactly the path comes first, then the longest one
    /// that ends with a wildcard; other parameters, as in `/users/{id}`, match nothing there. The same holds inside of
    /// routers for routes that end with a wildcard, as tonic's routes do. Another spelling, `/%61` for `/a`, is another path:
    /// have a [default policy](RouteLimits::default_policy).
    ///
    /// ```
    /// use tollgate::{key, Policy, Quota, RouteLimits, HOUR, SECOND};
    ///
    /// let limits = RouteLimits::new(key::client_ip())
    ///     .policy(Policy::new("create", Quota::token_bucket(10, HOUR)))
    ///     .policy(Policy::new("todos", Quota::token_bucket(20, SECOND)))
    ///     .default_policy(Policy::new("default", Quota::token_bucket(5, SECOND)));
    /// let layer = limits.table([("/todo.Todos/Create", "create"), ("/todo.Todos/{*rest}", "todos")]).grpc();
    /// // tonic::transport::Server::builder().layer(layer)
    /// ```
    ///
    /// # Mistakes
    /// A table does not know the routes of the router: a route that is misspelt, or has another name for a parameter
    /// (`/users/{user}` for `/users/{id}`), applies to no request. [`RateLimitLayer::unused_routes`] lists such lines
    /// once requests came, in a test for instance, and [`RateLimitLayer::unmatched_requests`] counts the requests that
    /// no line applies to. With a [default policy](RouteLimits::default_policy) they are limited all the same.
    ///
    /// # Panics
    /// If a policy is not there, or a line is there twice or can never apply: it has no route, a `:id` or `*rest` as in
    /// axum 0.7, a query, a brace without its other half, or a method that is not in capitals or misspelt. The message
    /// says what to write.
    #[track_caller]
    pub fn table<'a>(&self, lines: impl IntoIterator<Item = (&'a str, &'a str)>) -> RateLimitLayer {
        let mut table = Table::default();
        for (line, name) in lines {
            if let Err(fault) = table.add(line, self.expect_index(name)) {
                panic!("tollgate: {line:?} {fault}");
            }
        }
        let table = Arc::new(table.finish());
        let lookup = Arc::clone(&table);
        let mut rule = self.choosing(move |parts| lookup.policy(parts));
        rule.table = Some(table);
        RateLimitLayer::from(rule).limiter(&self.limiter)
    }

    /// One layer that asks a closure for the name of each request's policy. `None`, and a name that is not there, mean
    /// the default policy.
    ///
    /// ```
    /// # use http::request::Parts;
    /// # use tollgate::{key, Policy, Quota, RouteLimits, MINUTE};
    /// let limits = RouteLimits::new(key::global())
    ///     .policy(Policy::new("write", Quota::token_bucket(10, MINUTE)))
    ///     .default_policy(Policy::new("read", Quota::token_bucket(100, MINUTE)));
    /// let layer = limits.choose(|req: &Parts| (!req.method.is_safe()).then_some("write"));
    /// ```
    pub fn choose<F>(&self, choose: F) -> RateLimitLayer
    where
        F: Fn(&Parts) -> Option<&'static str> + Send + Sync + 'static,
    {
        let names: HashMap<String, usize> =
            self.all().enumerate().map(|(i, policy)| (policy.name().as_str().to_owned(), i)).collect();
        let rule = self.choosing(move |parts| choose(parts).and_then(|name| names.get(name)).copied());
        RateLimitLayer::from(rule).limiter(&self.limiter)
    }

    /// A rule that chooses among all policies, or else the default one.
    fn choosing(&self, choose: impl Fn(&Parts) -> Option<usize> + Send + Sync + 'static) -> Rule {
        let default = self.default.as_ref().map(|_| self.policies.len());
        let choose = move |parts: &Parts| choose(parts).or(default);
        Rule::choosing(self.all(), choose, Arc::clone(&self.key))
    }

    /// All policies, the default one last.
    fn all(&self) -> impl Iterator<Item = &Policy> {
        self.policies.iter().chain(&self.default)
    }

    /// The policy of that name by its place among [`all`](RouteLimits::all).
    fn index(&self, name: &str) -> Option<usize> {
        self.all().position(|policy| policy.name().as_str() == name)
    }

    #[track_caller]
    fn expect_new(&self, policy: Policy) -> Policy {
        let name = policy.name();
        assert!(
            self.index(name.as_str()).is_none(),
            "tollgate: there are two policies named {name:?}, so routes could not tell them apart; give one another name"
        );
        policy
    }

    #[track_caller]
    fn expect_index(&self, name: &str) -> usize {
        let Some(index) = self.index(name) else {
            let known: Vec<_> = self.all().map(|policy| policy.name().as_str()).collect();
            panic!("tollgate: there is no policy named {name:?}; there are {known:?}")
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

/// Whether a request is a CORS preflight: `OPTIONS` with an `Origin` and an `Access-Control-Request-Method`. For
/// [`skip`](RateLimitLayer::skip), where the CORS layer is inside the limiter; no other `OPTIONS` is one.
///
/// ```
/// use http::Request;
/// use tollgate::middleware::is_cors_preflight;
///
/// let (mut parts, ()) = Request::options("/todos")
///     .header("origin", "https://example.com")
///     .header("access-control-request-method", "POST")
///     .body(())?
///     .into_parts();
/// assert!(is_cors_preflight(&parts));
/// parts.headers.remove("access-control-request-method");
/// assert!(!is_cors_preflight(&parts)); // `OPTIONS` of another kind costs what a request costs
/// # Ok::<(), http::Error>(())
/// ```
pub fn is_cors_preflight(parts: &Parts) -> bool {
    parts.method == http::Method::OPTIONS
        && parts.headers.contains_key(http::header::ORIGIN)
        && parts.headers.contains_key(http::header::ACCESS_CONTROL_REQUEST_METHOD)
}
