//! What a handler may know of the limits its request passed.

use std::sync::Arc;

use crate::policy::{Decision, Decisions};

/// The decisions on a request, for its handler: an extension, and with feature `axum` an extractor.
///
/// Only there if the layer was told [`with_status`](super::RateLimitLayer::with_status).
///
/// ```
/// use axum::{routing::get, Router};
/// use tollgate::{key, Quota, RateLimitLayer, RateLimitStatus, MINUTE};
///
/// async fn hello(status: RateLimitStatus) -> String {
///     if status.is_shadowed() {
///         eprintln!("would have been refused: {}", status.decisions());
///     }
///     format!("{} left", status.tightest().map_or(0, |decision| decision.remaining()))
/// }
///
/// let app: Router = Router::new()
///     .route("/", get(hello))
///     .layer(RateLimitLayer::new(Quota::token_bucket(10, MINUTE), key::global()).with_status());
/// ```
#[derive(Clone, Debug)]
pub struct RateLimitStatus {
    decisions: Arc<Decisions>,
    shadowed: bool,
}

impl RateLimitStatus {
    pub(super) fn new(decisions: Decisions, shadowed: bool) -> RateLimitStatus {
        RateLimitStatus { decisions: Arc::new(decisions), shadowed }
    }

    /// One decision for each rule that applied, in their order.
    pub fn decisions(&self) -> &Decisions {
        &self.decisions
    }

    /// The decision with the smallest share of its limit left; `None` if no rule applied.
    pub fn tightest(&self) -> Option<&Decision> {
        self.decisions.tightest()
    }

    /// Whether the request goes on only because its refusal (a denial, or a key that could not be found) is not
    /// enforced: see [`RateLimitLayer::shadow`](super::RateLimitLayer::shadow).
    pub fn is_shadowed(&self) -> bool {
        self.shadowed
    }
}
