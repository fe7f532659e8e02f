//! The layer: what to limit, by what, on which limiter, and how to answer.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use tower_layer::Layer;

use super::headers::{HeaderFamily, field_name};
use super::key::{ClientIp, KeyExtractor};
use super::on_response::OnResponse;
use super::refusal::Refusal;
use super::rule::Rule;
use super::service::RateLimit;
use super::shared::Shared;
use super::soon::{Cost, Soon};
use crate::limiter::RateLimiter;
use crate::policy::{DenyRule, Policy};

/// Puts limits in front of a service.
///
/// Each rule is a policy and a way to find the key that it counts. A request is charged under all rules at once: if one
/// denies it, none is charged, and it is answered with 429 and never reaches the service.
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
/// All services that one layer, or its clones, make share their rows. Every response carries `RateLimit-Policy` and
/// `RateLimit` (draft-ietf-httpapi-ratelimit-headers-11) unless told [otherwise](RateLimitLayer::headers), a denial
/// also `Retry-After`, `Cache-Control: no-store` and an `application/problem+json` body; of a [gRPC
/// service](RateLimitLayer::grpc), a gRPC status.
///
/// The service behind it has to be `Clone`: put a `Buffer` around one that is not. The data of its response body has to
/// be `From<Bytes>`, as [`Bytes`] itself is. Around a whole `Router`, handed to something else than axum, the body is
/// to be mapped back: `docs::axum` shows how.
///
/// # Where to put it
/// Inside CORS (so that browsers may read a 429, and preflights are not charged), inside authentication if the key
/// comes from it (and another one outside, by address: whoever guesses credentials has none), outside compression and
/// whatever else is work. `Router::layer` also limits requests that match no route (a browser asking for an icon spends
/// from a tight limit on the page); `route_layer` lets 404s through unlimited.
///
/// # Telling clients ahead
/// A page that knows how its user's limits stand disables a button instead of showing an error: `status::of_layer`
/// (feature `axum`) makes an endpoint for that of this layer.
#[derive(Clone)]
pub struct RateLimitLayer {
    pub(super) shared: Arc<Shared>,
}

impl RateLimitLayer {
    /// A layer with one rule: `policy`, counted by `key`. A quota alone is a policy named from itself.
    ///
    /// It gets a limiter of its own, in memory, unless it is [given one](RateLimitLayer::limiter).
    ///
    /// ```
    /// use axum::{body::Body, extract::Request, routing::get, Router};
    /// use tollgate::{key, Quota, RateLimitLayer, MINUTE};
    /// use tower::ServiceExt;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let layer = RateLimitLayer::new(Quota::token_bucket(1, MINUTE), key::global());
    /// let app: Router = Router::new().route("/", get(|| async { "hello" })).layer(layer);
    /// assert_eq!(app.clone().oneshot(Request::new(Body::empty())).await?.status(), 200);
    /// assert_eq!(app.clone().oneshot(Request::new(Body::empty())).await?.status(), 429);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// If a bare quota refuses everything (capacity 0 without reservations).
    #[track_caller]
    pub fn new(policy: impl Into<Policy>, key: impl KeyExtractor) -> RateLimitLayer {
        Rule::new(policy, key).into()
    }

    /// Adds a rule. A request is charged under all rules, or under none.
    ///
    /// ```
    /// use tollgate::{key, Policy, Quota, RateLimitLayer, MINUTE, SECOND};
    ///
    /// const PER_CLIENT: Policy = Policy::new("client", Quota::token_bucket(60, MINUTE));
    /// const GLOBAL: Policy = Policy::new("global", Quota::token_bucket(1000, SECOND));
    /// let layer = RateLimitLayer::new(PER_CLIENT, key::client_ip()).and(GLOBAL, key::global());
    /// ```
    ///
    /// # Panics
    /// If there is a rule with a policy of the same name already: the two would charge the same rows. As
    /// [`new`](RateLimitLayer::new) if a bare quota refuses everything.
    #[track_caller]
    #[must_use]
    pub fn and(self, policy: impl Into<Policy>, key: impl KeyExtractor) -> RateLimitLayer {
        self.rule(Rule::new(policy, key))
    }

