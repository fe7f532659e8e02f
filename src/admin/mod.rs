//! A router and a web page that show operators which callers are limited, and let them help those callers.
//!
//! ```
//! use std::sync::Arc;
//! use axum::Router;
//! use tollgate::admin::{self, Admin, Operator};
//! use tollgate::{MINUTE, MemoryBackend, Policy, Quota, RateLimiter, observe::Top};
//!
//! static API: Policy = Policy::new("api", Quota::token_bucket(60, MINUTE));
//!
//! let top = Arc::new(Top::new());
//! let limiter = RateLimiter::builder(MemoryBackend::new()).observer(Arc::clone(&top)).build();
//! # let (ada, grafana) = ("a token of ada, from a file", "a token of grafana, from a file");
//! let tokens = [(ada, Operator::editor("ada")), (grafana, Operator::reader("grafana"))];
//! let admin = Admin::new(&limiter, admin::bearer_tokens(tokens)).policies([&API]).top(&top);
//! let app: Router = Router::new().nest("/admin/limits", admin.into_router());
//! ```
//!
//! [`docs::operate`](crate::docs::operate) describes the endpoints, the page and how to protect the router. Every
//! request must be authorized, even if its path does not exist. The only exception is the page itself, which contains
//! no data. Request bodies are limited to 16 KiB, and each response contains a bounded number of entries.

mod access;
mod change;
mod key;
mod lists;
mod page;
mod problem;
mod target;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use http::request::Parts;

use self::access::guard;
use self::problem::Problem;
use crate::limiter::RateLimiter;
use crate::middleware::RateLimitLayer;
use crate::observe::Top;
use crate::policy::{Policy, PolicyName, suggestion};

pub use access::{Operator, bearer_tokens};

type AuthorizeFn = dyn Fn(&Parts) -> Option<Operator> + Send + Sync;

/// Builds the router through which operators manage a limiter. See the [module](self) for an example.
#[derive(Clone)]
pub struct Admin {
    limiter: RateLimiter,
    policies: Vec<Policy>,
    top: Option<Arc<Top>>,
    authorize: Arc<AuthorizeFn>,
}

impl Admin {
    /// Creates a builder for a router that manages `limiter`. `authorize` is called for each request. It returns the
    /// operator who sent the request, or `None` to refuse the request with 401. The function must not block. If
    /// authorization has to wait for something, do it in a middleware in front of the router, and read the result from
    /// the request's extensions:
    ///
    /// ```
    /// use tollgate::{RateLimiter, admin::{Admin, Operator}};
    ///
    /// #[derive(Clone)]
    /// struct User { name: String, is_admin: bool } // a middleware in front of the router adds it
    ///
    /// let admin = Admin::new(&RateLimiter::default(), |request| {
    ///     let user = request.extensions.get::<User>()?;
    ///     Some(if user.is_admin { Operator::editor(&user.name) } else { Operator::reader(&user.name) })
    /// });
    /// # drop(admin.into_router::<()>());
    /// ```
    pub fn new(limiter: &RateLimiter, authorize: impl Fn(&Parts) -> Option<Operator> + Send + Sync + 'static) -> Admin {
        Admin { limiter: limiter.clone(), policies: Vec::new(), top: None, authorize: Arc::new(authorize) }
    }

    /// Adds the policies that operators can see and change. May be called repeatedly. If several policies have the same
    /// name, the first one is kept.
    #[must_use]
    pub fn policies<'a>(mut self, policies: impl IntoIterator<Item = &'a Policy>) -> Admin {
        for policy in policies {
            if self.find(policy.name().as_str()).is_none() {
                self.policies.push(policy.clone());
            }
        }
        self
    }

    /// Adds all policies of a layer, for example one that was created from a configuration file.
    ///
    /// # Panics
    /// Panics if the layer uses a different limiter, whose rows the router would not show.
    #[must_use]
    #[track_caller]
    pub fn layer(self, layer: &RateLimitLayer) -> Admin {
        assert!(
            layer.uses(&self.limiter),
            "tollgate: the layer and the admin router use different limiters; pass the same limiter to \
             `RateLimitLayer::limiter` and `Admin::new`"
        );
        let policies: Vec<&Policy> = layer.policies().collect();
        self.policies(policies)
    }

    /// Sets the observer that supplies the heaviest keys to `/top` and `/limited`. Without it, these endpoints list no
    /// keys. Also register the observer with the limiter.
    #[must_use]
    pub fn top(mut self, top: &Arc<Top>) -> Admin {
        self.top = Some(Arc::clone(top));
        self
    }

    /// Builds the router, which can be nested under any path.
    pub fn into_router<S: Clone + Send + Sync + 'static>(self) -> Router<S> {
        let admin = Arc::new(self);
        let api = Router::new()
            .route("/policies", get(lists::policies))
            .route("/top", get(lists::top))
            .route("/limited", get(lists::limited))
            .route("/blocks", get(lists::blocks))
            .route("/key", get(key::by_query).post(key::by_body))
            .route("/reset", post(change::reset))
            .route("/credit", post(change::credit))
            .route("/block", post(change::block))
            .route("/unblock", post(change::unblock))
            .route("/quota", post(change::quota))
            .route("/enforcement", post(change::enforcement))
            .fallback(async || Problem::no_endpoint())
            .method_not_allowed_fallback(async || Problem::wrong_method())
            .layer(axum::middleware::from_fn_with_state(Arc::clone(&admin), guard))
            .layer(DefaultBodyLimit::max(MAX_BODY));
        Router::new().route("/page", get(page::page)).fallback_service(api.with_state(admin))
    }

    fn find(&self, name: &str) -> Option<&Policy> {
        self.policies.iter().find(|policy| policy.name().as_str() == name)
    }

    fn policy(&self, name: &str) -> Result<&Policy, Problem> {
        self.find(name).ok_or_else(|| {
            let near = suggestion(name, self.policies.iter().map(|policy| policy.name().as_str()));
            Problem::not_found(format!("there is no policy {name:?}{near}; see `GET /policies`"))
        })
    }

    /// Returns the policy with this name, or all policies if `name` is `None`.
    fn selected(&self, name: Option<&str>) -> Result<Vec<&Policy>, Problem> {
        name.map_or_else(|| Ok(self.policies.iter().collect()), |name| Ok(vec![self.policy(name)?]))
    }

    /// Returns the processes in which an operator's changes to quotas, enforcement and blocks apply.
    fn settings_scope(&self) -> Scope {
        if self.limiter.shares_settings() { Scope::AllProcesses } else { Scope::ThisProcess }
    }

    fn rows_scope(&self) -> Scope {
        if self.limiter.shares_rows() { Scope::AllProcesses } else { Scope::ThisProcess }
    }
}

impl std::fmt::Debug for Admin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let policies: Vec<&PolicyName> = self.policies.iter().map(Policy::name).collect();
        f.debug_struct("Admin").field("limiter", &self.limiter).field("policies", &policies).finish_non_exhaustive()
    }
}

/// The processes to which a part of a response applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
enum Scope {
    ThisProcess,
    AllProcesses,
}

const MAX_BODY: usize = 16 * 1024;
