//! The service of the layer: decides, then calls the inner service or refuses.

use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tower_service::Service;

use super::body::RefusalBody;
use super::decide::Verdict;
use super::future::{HeldRequest, ResponseFuture, State};
use super::maybe_ready::MaybeReady;
use super::options::LayerOptions;

/// A rate-limited service, made by [`RateLimitLayer`](super::RateLimitLayer).
///
/// Refusals are responses; errors come from the inner service only.
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
    options: Arc<LayerOptions>,
}

impl<S> RateLimit<S> {
    pub(super) fn new(inner: S, options: Arc<LayerOptions>) -> RateLimit<S> {
        RateLimit { inner, options }
    }

    /// Returns the inner service.
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
        let state = match self.options.decide(&parts) {
            MaybeReady::Ready(verdict) => {
                if !matches!(verdict, Verdict::Admit(_)) {
                    // Drop the ready instance: it may hold a permit or a buffer slot for a call that is not made.
                    self.inner = self.inner.clone();
                }
                State::decided(verdict, &self.options, &mut self.inner, parts, body)
            }
            MaybeReady::Pending(verdict) => {
                // Keep the instance that was polled ready; its clone may not be ready.
                let clone = self.inner.clone();
                let service = std::mem::replace(&mut self.inner, clone);
                let held = HeldRequest { options: Arc::clone(&self.options), service, parts, body };
                State::Deciding { verdict, held: Some(Box::new(held)) }
            }
        };
        ResponseFuture { state }
    }
}