    /// Adds a rule with its own cost and its own way to settle.
    ///
    /// ```
    /// use tollgate::{key, Policy, Quota, RateLimitLayer, Rule, DAY, MINUTE};
    ///
    /// const CALLS: Policy = Policy::new("calls", Quota::token_bucket(60, MINUTE));
    /// const BYTES: Policy = Policy::new("bytes", Quota::fixed_window(1_000_000_000, DAY));
    /// // The longest body that the service reads: axum's `DefaultBodyLimit`, say. A request that does not send its length may
    /// // be as long. To cost nothing then would let every upload without `Content-Length` past the limit.
    /// const LONGEST: u64 = 2_000_000;
    ///
    /// let uploads = RateLimitLayer::new(CALLS, key::client_ip()).rule(Rule::new(BYTES, key::client_ip()).cost(|req| {
    ///     let length = req.headers.get("content-length").and_then(|value| value.to_str().ok()?.parse().ok());
    ///     length.filter(|_| !req.headers.contains_key("transfer-encoding")).unwrap_or(LONGEST)
    /// }));
    /// ```
    ///
    /// # Panics
    /// If there is a rule with a policy of the same name already: the two would charge the same rows.
    #[track_caller]
    #[must_use]
    pub fn rule(mut self, rule: Rule) -> RateLimitLayer {
        let names: Vec<_> = self.shared.policies().map(Policy::name).collect();
        if let Some(known) = rule.policies.iter().find(|known| names.contains(&known.policy.name())) {
            let name = known.policy.name();
            panic!("tollgate: two rules of one layer have a policy named {name:?}; give one of them another name");
        }
        self.change().rules.push(rule);
        self
    }

