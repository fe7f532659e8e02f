//! Options for the cost of a request, the time that it may wait, and the settlement of its charges.

use std::sync::Arc;
#[cfg(feature = "wait")]
use std::time::Duration;

use http::request::Parts;

use super::RateLimitLayer;
use crate::middleware::cost::Cost;
use crate::middleware::on_response::OnResponse;
#[cfg(feature = "wait")]
use crate::middleware::options::expect_reservations;

impl RateLimitLayer {
    /// Sets the cost of a request under every rule that has no [cost of its own](crate::Rule::cost), as in
    /// `.cost(|req: &Parts| if req.uri.path().starts_with("/export") { 50 } else { 1 })`. Defaults to 1.
    ///
    /// A request that costs more than the quota's capacity is refused without `Retry-After` and counted as a
    /// [mistake](crate::observe::Mistake). A request that costs 0 spends nothing, but it is still denied while its key
    /// has overspent the quota. If the cost has to be awaited, let an outer layer compute it and insert an extension that
    /// the closure reads.
    #[must_use]
    pub fn cost(mut self, cost: impl Fn(&Parts) -> u64 + Send + Sync + 'static) -> RateLimitLayer {
        self.options_mut().cost = Cost::PerRequest(Arc::new(cost));
        self
    }

    /// Sets the same [`cost`](RateLimitLayer::cost) for every request.
    ///
    /// # Panics
    /// Adding the layer to a service panics if the quota of a policy or tier can never grant the cost. To exclude some
    /// tiers from a route on purpose, use [`.cost(|_| n)`](RateLimitLayer::cost) instead, which is not checked.
    #[must_use]
    pub fn fixed_cost(mut self, tokens: u64) -> RateLimitLayer {
        self.options_mut().cost = Cost::Fixed(tokens);
        self
    }

    /// Settles the charges under every rule that has no [closure of its own](crate::Rule::on_response), based on the
    /// response. The closure is called once for each charge. See [`OnResponse`] for an example.
    ///
    /// A charge is kept if there is no response because the handler panics, the inner service fails, an outer timeout
    /// fires or the client disconnects. A charge that a [`Receipt`](crate::Receipt) has already settled is changed only
    /// by [`OnResponse::Reset`]. The `RateLimit` headers of the response show the state before the settlement.
    #[must_use]
    pub fn on_response(
        mut self,
        settle: impl Fn(&http::response::Parts) -> OnResponse + Send + Sync + 'static,
    ) -> RateLimitLayer {
        self.options_mut().on_response = Some(Arc::new(settle));
        self
    }

    /// Inserts a [`Receipt`](crate::Receipt) into the extensions of each request that is passed on, for handlers and
    /// streaming bodies that learn the actual cost later. This is off by default, since extensions require allocations.
    ///
    /// ```
    /// # use axum::{routing::post, Router};
    /// # use tollgate::{key, Quota, RateLimitLayer, Receipt, MINUTE};
    /// async fn complete(usage: Receipt, prompt: String) -> String {
    ///     let answer = prompt.to_uppercase();
    ///     let _ = usage.settle(answer.len() as u64).await; // if the backend is down, the estimate is kept
    ///     answer
    /// }
    ///
    /// let layer = RateLimitLayer::new(Quota::token_bucket(10_000, MINUTE), key::client_ip()).cost(|_| 1000);
    /// let app: Router = Router::new().route("/", post(complete)).layer(layer.with_receipt());
    /// ```
    #[must_use]
    pub fn with_receipt(mut self) -> RateLimitLayer {
        self.options_mut().with_receipt = true;
        self
    }

    /// Delays requests by up to `wait` instead of refusing them, if their quota [allows
    /// reservations](crate::Quota::max_reserved).
    ///
    /// ```
    /// # use tollgate::{key, Policy, Quota, RateLimitLayer, SECOND};
    /// // Ten requests per second are allowed, evenly spaced. Up to fifty more per client wait for up to five seconds.
    /// const SEARCH: Policy = Policy::new("search", Quota::token_bucket(10, SECOND).capacity(1).max_reserved(50));
    /// RateLimitLayer::new(SEARCH, key::client_ip()).wait_up_to(5 * SECOND);
    /// ```
    ///
    /// Each request reserves its tokens when it arrives, so a key's requests proceed in order of arrival. Under several
    /// rules, a request waits until the latest of its due times. If a client disconnects, later requests [move
    /// up](crate::Reservation). There is a [bound](crate::limiter::RateLimiterBuilder::max_waiting) on the number of
    /// requests that wait for their due time or for a reply from a remote backend.
    ///
    /// # Panics
    /// Panics if none of the policies added so far allows reservations. The service panics if a request has to wait
    /// outside of a tokio runtime, unless the backend's [clock](crate::clock::Clock) implements its own sleep.
    #[cfg(feature = "wait")]
    #[track_caller]
    #[must_use]
    pub fn wait_up_to(mut self, wait: Duration) -> RateLimitLayer {
        expect_reservations(self.options.policies());
        self.options_mut().wait = Some(wait);
        self
    }

    /// Adds a random duration of up to `max` to each delay, even beyond [`wait_up_to`](RateLimitLayer::wait_up_to), so
    /// that requests with the same due time do not proceed together. Defaults to zero.
    #[cfg(feature = "wait")]
    #[must_use]
    pub fn wait_jitter(mut self, max: Duration) -> RateLimitLayer {
        self.options_mut().wait_jitter = max;
        self
    }
}
