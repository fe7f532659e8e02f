//! What all services of a layer share: its choices.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, Response};

use super::cost::CostFn;
use super::headers::HeaderFamily;
use super::key::ClientIp;
use super::refusal::Refusal;
use super::rule::Rule;
use super::settle::SettleFn;
use crate::limiter::RateLimiter;

/// The choices of a layer.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) limiter: RateLimiter,
    pub(super) rules: Vec<Rule>,
    pub(super) skip: Vec<Arc<SkipFn>>,
    pub(super) client_ip: Option<ClientIp>,
    pub(super) labels: Vec<(Cow<'static, str>, Arc<LabelFn>)>,
    pub(super) cost: Option<Arc<CostFn>>,
    pub(super) settle: Option<Arc<SettleFn>>,
    /// How long a request may wait for its turn.
    pub(super) wait: Option<Duration>,
    pub(super) wait_jitter: Duration,
    pub(super) settlement: bool,
    pub(super) enforce: Enforce,
    pub(super) shadow_header: Option<HeaderName>,
    pub(super) headers: HeaderFamily,
    pub(super) jitter: Duration,
    pub(super) status: bool,
    pub(super) refuse: Option<Arc<RefuseFn>>,
}

/// Whose denials are acted on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Enforce {
    Everybody,
    Nobody,
    /// Keys whose digest's seed is at most this.
    UpTo(u64),
}

type SkipFn = dyn Fn(&Parts) -> bool + Send + Sync;
pub(super) type LabelFn = dyn Fn(&Parts) -> Option<String> + Send + Sync;
type RefuseFn = dyn Fn(&Refusal<'_>) -> Response<Bytes> + Send + Sync;

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let policies: Vec<_> =
            self.rules.iter().flat_map(|rule| rule.policies.iter()).map(|known| &known.policy).collect();
        f.debug_struct("RateLimitLayer")
            .field("policies", &policies)
            .field("limiter", &self.limiter)
            .field("enforce", &self.enforce)
            .field("headers", &self.headers)
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}