    /// Requests for which `skip` says yes pass unlimited and uncharged: health checks, an allow list, CORS preflights
    /// ([`is_cors_preflight`](crate::middleware::is_cors_preflight)). Said several times, each counts.
    ///
    /// ```
    /// # use http::request::Parts;
    /// # use tollgate::{key, middleware::is_cors_preflight, Quota, RateLimitLayer, MINUTE};
    /// RateLimitLayer::new(Quota::token_bucket(10, MINUTE), key::client_ip())
    ///     .skip(|req: &Parts| req.uri.path() == "/health")
    ///     .skip(is_cors_preflight)
    ///     .skip(key::client_ip().within(["192.0.2.0/24"]));
    /// ```
    #[must_use]
    pub fn skip(mut self, skip: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> RateLimitLayer {
        self.change().skip.push(Arc::new(skip));
        self
    }

    /// Whose address [deny lists](crate::protection::DenyList) and [blocks](crate::protection::AutoBlock) go by. Defaults to what the first
    /// rule counts by that has a [`client_ip`](crate::key::client_ip) in its key; without one they know of no address.
    ///
    /// ```
    /// use tollgate::{key, protection::{DenyList, DenyRule}, MemoryBackend, Quota, RateLimitLayer, RateLimiter, MINUTE};
    ///
    /// let list = DenyList::from_iter([DenyRule::network("192.0.2.0/24")?, DenyRule::country("KP")?]);
    /// let limiter = RateLimiter::builder(MemoryBackend::new()).deny_list(&list).build();
    /// # struct User { id: u64 }
    /// RateLimitLayer::new(Quota::token_bucket(100, MINUTE), key::extension(|user: &User| user.id))
    ///     .limiter(&limiter)
    ///     .client_ip(key::client_ip().trust(["10.0.0.0/8"]))
    ///     .label_from_header("country", "cf-ipcountry");
    /// # Ok::<(), tollgate::protection::DenyRuleError>(())
    /// ```
    #[must_use]
    pub fn client_ip(mut self, client_ip: ClientIp) -> RateLimitLayer {
        self.change().client_ip = Some(client_ip);
        self
    }

    /// Something else that deny lists and blocks may go by, such as a country. The user agent they know by itself.
    ///
    /// ```
    /// use http::request::Parts;
    /// use tollgate::{key, Quota, RateLimitLayer, MINUTE};
    ///
    /// #[derive(Clone)]
    /// struct Network(u32); // put among the extensions by whoever looks addresses up
    ///
    /// RateLimitLayer::new(Quota::token_bucket(100, MINUTE), key::client_ip())
    ///     .label("asn", |req: &Parts| req.extensions.get::<Network>().map(|network| network.0.to_string()));
    /// ```
    #[must_use]
    pub fn label(
        mut self,
        name: impl Into<Cow<'static, str>>,
        value: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static,
    ) -> RateLimitLayer {
        self.change().labels.push((name.into(), Arc::new(value)));
        self
    }

    /// [`label`](RateLimitLayer::label) from a header that the proxy in front sets, and overwrites if a client sends
    /// it: `cf-ipcountry`, `cloudfront-viewer-country`, `x-vercel-ip-country`. Of one that is there twice, the last
    /// counts.
    ///
    /// ```
    /// use tollgate::{key, Quota, RateLimitLayer, MINUTE};
    ///
    /// RateLimitLayer::new(Quota::token_bucket(100, MINUTE), key::client_ip())
    ///     .label_from_header("country", "cf-ipcountry");
    /// ```
    ///
    /// # Panics
    /// If `header` is no header name in lower case; the message says what to write.
    #[track_caller]
    #[must_use]
    pub fn label_from_header(self, name: impl Into<Cow<'static, str>>, header: &'static str) -> RateLimitLayer {
        let header = field_name(header);
        self.label(name, move |parts: &Parts| {
            let value = parts.headers.get_all(&header).iter().next_back()?.to_str().ok()?.trim();
            (!value.is_empty() && value.len() <= DenyRule::MAX_LENGTH).then(|| value.to_owned())
        })
    }

    /// Accepts rules of the [deny list](crate::protection::DenyList) that this layer can never apply: networks where no address is
    /// known, labels that are not set, keys of a kind that none of its extractors finds. Without this the layer panics when it
    /// is put around a service. For limiters of which another layer, or a handler, applies those rules.
    ///
    /// ```
    /// use tollgate::{key, protection::{DenyList, DenyRule}, MemoryBackend, Quota, RateLimitLayer, RateLimiter, MINUTE};
    ///
    /// let list = DenyList::from_iter([DenyRule::key(key::bearer().key("sk_leaked"))]);
    /// let limiter = RateLimiter::builder(MemoryBackend::new()).deny_list(&list).build();
    /// let quota = Quota::token_bucket(100, MINUTE);
    /// let by_token = RateLimitLayer::new(quota, key::bearer()).limiter(&limiter); // tokens that another layer checked
    /// let by_address = RateLimitLayer::new(quota, key::client_ip()).limiter(&limiter).ignore_unmatched_deny_rules();
    /// ```
    #[must_use]
    pub fn ignore_unmatched_deny_rules(mut self) -> RateLimitLayer {
        self.change().unmatched.ignored = true;
        self
    }

    /// What a request costs under every rule that does not say otherwise itself ([`Rule::cost`]). Defaults to 1.
    ///
    /// ```
    /// # use http::request::Parts;
    /// # use tollgate::{key, Quota, RateLimitLayer, MINUTE};
    /// let by_pages = RateLimitLayer::new(Quota::token_bucket(1000, MINUTE), key::global()).cost(|req: &Parts| {
    ///     if req.uri.path().starts_with("/export") { 50 } else { 1 }
    /// });
    /// ```
    ///
    /// More than a quota ever has is refused with a message that says so, and without `Retry-After`. With 0 nothing is
    /// spent, but it is denied while the key is in debt. What a layer outside of this one knows comes by an extension:
    /// `|req: &Parts| req.extensions.get().map_or(1, |Estimate(tokens)| *tokens)`.
    #[must_use]
    pub fn cost(mut self, cost: impl Fn(&Parts) -> u64 + Send + Sync + 'static) -> RateLimitLayer {
        self.change().cost = Cost::Of(Arc::new(move |parts| Soon::Now(cost(parts))));
        self
    }

    /// [`cost`](RateLimitLayer::cost), the same for every request.
    ///
    /// ```should_panic
    /// use axum::{routing::get, Router};
    /// use tollgate::{key, Policy, Quota, RateLimitLayer, MINUTE};
    ///
    /// let api = Policy::new("api", Quota::token_bucket(60, MINUTE)).tier("free", Quota::token_bucket(5, MINUTE));
    /// let layer = RateLimitLayer::new(api, key::client_ip()).fixed_cost(10);
    /// // panics: policy "api", tier "free": every request costs 10, and the quota 5/min holds 5 at most, ...
    /// let app: Router = Router::new().route("/export", get(|| async {})).layer(layer);
    /// ```
    ///
    /// # Panics
    /// When a service gets the layer, if the quota of a policy or of a tier can never grant the cost. (A quota that is
    /// too small for a cost that a closure returns is found by the first such request: it is refused without
    /// `Retry-After`, and reported once as a [mistake](crate::observe::Mistake).)
    #[must_use]
    pub fn fixed_cost(mut self, tokens: u64) -> RateLimitLayer {
        self.change().cost = Cost::Fixed(tokens);
        self
    }

    /// [`cost`](RateLimitLayer::cost), where it has to be waited for. The future owns what it needs; the inner service
    /// is not called before.
    ///
    /// ```
    /// # use http::request::Parts;
    /// # use tollgate::{key, Quota, RateLimitLayer, MINUTE};
    /// # async fn price_of(path: String) -> u64 { 1 }
    /// RateLimitLayer::new(Quota::token_bucket(1000, MINUTE), key::global()).cost_async(|req: &Parts| {
    ///     let path = req.uri.path().to_owned();
    ///     async move { price_of(path).await }
    /// });
    /// ```
    #[must_use]
    pub fn cost_async<F>(mut self, cost: impl Fn(&Parts) -> F + Send + Sync + 'static) -> RateLimitLayer
    where
        F: Future<Output = u64> + Send + 'static,
    {
        self.change().cost = Cost::Of(Arc::new(move |parts| Soon::later(cost(parts))));
        self
    }

    /// What becomes of the charges, by the response, under every rule that does not say otherwise itself
    /// ([`Rule::on_response`]). It is asked once for each of these charges.
    ///
    /// ```
    /// use tollgate::{key, Quota, RateLimitLayer, OnResponse, MINUTE};
    ///
    /// // Only what was found counts.
    /// RateLimitLayer::new(Quota::token_bucket(100, MINUTE), key::client_ip())
    ///     .on_response(|res| if res.status == 404 { OnResponse::Refund } else { OnResponse::Keep });
    /// ```
    ///
    /// Where there is no response (the handler panics, the inner service fails, a timeout outside of this layer or the
    /// client itself gives up), the charge is kept. A charge that a [`Receipt`](crate::Receipt) has settled
    /// already stays so, but for [`OnResponse::Reset`]. The response's `RateLimit` headers tell the state before it was
    /// settled.
    #[must_use]
    pub fn on_response(
        mut self,
        settle: impl Fn(&http::response::Parts) -> OnResponse + Send + Sync + 'static,
    ) -> RateLimitLayer {
        self.change().settle = Some(Arc::new(settle));
        self
    }

    /// Puts a [`Receipt`](crate::Receipt) among the extensions of each request that goes on: for handlers and
    /// streaming bodies that know the true cost in the end. Off unless asked for: it allocates.
    ///
    /// ```
    /// use axum::{routing::post, Router};
    /// use tollgate::{key, Policy, Quota, RateLimitLayer, Receipt, MINUTE};
    ///
    /// async fn complete(usage: Receipt, prompt: String) -> String {
    ///     let answer = prompt.to_uppercase();
    ///     let _ = usage.settle(answer.len() as u64).await; // a backend that is down keeps the estimate
    ///     answer
    /// }
    ///
    /// const TOKENS: Policy = Policy::new("tokens", Quota::token_bucket(10_000, MINUTE));
    /// let app: Router = Router::new().route("/", post(complete)).layer(
    ///     RateLimitLayer::new(TOKENS, key::client_ip())
    ///         .cost(|_| 1000)
    ///         .with_receipt(),
    /// );
    /// ```
    #[must_use]
    pub fn with_receipt(mut self) -> RateLimitLayer {
        self.change().settlement = true;
        self
    }

    /// Lets requests wait for their turn, up to `wait`, instead of refusing them, under quotas that [allow
    /// reservations](crate::Quota::max_reserved).
    ///
    /// ```
    /// use tollgate::{key, Policy, Quota, RateLimitLayer, SECOND};
    ///
    /// // Ten a second, evenly; up to fifty of a client queue up, none for longer than five seconds.
    /// const SEARCH: Policy = Policy::new("search", Quota::token_bucket(10, SECOND).capacity(1).max_reserved(50));
    /// RateLimitLayer::new(SEARCH, key::client_ip()).wait_up_to(5 * SECOND);
    /// ```
    ///
    /// Each request gets its turn when it comes, so requests of a key go on in the order in which they came, at the
    /// instants that the quota sets. A request that waits holds nothing of the inner service: at its turn, a clone of
    /// that is made ready. If its client leaves, those behind it move up, and the last turn goes to whoever comes next:
    /// see [`Reservation`](crate::Reservation). Of several rules, the last turn counts: a rule whose turn
    /// came earlier is no longer paced by it. How many wait at once, or for a remote backend's answer, is
    /// [bounded](crate::limiter::RateLimiterBuilder::max_waiting).
    ///
    /// It works on the client's side too, around an HTTP client: see [`docs::outgoing`](crate::docs::outgoing).
    ///
    /// # Panics
    /// If no policy of the rules so far can be reserved: nothing would ever wait. And at a request that has to wait
    /// outside of a tokio runtime, unless the backend's [clock](crate::clock::Clock) has its own way to.
    #[cfg(feature = "wait")]
    #[track_caller]
    #[must_use]
    pub fn wait_up_to(mut self, wait: Duration) -> RateLimitLayer {
        if !self.shared.policies().flat_map(Policy::quotas).any(|quota| quota.reserves()) {
            let names: Vec<_> = self.shared.policies().map(Policy::name).collect();
            panic!(
                "tollgate: no policy of {names:?} has turns to wait for; add `.max_reserved(tokens)` or \
                 `.unlimited_reservations()` to a quota (sliding windows have none)"
            );
        }
        self.change().wait = Some(wait);
        self
    }

    /// Lets each request that waits go on a random time up to `most` after its turn, so that those whose turns come
    /// together do not go on together. It comes on top of [`wait_up_to`](RateLimitLayer::wait_up_to). Off by default.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{key, Policy, Quota, RateLimitLayer, SECOND};
    ///
    /// // Ten requests a second come at once; each goes on within a fifth of a second of its turn.
    /// const BATCHES: Policy = Policy::new("batches", Quota::fixed_window(10, SECOND).max_reserved(100));
    /// RateLimitLayer::new(BATCHES, key::global()).wait_up_to(10 * SECOND).wait_jitter(Duration::from_millis(200));
    /// ```
    #[cfg(feature = "wait")]
    #[must_use]
    pub fn wait_jitter(mut self, most: Duration) -> RateLimitLayer {
        self.change().wait_jitter = most;
        self
    }

    /// The limiter to decide by. Layers on one limiter share the rows of policies with the same name, and so does
    /// whoever asks it from a handler.
    ///
    /// ```
    /// use tollgate::{key, Policy, Quota, RateLimitLayer, RateLimiter, MINUTE};
    ///
    /// static API: Policy = Policy::new("api", Quota::token_bucket(100, MINUTE));
    ///
    /// // A handler that asks `limiter` about `API` and the same key spends from the same bucket.
    /// let limiter = RateLimiter::default();
    /// let layer = RateLimitLayer::new(&API, key::client_ip()).limiter(&limiter);
    /// ```
    #[must_use]
    pub fn limiter(mut self, limiter: &RateLimiter) -> RateLimitLayer {
        self.change().limiter = limiter.clone();
        self
    }

    /// Shadow mode: decides and counts as ever, but refuses nobody, so that a limit can be tried on live traffic.
    /// Clients are told nothing; handlers see [`RateLimitStatus::is_shadowed`](super::RateLimitStatus::is_shadowed),
    /// and [`shadow_header`](RateLimitLayer::shadow_header) tells whoever reads the access log.
    ///
    /// What would have been refused is not charged, as ever.
    ///
    /// ```
    /// use axum::{body::Body, extract::Request, routing::get, Router};
    /// use tollgate::{key, Quota, RateLimitLayer, MINUTE};
    /// use tower::ServiceExt;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let layer = RateLimitLayer::new(Quota::token_bucket(1, MINUTE), key::global())
    ///     .shadow()
    ///     .shadow_header("x-limited");
    /// let app: Router = Router::new().route("/", get(|| async { "hello" })).layer(layer);
    /// let first = app.clone().oneshot(Request::new(Body::empty())).await?;
    /// let second = app.clone().oneshot(Request::new(Body::empty())).await?;
    /// assert_eq!((first.status().as_u16(), first.headers().get("x-limited")), (200, None));
    /// assert_eq!((second.status().as_u16(), second.headers()["x-limited"].to_str()?), (200, "denied"));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn shadow(self) -> RateLimitLayer {
        self.enforce_share(0.0)
    }

    /// Shadow mode for all but a share of keys, from 0.0 to 1.0, for which the limit is enforced: so it can be rolled
    /// out step by step. They are always the same keys (of the first rule) for one
    /// [secret](crate::limiter::RateLimiterBuilder::secret), and a larger share includes the smaller one; a limiter with a
    /// random secret draws them anew in each process, and so do two layers that have each a limiter of their own: give
    /// them [one](RateLimitLayer::limiter). Callers without a key are one key, within the share or not. Where the first rule skips a request, the next one's key counts; one that is refused for want
    /// of a key is not among them below 1.0.
    ///
    /// ```
    /// use tollgate::{key::{self, Secret}, MemoryBackend, Quota, RateLimitLayer, RateLimiter, MINUTE};
    ///
    /// // The same tenth of all callers in each process, and after a restart.
    /// # fn secret_of_all_processes() -> [u8; 16] { [7; 16] }
    /// let limiter = RateLimiter::builder(MemoryBackend::new()).secret(Secret::new(secret_of_all_processes())).build();
    /// RateLimitLayer::new(Quota::token_bucket(10, MINUTE), key::client_ip()).limiter(&limiter).enforce_share(0.1);
    /// ```
    ///
    /// # Panics
    /// If `share` is not from 0.0 to 1.0.
    #[track_caller]
    #[must_use]
    pub fn enforce_share(mut self, share: f64) -> RateLimitLayer {
        assert!((0.0..=1.0).contains(&share), "tollgate: the share to enforce is {share}; it must be from 0.0 to 1.0");
        self.change().enforced_below = (share < 1.0).then_some((share * u64::MAX as f64) as u64);
        self
    }

    /// In shadow mode, a header on the responses to requests that would have been refused; its value is `denied`. None
    /// by default. See [`shadow`](RateLimitLayer::shadow) for an example.
    ///
    /// # Panics
    /// If `name` is no header name in lower case; the message says what to write.
    #[track_caller]
    #[must_use]
    pub fn shadow_header(mut self, name: &'static str) -> RateLimitLayer {
        self.change().shadow_header = Some(field_name(name));
        self
    }

    /// Which headers tell clients about their limits. Defaults to [`HeaderFamily::Draft11`]. A denial's `Retry-After`
    /// is sent in any case.
    ///
    /// ```
    /// use axum::{body::Body, extract::Request, routing::get, Router};
    /// use tollgate::{key, middleware::ResetUnit, HeaderFamily, Quota, RateLimitLayer, MINUTE};
    /// use tower::ServiceExt;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let layer = RateLimitLayer::new(Quota::token_bucket(10, MINUTE), key::global())
    ///     .headers(HeaderFamily::XRateLimit(ResetUnit::Seconds));
    /// let app: Router = Router::new().route("/", get(|| async { "hello" })).layer(layer);
    /// let response = app.oneshot(Request::new(Body::empty())).await?;
    /// assert_eq!(response.headers()["x-ratelimit-limit"], "10");
    /// assert_eq!(response.headers()["x-ratelimit-remaining"], "9");
    /// assert_eq!(response.headers()["x-ratelimit-reset"], "6");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn headers(mut self, family: HeaderFamily) -> RateLimitLayer {
        self.change().headers = family;
        self
    }

