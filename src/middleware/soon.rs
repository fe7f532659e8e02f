//! A value that is there at once, or comes later.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use http::request::Parts;

pub(super) enum Soon<T> {
    Now(T),
    Later(Later<T>),
}

pub(super) type Later<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What a request costs.
#[derive(Clone)]
pub(super) enum Cost {
    /// The same for every request.
    Fixed(u64),
    Of(Arc<CostFn>),
}

type CostFn = dyn Fn(&Parts) -> Soon<u64> + Send + Sync;

impl Default for Cost {
    fn default() -> Cost {
        Cost::Fixed(1)
    }
}

impl Cost {
    pub(super) fn of(&self, parts: &Parts) -> Soon<u64> {
        match self {
            Cost::Fixed(tokens) => Soon::Now(*tokens),
            Cost::Of(cost) => cost(parts),
        }
    }
}

impl<T> Soon<T> {
    pub(super) fn later(value: impl Future<Output = T> + Send + 'static) -> Soon<T> {
        Soon::Later(Box::pin(value))
    }

    /// The value, once it is there.
    pub(super) async fn known(self) -> T {
        match self {
            Soon::Now(value) => value,
            Soon::Later(value) => value.await,
        }
    }
}
