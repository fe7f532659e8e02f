//! The service: decides, then calls the inner one or refuses.

use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tower_service::Service;

use super::body::RefusalBody;
use super::decide::Verdict;
use super::future::{Held, ResponseFuture, State};
use super::shared::Shared;
use super::soon::Soon;

/// A service behind limits. See [`RateLimitLayer`](super::RateLimitLayer).
///
/// Its error is the inner service's: refusals are responses.
///
/// ```
/// use http::{Request, Response};
/// use tollgate::{key, middleware::{RateLimit, ResponseFuture}, Quota, RateLimitLayer, MINUTE};
/// use tower::{Layer, Service};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), std::convert::Infallible> {
/// #[derive(Clone)]
/// struct Hello;
///
/// impl Service<Request<()>> for Hello {
///     type Response = Response<http_body_util::Empty<bytes::Bytes>>;
///     type Error = std::convert::Infallible;
///     type Future = std::future::Ready<Result<Self::Response, Self::Error>>;
///
///     fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> {
///         std::task::Poll::Ready(Ok(()))
///     }
///
///     fn call(&mut self, _: Request<()>) -> Self::Future {
///         std::future::ready(Ok(Response::default()))
///     }
/// }
///
/// let mut limited: RateLimit<Hello> = RateLimitLayer::new(Quota::token_bucket(1, MINUTE), key::global()).layer(Hello);
/// let Hello = limited.get_ref();
/// std::future::poll_fn(|context| limited.poll_ready(context)).await?;
/// let response: ResponseFuture<Hello, ()> = limited.call(Request::new(()));
/// assert_eq!(response.await?.status(), 200);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RateLimit<S> {
    inner: S,
    shared: Arc<Shared>,
}

impl<S> RateLimit<S> {
    pub(super) fn new(inner: S, shared: Arc<Shared>) -> RateLimit<S> {
        RateLimit { inner, shared }
    }

    /// The service behind the limits.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }
}

impl<S, B, R> Service<Request<B>> for RateLimit<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
{
    type Response = Response<RefusalBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, B>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> ResponseFuture<S, B> {
        let (parts, body) = request.into_parts();
        let state = match self.shared.decide(&parts) {
            Soon::Now(verdict) => {
                if !matches!(verdict, Verdict::Go(_)) {
                    // Nobody waits on what the ready instance holds for a call: a permit, a place in a buffer. It goes.
                    self.inner = self.inner.clone();
                }
                State::decided(verdict, &self.shared, &mut self.inner, parts, body)
            }
            Soon::Later(verdict) => {
                // The service that was polled ready is the one to call; its clone may not be ready yet.
                let clone = self.inner.clone();
                let service = std::mem::replace(&mut self.inner, clone);
                let held = Held { shared: Arc::clone(&self.shared), service, parts, body };
                State::Deciding { verdict, held: Some(Box::new(held)) }
            }
        };
        ResponseFuture { state }
    }
}