    /// Answers gRPC requests that are refused with a gRPC status: HTTP 200 with `grpc-status: 8` (RESOURCE_EXHAUSTED), or
    /// what fits instead, and when to come back in `grpc-retry-pushback-ms` and as `google.rpc.RetryInfo`. A request is
    /// gRPC if its `Content-Type` is, which clients choose. So this is off by default, and belongs on gRPC services only:
    /// elsewhere a client could have its refusals counted as successes.
    ///
    /// ```
    /// use tollgate::{key, Quota, RateLimitLayer, SECOND};
    ///
    /// let layer = RateLimitLayer::new(Quota::token_bucket(10, SECOND), key::client_ip()).grpc();
    /// // tonic::transport::Server::builder().layer(layer)
    /// ```
    ///
    /// Without it, gRPC requests are refused as any other, with 429, which gRPC clients take for INTERNAL or UNAVAILABLE. The first
    /// one over HTTP/2 is reported as a [mistake](crate::observe::Mistake).
    #[must_use]
    pub fn grpc(mut self) -> RateLimitLayer {
        self.change().grpc = true;
        self
    }

    /// The lines of the [tables](super::RouteLimits::table) that this layer chooses by which no request has used so far,
    /// in their order. A line that stays here names a route, or a method of it, that the router does not have.
    ///
    /// ```
    /// use axum::{body::Body, extract::Request, routing::get, Router};
    /// use tollgate::{key, Policy, Quota, RouteLimits, MINUTE};
    /// use tower::ServiceExt;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limits = RouteLimits::new(key::global()).policy(Policy::new("search", Quota::token_bucket(10, MINUTE)));
    /// let layer = limits.table([("GET /search", "search"), ("GET /serach/all", "search")]);
    /// let app: Router = Router::new()
    ///     .route("/search", get(|| async {}))
    ///     .route("/search/all", get(|| async {}))
    ///     .layer(layer.clone());
    /// for path in ["/search", "/search/all"] {
    ///     app.clone().oneshot(Request::get(path).body(Body::empty())?).await?;
    /// }
    /// assert_eq!(layer.unused_routes(), ["GET /serach/all"]);
    /// assert_eq!(layer.unmatched_requests(), 1); // without a default policy, they are not limited
    /// # Ok(())
    /// # }
    /// ```
    pub fn unused_routes(&self) -> Vec<&str> {
        self.shared.tables().flat_map(|table| table.unused()).collect()
    }

