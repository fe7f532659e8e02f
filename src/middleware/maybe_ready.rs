//! A value that is either ready, which is the usual case, or computed by a boxed future.

use std::future::Future;
use std::pin::Pin;

pub(super) enum MaybeReady<T> {
    Ready(T),
    Pending(BoxFuture<T>),
}

pub(super) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl<T> MaybeReady<T> {
    pub(super) fn pending(value: impl Future<Output = T> + Send + 'static) -> MaybeReady<T> {
        MaybeReady::Pending(Box::pin(value))
    }

    pub(super) async fn resolve(self) -> T {
        match self {
            MaybeReady::Ready(value) => value,
            MaybeReady::Pending(value) => value.await,
        }
    }
}
