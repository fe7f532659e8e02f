//! The layer works with any request and response body: the bodies of axum and http-body-util, and custom bodies.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Empty, Full};
use tokio::sync::mpsc;
use tollgate::{MINUTE, Policy, Quota, RateLimitLayer, key, middleware::RefusalBody};
use tower::{Layer, ServiceExt, service_fn};

fn one() -> RateLimitLayer {
    RateLimitLayer::new(Policy::new("one", Quota::token_bucket(1, MINUTE)), key::global())
}

#[tokio::test]
async fn any_response_body_is_supported() {
    passes_and_is_refused(|| axum::body::Body::from("hello"), "hello").await;
    passes_and_is_refused(|| Full::new(Bytes::from("hello")), "hello").await;
    passes_and_is_refused(|| Full::new(Bytes::from("hello")).boxed(), "hello").await;
    passes_and_is_refused(|| Full::new(Bytes::from("hello")).boxed_unsync(), "hello").await;
    passes_and_is_refused(Empty::<Bytes>::new, "").await;
    passes_and_is_refused(|| String::from("hello"), "hello").await;
    // The chunks of the body may have any type that implements `From<Bytes>`.
    passes_and_is_refused(|| Full::new(Chunk(Bytes::from("hello"))), "hello").await;
    passes_and_is_refused(|| Frames::from([data("hel"), data("lo")]), "hello").await;
    // If the inner service is itself rate-limited, its response bodies have this type.
    passes_and_is_refused(RefusalBody::<Full<Bytes>>::default, "").await;
}

/// Checks that the first request gets `body`, and that the second gets a refusal with an exact size hint.
async fn passes_and_is_refused<B>(body: impl Fn() -> B + Clone, text: &str)
where
    B: Body,
    B::Data: From<Bytes>,
    B::Error: fmt::Debug,
{
    let inner = service_fn(move |_: Request<()>| {
        let body = body();
        async move { Ok::<_, Infallible>(Response::new(body)) }
    });
    let service = one().layer(inner);

    let Ok(response) = service.clone().oneshot(Request::new(())).await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), text);

    let Ok(response) = service.oneshot(Request::new(())).await;
    assert_eq!(response.status(), 429);
    let body = response.into_body();
    let (size, ended) = (body.size_hint().exact(), body.is_end_stream());
    let bytes = body.collect().await.unwrap().to_bytes();
    assert_eq!((size, ended), (Some(bytes.len() as u64), false));
    assert!(bytes.starts_with(b"{\"type\":") && bytes.ends_with(b"}"));
}

#[tokio::test]
async fn any_request_body_is_supported_and_refusals_do_not_read_it() {
    /// A request body that implements neither `Body` nor `Clone`, so only the inner service can use it.
    struct Untouched(&'static str);

    let inner = service_fn(|request: Request<Untouched>| async move {
        Ok::<_, Infallible>(Response::new(String::from(request.into_body().0)))
    });
    let service = one().layer(inner);
    let Ok(response) = service.clone().oneshot(Request::new(Untouched("hello"))).await;
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "hello");
    let Ok(response) = service.oneshot(Request::new(Untouched("hello"))).await;
    assert_eq!(response.status(), 429);
}

#[tokio::test]
async fn frames_trailers_and_errors_are_passed_through() {
    let mut trailers = HeaderMap::new();
    trailers.insert("x-checksum", "7".parse().unwrap());
    let sent = trailers.clone();
    let inner = service_fn(move |_: Request<()>| {
        let trailers = Ok(Frame::trailers(sent.clone()));
        let frames = Frames::from([data("hel"), data("lo"), trailers, Err("broken")]);
        async move { Ok::<_, Infallible>(Response::new(frames)) }
    });
    let Ok(response) = one().layer(inner).oneshot(Request::new(())).await;
    let mut body = response.into_body();

    assert_eq!((body.size_hint().lower(), body.size_hint().upper()), (5, Some(5)));
    for chunk in ["hel", "lo"] {
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap().0, chunk);
    }
    assert_eq!(body.frame().await.unwrap().unwrap().into_trailers().unwrap(), trailers);
    assert!(!body.is_end_stream());
    assert_eq!(body.frame().await.unwrap().unwrap_err(), "broken");
    assert!(body.is_end_stream() && body.frame().await.is_none());
}

#[tokio::test]
async fn a_stream_is_forwarded_chunk_by_chunk() {
    let (sender, receiver) = mpsc::channel(1);
    let inner = tower::ServiceBuilder::new().layer(one()).service_fn({
        let receiver = std::sync::Arc::new(std::sync::Mutex::new(Some(receiver)));
        move |_: Request<()>| {
            let body = Stream(receiver.lock().unwrap().take().unwrap());
            async move { Ok::<_, Infallible>(Response::new(body)) }
        }
    });
    let Ok(response) = inner.oneshot(Request::new(())).await;
    let mut body = response.into_body();
    // Each chunk arrives before the next one is sent.
    for chunk in ["one", "two", "three"] {
        sender.send(Bytes::from(chunk)).await.unwrap();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), chunk);
    }
    drop(sender);
    assert!(body.frame().await.is_none());
}

#[derive(Debug)]
struct Chunk(Bytes);

impl From<Bytes> for Chunk {
    fn from(bytes: Bytes) -> Chunk {
        Chunk(bytes)
    }
}

impl Buf for Chunk {
    fn remaining(&self) -> usize {
        self.0.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.0.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.0.advance(count);
    }
}

struct Frames(VecDeque<Result<Frame<Chunk>, &'static str>>);

impl<const N: usize> From<[Result<Frame<Chunk>, &'static str>; N]> for Frames {
    fn from(frames: [Result<Frame<Chunk>, &'static str>; N]) -> Frames {
        Frames(frames.into())
    }
}

fn data(text: &'static str) -> Result<Frame<Chunk>, &'static str> {
    Ok(Frame::data(Chunk(Bytes::from(text))))
}

impl Body for Frames {
    type Data = Chunk;
    type Error = &'static str;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Chunk>, &'static str>>> {
        Poll::Ready(self.0.pop_front())
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        let chunks = self.0.iter().flatten().filter_map(Frame::data_ref);
        SizeHint::with_exact(chunks.map(|chunk| chunk.remaining() as u64).sum())
    }
}

/// A body whose chunks come from a channel.
struct Stream(mpsc::Receiver<Bytes>);

impl Body for Stream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|chunk| chunk.map(|bytes| Ok(Frame::data(bytes))))
    }
}
