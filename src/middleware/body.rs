//! The body of a response: the inner service's, or a refusal's.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

pin_project! {
    /// The body of a response of [`RateLimit`](super::RateLimit): the inner service's, or the limiter's own.
    ///
    /// It is a [`Body`] for every inner body whose data can be made from [`Bytes`], as `Bytes` itself can.
    ///
    /// ```
    /// use http::{Request, Response};
    /// use http_body_util::Full;
    /// use std::convert::Infallible;
    /// use tollgate::{key, Quota, RateLimitLayer, MINUTE};
    /// use tower::{service_fn, Layer, ServiceExt};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Infallible> {
    /// let inner = service_fn(|_: Request<()>| async {
    ///     Ok::<_, Infallible>(Response::new(Full::<bytes::Bytes>::from("hello")))
    /// });
    /// let limited = RateLimitLayer::new(Quota::token_bucket(1, MINUTE), key::global()).layer(inner);
    /// assert!(!limited.clone().oneshot(Request::new(())).await?.body().is_refusal());
    /// assert!(limited.clone().oneshot(Request::new(())).await?.body().is_refusal());
    /// # Ok(())
    /// # }
    /// ```
    #[derive(Debug)]
    pub struct RefusalBody<B> {
        // `None` if the limiter answered instead.
        #[pin]
        inner: Option<B>,
        // Empty once it was sent.
        refusal: Bytes,
    }
}

impl<B> RefusalBody<B> {
    pub(super) fn inner(body: B) -> RefusalBody<B> {
        RefusalBody { inner: Some(body), refusal: Bytes::new() }
    }

    pub(super) fn refusal(refusal: Bytes) -> RefusalBody<B> {
        RefusalBody { inner: None, refusal }
    }

    /// Whether the limiter answered instead of the inner service: around an HTTP client, this tells its 429 from the
    /// server's.
    pub fn is_refusal(&self) -> bool {
        self.inner.is_none()
    }
}

impl<B: Default> Default for RefusalBody<B> {
    fn default() -> RefusalBody<B> {
        RefusalBody::inner(B::default())
    }
}

impl<B> Body for RefusalBody<B>
where
    B: Body,
    B::Data: From<Bytes>,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let this = self.project();
        if let Some(body) = this.inner.as_pin_mut() {
            return body.poll_frame(context);
        }
        // No frame for nothing: of HTTP/2, the headers end the stream then, as gRPC wants it.
        let refusal = std::mem::take(this.refusal);
        Poll::Ready((!refusal.is_empty()).then(|| Ok(Frame::data(refusal.into()))))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().map_or(self.refusal.is_empty(), B::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.as_ref().map_or_else(|| SizeHint::with_exact(self.refusal.len() as u64), B::size_hint)
    }
}
