//! Answers that are streamed: charged by an estimate, and told their true length when they end, over a socket.

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

use crate::app::{TOKENS, left, team};
use crate::client::{Client, limiter, serve};

const ESTIMATE: u64 = 1000;

/// A body of a token a byte, which settles when it ends.
struct Answer {
    chunks: mpsc::Receiver<Bytes>,
    tokens: u64,
    usage: Receipt,
    /// Says that it was dropped.
    _dropped: mpsc::Sender<Infallible>,
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(chunk) = ready!(self.chunks.poll_recv(context)) else {
            // It is settled by the call; nobody has to wait for it.
            drop(self.usage.settle(self.tokens));
            return Poll::Ready(None);
        };
        self.tokens += chunk.len() as u64;
        Poll::Ready(Some(Ok(Frame::data(chunk))))
    }
}

/// A server with one answer, the limiter in front of it, whoever speaks the answer, and who hears when its body is
/// gone.
async fn answering() -> (Client, RateLimiter, mpsc::Sender<Bytes>, mpsc::Receiver<Infallible>) {
    let (limiter, _clock) = limiter();
    let (speak, chunks) = mpsc::channel(1);
    let (dropped, gone) = mpsc::channel(1);
    let once = Arc::new(Mutex::new(Some((chunks, dropped))));
    let answer = move |usage: Receipt| async move {
        let (chunks, dropped) = once.lock().unwrap().take().expect("one request");
        Body::new(Answer { chunks, tokens: 0, usage, _dropped: dropped })
    };
    let layer = RateLimitLayer::new(TOKENS, team).cost(|_| ESTIMATE).with_receipt().limiter(&limiter);
    let client = serve(Router::new().route("/", get(answer)).layer(layer)).await;
    (client, limiter, speak, gone)
}

#[tokio::test]
async fn a_stream_is_charged_for_its_true_length() {
    for actual in [1700, 300, 1000, 0] {
        let (client, limiter, speak, _gone) = answering().await;
        let answer = tokio::spawn(async move { client.get().await });
        for sent in 0..actual / 100 {
            speak.send(Bytes::from(vec![b'x'; 100])).await.unwrap();
            // There is room for one, so the first was received when the second is sent. While it runs, the estimate
            // stands.
            if sent > 0 {
                assert_eq!(left(&limiter, &TOKENS).await, 10_000 - ESTIMATE);
            }
        }
        drop(speak);
        let answer = answer.await.unwrap();
        assert_eq!((answer.status, answer.limits()[0].1), (200, 10_000 - ESTIMATE));
        assert_eq!(left(&limiter, &TOKENS).await, 10_000 - actual, "{actual}");
    }
}

#[tokio::test]
async fn a_stream_that_is_cut_keeps_the_estimate() {
    for spoken in [0, 200, 1700] {
        let (client, limiter, speak, mut gone) = answering().await;
        let mut stream = TcpStream::connect(client.0).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n").await.unwrap();
        for _ in 0..spoken / 100 {
            speak.send(Bytes::from(vec![b'x'; 100])).await.unwrap();
        }
        let mut some = [0; 20];
        stream.read_exact(&mut some).await.unwrap();
        assert!(some.starts_with(b"HTTP/1.1 200"));
        drop(stream);
        // The server finds out in its own time.
        let gone = tokio::time::timeout(Duration::from_secs(20), gone.recv()).await;
        assert!(gone.expect("the body is dropped").is_none());
        assert_eq!(left(&limiter, &TOKENS).await, 10_000 - ESTIMATE, "after {spoken}");
    }
}

#[tokio::test]
async fn what_a_stream_really_took_decides_who_comes_next() {
    // Ten estimates fit; nine true lengths of 1,100 do, and a tenth estimate does not.
    let (limiter, _clock) = limiter();
    let layer = RateLimitLayer::new(TOKENS, team).cost(|_| ESTIMATE).with_receipt().limiter(&limiter);
    let handler = async |usage: Receipt| {
        usage.settle(1100).await.unwrap();
        assert!(usage.is_settled());
    };
    let client = serve(Router::new().route("/", get(handler)).layer(layer)).await;
    for _ in 0..9 {
        assert_eq!(client.get().await.status, 200);
    }
    let refused = client.get().await;
    // 900 are missing, at 0.36 s each.
    assert_eq!((refused.status, refused.retry_after()), (429, Some(324)));
    assert_eq!(left(&limiter, &TOKENS).await, 100);
}
