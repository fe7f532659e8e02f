//! The service that the layer creates.

use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tower_service::Service;

use super::body::RefusalBody;
use super::decide::Verdict;
use super::future::{HeldRequest, ResponseFuture, State};
use super::maybe_ready::MaybeReady;
use super::options::LayerOptions;

/// A service limited by a [`RateLimitLayer`](super::RateLimitLayer). Errors come only from the inner service.
///
/// ```
/// use http::{Request, Response};
/// use std::convert::Infallible;
/// use tollgate::{key, Quota, RateLimitLayer, MINUTE};
/// use tower::{service_fn, Layer, Service, ServiceExt};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Infallible> {
/// let inner = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new("hello".to_owned())) });
/// let mut limited = RateLimitLayer::new(Quota::token_bucket(1, MINUTE), key::global()).layer(inner);
/// assert!(!limited.ready().await?.call(Request::new(())).await?.body().is_refusal());
/// assert!(limited.ready().await?.call(Request::new(())).await?.body().is_refusal());
/// # Ok(()) }
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
                    // The ready instance may hold a permit or a buffer slot for a call that will not be made.
                    self.inner = self.inner.clone();
                }
                State::decided(verdict, &self.options, &mut self.inner, parts, body)
            }
            MaybeReady::Pending(verdict) => {
                // Keep the ready instance for the call, since a clone of it may not be ready.
                let clone = self.inner.clone();
                let service = std::mem::replace(&mut self.inner, clone);
                let held = HeldRequest { options: Arc::clone(&self.options), service, parts, body };
                State::Deciding { verdict, held: Some(Box::new(held)) }
            }
        };
        ResponseFuture { state }
    }
}