    /// How many requests no line of the [tables](super::RouteLimits::table) that this layer chooses by applied to. The
    /// [default policy](super::RouteLimits::default_policy) limits them; without one, nothing does. See
    /// [`unused_routes`](RateLimitLayer::unused_routes) for an example.
    pub fn unmatched_requests(&self) -> u64 {
        self.shared.tables().map(|table| table.unmatched()).sum()
    }

    /// Adds a random time up to this to each denial's `Retry-After`, so that clients who were refused together do not
    /// come back together. Only ever later; `Retry-After` itself is in whole seconds, rounded up. None by default.
    ///
    /// ```
    /// use axum::{body::Body, extract::Request, routing::get, Router};
    /// use tollgate::{key, Quota, RateLimitLayer, MINUTE, SECOND};
    /// use tower::ServiceExt;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let layer = RateLimitLayer::new(Quota::token_bucket(1, MINUTE), key::global()).retry_jitter(30 * SECOND);
    /// let app: Router = Router::new().route("/", get(|| async { "hello" })).layer(layer);
    /// app.clone().oneshot(Request::new(Body::empty())).await?;
    /// let denied = app.oneshot(Request::new(Body::empty())).await?;
    /// let retry_after: u64 = denied.headers()["retry-after"].to_str()?.parse()?;
    /// assert!((59..=91).contains(&retry_after));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn retry_jitter(mut self, most: Duration) -> RateLimitLayer {
        self.change().jitter = most;
        self
    }

    /// Puts a [`RateLimitStatus`](super::RateLimitStatus) among the extensions of each request that goes on, for
    /// handlers to look at. Off unless asked for: extensions allocate.
    ///
    /// ```
    /// use axum::{routing::get, Router};
    /// use tollgate::{key, Quota, RateLimitLayer, RateLimitStatus, MINUTE};
    ///
    /// let app: Router = Router::new()
    ///     .route("/", get(|status: RateLimitStatus| async move { format!("{:?}", status.tightest()) }))
    ///     .layer(RateLimitLayer::new(Quota::token_bucket(10, MINUTE), key::global()).with_status());
    /// ```
    #[must_use]
    pub fn with_status(mut self) -> RateLimitLayer {
        self.change().status = true;
        self
    }

    /// Answers refused requests in your own way. The limiter adds its headers to whatever is returned, and
    /// `Retry-After` and `Cache-Control` where they are missing. A `Retry-After` of your own that is earlier than the
    /// limiter's is left as it is, and `RateLimit` out, which would contradict it.
    ///
    /// [`Refusal::respond`] has the status that fits. Of an answer made by `Response::new` the status is yours to set: it
    /// begins as 200.
    ///
    /// ```
    /// # use tollgate::{key, Quota, RateLimitLayer, Refusal, MINUTE};
    /// RateLimitLayer::new(Quota::token_bucket(10, MINUTE), key::client_ip())
    ///     .on_refusal(|refusal: &Refusal<'_>| refusal.respond("text/plain", "slow down, please\n"));
    /// ```
    ///
    /// Only the layer's refusals are answered so; a handler that passes on a [`LimitError`](crate::LimitError) answers
    /// `application/problem+json`, or whatever it makes of it.
    #[must_use]
    pub fn on_refusal(
        mut self,
        refuse: impl Fn(&Refusal<'_>) -> Response<Bytes> + Send + Sync + 'static,
    ) -> RateLimitLayer {
        self.change().refuse = Some(Arc::new(refuse));
        self
    }

    fn change(&mut self) -> &mut Shared {
        let shared = Arc::make_mut(&mut self.shared);
        shared.checked = OnceLock::new();
        shared
    }
}

impl From<Rule> for RateLimitLayer {
    /// A layer with this rule. It gets a limiter of its own, in memory, unless it is [given
    /// one](RateLimitLayer::limiter).
    fn from(rule: Rule) -> RateLimitLayer {
        RateLimitLayer { shared: Arc::new(Shared { rules: vec![rule], ..Shared::default() }) }
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    /// Puts the limits in front of a service.
    ///
    /// # Panics
    /// If the layer can be seen to refuse every request of a policy or tier: its quota never has the
    /// [fixed cost](RateLimitLayer::fixed_cost). Or if the limiter's deny list has rules that the layer can never apply; the
    /// message contains them and what to add. See
    /// [`ignore_unmatched_deny_rules`](RateLimitLayer::ignore_unmatched_deny_rules).
    #[track_caller]
    fn layer(&self, inner: S) -> RateLimit<S> {
        self.shared.check();
        RateLimit::new(inner, Arc::clone(&self.shared))
    }
}

impl fmt::Debug for RateLimitLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared.fmt(f)
    }
}
