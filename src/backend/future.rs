//! A backend's answer: there at once, or on its way.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::Error;

/// What a backend returns: an answer that is there already (no allocation, no waiting), or a boxed future.
///
/// ```
/// use tollgate::backend::BackendFuture;
/// use tollgate::backend::{Error, ErrorKind};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// assert_eq!(BackendFuture::ready(Ok(7)).await?, 7);
/// assert_eq!(BackendFuture::boxed(async { Ok(7) }).await?, 7);
///
/// assert!(BackendFuture::ready(Ok(7)).try_ready().is_ok());
/// let later = BackendFuture::boxed(async { Ok(7) }).try_ready().expect_err("it was not asked yet");
/// assert_eq!(later.await?, 7);
///
/// let failed = BackendFuture::<()>::ready(Err(Error::new(ErrorKind::Unsupported, "this store cannot settle"))).await;
/// assert!(failed.is_err());
/// # Ok(())
/// # }
/// ```
///
/// Polled again after it has answered, it panics, as futures may.
#[must_use = "only awaiting it tells whether the backend could"]
pub struct BackendFuture<T>(Kind<T>);

enum Kind<T> {
    /// `None` once it was taken.
    Ready(Option<Result<T, Error>>),
    Boxed(Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>),
}

impl<T> BackendFuture<T> {
    /// An answer that is there already.
    pub fn ready(answer: Result<T, Error>) -> BackendFuture<T> {
        BackendFuture(Kind::Ready(Some(answer)))
    }

    /// An answer that is on its way.
    pub fn boxed(future: impl Future<Output = Result<T, Error>> + Send + 'static) -> BackendFuture<T> {
        BackendFuture(Kind::Boxed(Box::pin(future)))
    }

    /// The same, with `change` applied to the answer.
    pub(crate) fn map<U>(self, change: impl FnOnce(T) -> U + Send + 'static) -> BackendFuture<U>
    where
        T: Send + 'static,
    {
        match self.try_ready() {
            Ok(answer) => BackendFuture::ready(answer.map(change)),
            Err(later) => BackendFuture::boxed(async move { later.await.map(change) }),
        }
    }

    /// The answer if it is there already, else the future to wait for.
    ///
    /// # Errors
    /// The future itself, if its answer is still on its way or was taken before.
    pub fn try_ready(self) -> Result<Result<T, Error>, BackendFuture<T>> {
        match self.0 {
            Kind::Ready(Some(answer)) => Ok(answer),
            other => Err(BackendFuture(other)),
        }
    }
}

// Nothing in it is pinned in place: a boxed future is pinned in its box.
impl<T> Unpin for BackendFuture<T> {}

impl<T> Future for BackendFuture<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Kind::Ready(answer) => match answer.take() {
                Some(answer) => Poll::Ready(answer),
                None => panic!("a BackendFuture was polled after it had answered"),
            },
            Kind::Boxed(future) => future.as_mut().poll(context),
        }
    }
}

impl<T> fmt::Debug for BackendFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            Kind::Ready(Some(_)) => "BackendFuture(ready)",
            Kind::Ready(None) => "BackendFuture(answered)",
            Kind::Boxed(_) => "BackendFuture(pending)",
        })
    }
}
