//! Streamed responses over a socket. A response is charged an estimate and settled at its actual length when it ends.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::routing::get;
use http_body::Frame;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tollgate::{RateLimitLayer, RateLimiter, Receipt};

use super::app::{TOKENS, left, team};
use crate::support::client::{Client, limiter, serve};

const ESTIMATE: u64 = 1000;

/// A body that counts one token per byte and settles the charge when it ends.
struct StreamedBody {
    chunks: mpsc::Receiver<Bytes>,
    tokens: u64,
    receipt: Receipt,
    /// Closes the channel when the body is dropped.
    _dropped: mpsc::Sender<Infallible>,
}

impl http_body::Body for StreamedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(chunk) = ready!(self.chunks.poll_recv(context)) else {
            // The settlement takes effect even if it is not awaited.
            drop(self.receipt.settle(self.tokens));
            return Poll::Ready(None);
        };
        self.tokens += chunk.len() as u64;
        Poll::Ready(Some(Ok(Frame::data(chunk))))
    }
}

/// Starts a server that streams one response. Returns a client, the limiter, a sender of chunks, and a receiver that
/// closes when the body is dropped.
async fn streaming_server() -> (Client, RateLimiter, mpsc::Sender<Bytes>, mpsc::Receiver<Infallible>) {
    let (limiter, _clock) = limiter();
    let (send_chunk, chunks) = mpsc::channel(1);
    let (dropped, body_dropped) = mpsc::channel(1);
    let once = Arc::new(Mutex::new(Some((chunks, dropped))));
    let answer = move |receipt: Receipt| async move {
        let (chunks, dropped) = once.lock().unwrap().take().expect("expected only one response");
        Body::new(StreamedBody { chunks, tokens: 0, receipt, _dropped: dropped })
    };
    let layer = RateLimitLayer::new(TOKENS, team).cost(|_| ESTIMATE).with_receipt().limiter(&limiter);
    let client = serve(Router::new().route("/", get(answer)).layer(layer)).await;
    (client, limiter, send_chunk, body_dropped)
}

#[tokio::test]
async fn a_completed_stream_is_charged_for_its_actual_length() {
    for actual in [1700, 300, 1000, 0] {
        let (client, limiter, send_chunk, _body_dropped) = streaming_server().await;
        let answer = tokio::spawn(async move { client.get().await });
        for sent in 0..actual / 100 {
            send_chunk.send(Bytes::from(vec![b'x'; 100])).await.unwrap();
            // The channel holds one chunk, so the server has received the first chunk by the time the second is sent.
            if sent > 0 {
                assert_eq!(left(&limiter, &TOKENS).await, 10_000 - ESTIMATE);
            }
        }
        drop(send_chunk);
        let answer = answer.await.unwrap();
        assert_eq!((answer.status, answer.limits()[0].1), (200, 10_000 - ESTIMATE));
        assert_eq!(left(&limiter, &TOKENS).await, 10_000 - actual, "{actual}");
    }
}

#[tokio::test]
async fn an_interrupted_stream_is_still_charged_its_estimate() {
    for sent in [0, 200, 1700] {
        let (client, limiter, send_chunk, mut body_dropped) = streaming_server().await;
        let mut stream = TcpStream::connect(client.0).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n").await.unwrap();
        for _ in 0..sent / 100 {
            send_chunk.send(Bytes::from(vec![b'x'; 100])).await.unwrap();
        }
        let mut some = [0; 20];
        stream.read_exact(&mut some).await.unwrap();
        assert!(some.starts_with(b"HTTP/1.1 200"));
        drop(stream);
        let body_dropped = tokio::time::timeout(Duration::from_secs(20), body_dropped.recv()).await;
        assert!(body_dropped.expect("the body was not dropped within 20 seconds").is_none());
        assert_eq!(left(&limiter, &TOKENS).await, 10_000 - ESTIMATE, "after {sent} tokens were sent");
    }
}

#[tokio::test]
async fn the_actual_costs_of_responses_affect_later_requests() {
    // Ten estimates of 1,000 tokens would fit. Nine responses cost 1,100 tokens each, so the tenth request is refused.
    let (limiter, _clock) = limiter();
    let layer = RateLimitLayer::new(TOKENS, team).cost(|_| ESTIMATE).with_receipt().limiter(&limiter);
    let handler = async |receipt: Receipt| {
        receipt.settle(1100).await.unwrap();
        assert!(receipt.is_settled());
    };
    let client = serve(Router::new().route("/", get(handler)).layer(layer)).await;
    for _ in 0..9 {
        assert_eq!(client.get().await.status, 200);
    }
    let refused = client.get().await;
    // The request is 900 tokens short, and each token takes 0.36 s to refill.
    assert_eq!((refused.status, refused.retry_after()), (429, Some(324)));
    assert_eq!(left(&limiter, &TOKENS).await, 100);
}
