//! The cost of a request.

use std::sync::Arc;

use http::request::Parts;

#[derive(Clone)]
pub(super) enum Cost {
    Fixed(u64),
    PerRequest(Arc<CostFn>),
}

type CostFn = dyn Fn(&Parts) -> u64 + Send + Sync;

impl Default for Cost {
    fn default() -> Cost {
        Cost::Fixed(1)
    }
}

impl Cost {
    pub(super) fn of(&self, parts: &Parts) -> u64 {
        match self {
            Cost::Fixed(tokens) => *tokens,
            Cost::PerRequest(cost) => cost(parts),
        }
    }
}
