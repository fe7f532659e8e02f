//! A value that is there at once, or comes later.

use std::future::Future;
use std::pin::Pin;

use http::request::Parts;

pub(super) enum Soon<T> {
    Now(T),
    Later(Later<T>),
}

pub(super) type Later<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What a request costs.
pub(super) type CostFn = dyn Fn(&Parts) -> Soon<u64> + Send + Sync;

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
