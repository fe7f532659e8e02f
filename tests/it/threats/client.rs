//! Helpers that send requests as an attacker would and read the responses.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::extract::connect_info::ConnectInfo;
use axum::http::header::{HeaderMap, HeaderName, HeaderValue};
use axum::http::request::Parts;
use axum::routing::any;
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};
use tollgate::{MINUTE, MemoryBackend, Policy, Quota, RateLimiter, clock::ManualClock};
use tower::ServiceExt;

/// A policy that allows one request per minute. If a second request is admitted, it has a different key or has bypassed
/// the limit.
pub(crate) const ONE: Policy = Policy::new("one", Quota::token_bucket(1, MINUTE));

/// The client address that the honest proxies in these tests report.
pub(crate) const CLIENT: &str = "203.0.113.9";

/// Creates a limiter with a manual clock. Also returns the backend, so that a test can count rows, and the clock.
pub(crate) fn limiter() -> (RateLimiter, Arc<MemoryBackend>, ManualClock) {
    let clock = ManualClock::new();
    let backend = Arc::new(MemoryBackend::builder().clock(clock.clone()).build());
    (RateLimiter::new(Arc::clone(&backend)), backend, clock)
}

pub(crate) fn hello() -> Router {
    Router::new().route("/", any(|| async { "hello" }))
}

/// Builds a request sent by `peer`, with the given header lines in the given order.
pub(crate) fn request<N, V>(peer: &str, lines: &[(N, V)]) -> Request
where
    N: AsRef<[u8]>,
    V: AsRef<[u8]>,
{
    let mut request = Request::new(Body::empty());
    for (name, value) in lines {
        let name = HeaderName::from_bytes(name.as_ref()).expect("expected a header name");
        request.headers_mut().append(name, HeaderValue::from_bytes(value.as_ref()).expect("expected a header value"));
    }
    request.extensions_mut().insert(ConnectInfo(SocketAddr::new(peer.parse().expect("expected an address"), 4711)));
    request
}

/// Like `request`, but returns the `Parts` that an extractor receives.
pub(crate) fn parts<N, V>(peer: &str, lines: &[(N, V)]) -> Parts
where
    N: AsRef<[u8]>,
    V: AsRef<[u8]>,
{
    request(peer, lines).into_parts().0
}

pub(crate) async fn send(app: &Router, request: Request) -> Answer {
    let Ok(response) = app.clone().oneshot(request).await;
    Answer::read(response).await
}

pub(crate) async fn get(app: &Router, peer: &str, path: &str) -> Answer {
    let mut request = request::<&str, &str>(peer, &[]);
    *request.uri_mut() = path.parse().expect("expected a URI");
    send(app, request).await
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) async fn read(response: axum::response::Response) -> Answer {
        let (parts, body) = response.into_parts();
        let body = body.collect().await.expect("expected a body").to_bytes().to_vec();
        Answer { status: parts.status.as_u16(), headers: parts.headers, body }
    }

    /// Returns whether the headers or the body contain the given bytes.
    pub(crate) fn shows(&self, raw: &[u8]) -> bool {
        let contains = |bytes: &[u8]| bytes.windows(raw.len()).any(|window| window == raw);
        let mut headers = self.headers.iter();
        headers.any(|(name, value)| contains(name.as_ref()) || contains(value.as_bytes())) || contains(&self.body)
    }

    pub(crate) fn retry_after(&self) -> u64 {
        self.headers["retry-after"].to_str().expect("expected text").parse().expect("expected seconds")
    }
}

/// Serves `app` on `listener` until the test's runtime shuts down. Returns the port.
pub(crate) fn serve(app: Router, listener: TcpListener) -> u16 {
    let port = listener.local_addr().expect("expected an address").port();
    tokio::spawn(async move {
        axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>())
            .await
            .expect("the server failed");
    });
    port
}

pub(crate) async fn serve_v4(app: Router) -> u16 {
    serve(app, TcpListener::bind("127.0.0.1:0").await.expect("expected a free port"))
}

/// Connects to `port` from the loopback address `from` and sends a request with the given lines verbatim. Returns the
/// status and the body.
pub(crate) async fn raw(port: u16, from: Ipv4Addr, line: &str, lines: &[String]) -> (u16, String) {
    let socket = TcpSocket::new_v4().expect("expected a socket");
    socket.bind(SocketAddr::from((from, 0))).expect("expected a loopback address");
    let mut stream =
        socket.connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await.expect("expected a connection");
    let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    let head = format!("{line} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n{lines}\r\n");
    stream.write_all(head.as_bytes()).await.expect("failed to send the request");
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.expect("expected a response");
    let text = String::from_utf8(bytes).expect("expected text");
    let (head, body) = text.split_once("\r\n\r\n").expect("expected the head of a response");
    let status = head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)).expect("expected a status line");
    (status.parse().expect("expected a status"), body.to_owned())
}
