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
        #[pin]
        kind: Kind<B>,
    }
}

pin_project! {
    #[project = KindProj]
    #[derive(Debug)]
    enum Kind<B> {
        Inner { #[pin] body: B },
        // `None` once it was sent.
        Refusal { bytes: Option<Bytes> },
    }
}

impl<B> RefusalBody<B> {
    pub(super) fn inner(body: B) -> RefusalBody<B> {
        RefusalBody { kind: Kind::Inner { body } }
    }

    pub(super) fn refusal(bytes: Bytes) -> RefusalBody<B> {
        // No frame for nothing: of HTTP/2, the headers end the stream then, as gRPC wants it.
        RefusalBody { kind: Kind::Refusal { bytes: (!bytes.is_empty()).then_some(bytes) } }
    }
}

impl<B> RefusalBody<B> {
    /// Whether the limiter answered instead of the inner service: around an HTTP client, this tells its 429 from the
    /// server's.
    pub fn is_refusal(&self) -> bool {
        matches!(self.kind, Kind::Refusal { .. })
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
        match self.project().kind.project() {
            KindProj::Inner { body } => body.poll_frame(context),
            KindProj::Refusal { bytes } => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes.into())))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Inner { body } => body.is_end_stream(),
            Kind::Refusal { bytes } => bytes.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Inner { body } => body.size_hint(),
            Kind::Refusal { bytes } => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
        }
    }
}
