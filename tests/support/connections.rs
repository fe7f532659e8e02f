//! Listeners and clients on loopback.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tollgate::{MemoryBackend, RateLimiter, clock::ManualClock};

pub(crate) fn limiter() -> (RateLimiter, ManualClock) {
    let clock = ManualClock::new();
    (RateLimiter::new(MemoryBackend::builder().clock(clock.clone()).build()), clock)
}

pub(crate) async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Serves `app` over HTTP/1.1 and HTTP/2 until the test's runtime shuts down.
pub(crate) async fn serve(app: Router) -> SocketAddr {
    let (listener, address) = listen().await;
    tokio::spawn(async move {
        axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await.unwrap();
    });
    address
}

/// Opens an HTTP/2 connection with prior knowledge. Clones of the sender share the connection.
pub(crate) async fn http2(address: SocketAddr) -> http2::SendRequest<Full<Bytes>> {
    let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    sender
}

pub(crate) async fn http1(address: SocketAddr) -> http1::SendRequest<Full<Bytes>> {
    let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (sender, connection) = http1::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    sender
}

pub(crate) fn get(address: SocketAddr, path: &str) -> Request<Full<Bytes>> {
    let uri = format!("http://{address}{path}");
    Request::builder().uri(uri).header("host", address.to_string()).body(Full::default()).unwrap()
}

pub(crate) async fn text(response: Response<Incoming>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}
