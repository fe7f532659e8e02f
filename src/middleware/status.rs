//! The decisions on a request, as its handler sees them.

use std::sync::Arc;

use crate::policy::{Decision, Decisions};

/// The decisions on a request, for use in its handler. This is a request extension and, with the `axum` feature, an
/// extractor. Enable it with [`with_status`](super::RateLimitLayer::with_status).
///
/// ```
/// use axum::{routing::get, Router};
/// use tollgate::{key, Quota, RateLimitLayer, RateLimitStatus, MINUTE};
///
/// async fn hello(status: RateLimitStatus) -> String {
///     format!("{} left", status.tightest().map_or(0, |decision| decision.remaining()))
/// }
///
/// let layer = RateLimitLayer::new(Quota::token_bucket(10, MINUTE), key::global()).with_status();
/// let app: Router = Router::new().route("/", get(hello)).layer(layer);
/// ```
#[derive(Clone, Debug)]
pub struct RateLimitStatus {
    decisions: Arc<Decisions>,
}

impl RateLimitStatus {
    pub(super) fn new(decisions: Decisions) -> RateLimitStatus {
        RateLimitStatus { decisions: Arc::new(decisions) }
    }

    /// Returns one decision for each quota of each rule that applied to the request, in the order of the rules.
    pub fn decisions(&self) -> &Decisions {
        &self.decisions
    }

    /// Returns the decision that has the smallest share of its limit left, or `None` if no rule applied.
    pub fn tightest(&self) -> Option<&Decision> {
        self.decisions.tightest()
    }
}
