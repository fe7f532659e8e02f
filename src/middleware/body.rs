//! The response body of a rate-limited service.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

pin_project! {
    /// The body of a [`RateLimit`](super::RateLimit) response: either the inner service's body or a refusal. Implements
    /// [`Body`] if the inner body's `Data` type implements `From<Bytes>`.
    #[derive(Debug)]
    pub struct RefusalBody<B> {
        // This is `None` for a refusal.
        #[pin]
        inner: Option<B>,
        // This is empty once the refusal has been sent.
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

    /// Returns whether this body is a refusal by the limiter, as opposed to a response from the inner service.
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
        // An empty refusal has no data frame, because gRPC requires that the headers of such a response end the stream.
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
