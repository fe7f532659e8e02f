//! [`BackendFuture`], a future that resolves to a backend's result.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::Error;

/// A future that resolves to the result of a backend operation. A ready result needs no allocation.
///
/// # Panics
/// Panics if the future is polled after completion.
///
/// ```
/// use tollgate::backend::{BackendFuture, Error};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Error> {
/// assert!(BackendFuture::ready(Ok(7)).try_ready().is_ok());
/// let pending = BackendFuture::boxed(async { Ok(7) }).try_ready().unwrap_err();
/// assert_eq!(pending.await?, 7);
/// # Ok(()) }
/// ```
#[must_use = "the call is made even if this future is dropped; await it to learn whether the backend failed"]
pub struct BackendFuture<T>(Inner<T>);

enum Inner<T> {
    /// Contains `None` after completion.
    Ready(Option<Result<T, Error>>),
    Boxed(Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>),
}

impl<T> BackendFuture<T> {
    /// Creates a future that is immediately ready with `result`.
    pub fn ready(result: Result<T, Error>) -> BackendFuture<T> {
        BackendFuture(Inner::Ready(Some(result)))
    }

    /// Boxes a future that is not ready yet.
    pub fn boxed(future: impl Future<Output = Result<T, Error>> + Send + 'static) -> BackendFuture<T> {
        BackendFuture(Inner::Boxed(Box::pin(future)))
    }

    pub(crate) fn map<U>(self, change: impl FnOnce(T) -> U + Send + 'static) -> BackendFuture<U>
    where
        T: Send + 'static,
    {
        match self.try_ready() {
            Ok(result) => BackendFuture::ready(result.map(change)),
            Err(pending) => BackendFuture::boxed(async move { pending.await.map(change) }),
        }
    }

    /// Returns the result if it is ready.
    ///
    /// # Errors
    /// Returns the future itself if it is still pending, or if its result has already been taken.
    pub fn try_ready(self) -> Result<Result<T, Error>, BackendFuture<T>> {
        match self.0 {
            Inner::Ready(Some(result)) => Ok(result),
            other => Err(BackendFuture(other)),
        }
    }
}

// A boxed future stays pinned in its box when the `BackendFuture` moves.
impl<T> Unpin for BackendFuture<T> {}

impl<T> Future for BackendFuture<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Inner::Ready(result) => match result.take() {
                Some(result) => Poll::Ready(result),
                None => panic!("`BackendFuture` polled after completion"),
            },
            Inner::Boxed(future) => future.as_mut().poll(context),
        }
    }
}

impl<T> fmt::Debug for BackendFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            Inner::Ready(Some(_)) => "BackendFuture(ready)",
            Inner::Ready(None) => "BackendFuture(completed)",
            Inner::Boxed(_) => "BackendFuture(pending)",
        })
    }
}
