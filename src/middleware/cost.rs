//! What a request costs: known at once, or on its way.

use std::future::Future;
use std::pin::Pin;

use http::request::Parts;

pub(super) enum Cost {
    Now(u64),
    Later(Pin<Box<dyn Future<Output = u64> + Send>>),
}

pub(super) type CostFn = dyn Fn(&Parts) -> Cost + Send + Sync;

impl Cost {
    pub(super) fn by(cost: impl Fn(&Parts) -> u64 + Send + Sync + 'static) -> Box<CostFn> {
        Box::new(move |parts| Cost::Now(cost(parts)))
    }

    pub(super) fn later<F>(cost: impl Fn(&Parts) -> F + Send + Sync + 'static) -> Box<CostFn>
    where
        F: Future<Output = u64> + Send + 'static,
    {
        Box::new(move |parts| Cost::Later(Box::pin(cost(parts))))
    }

    /// The number, which is there at once from now on.
    pub(super) async fn known(&mut self) -> u64 {
        let tokens = match self {
            Cost::Now(tokens) => *tokens,
            Cost::Later(cost) => cost.await,
        };
        *self = Cost::Now(tokens);
        tokens
    }
}
