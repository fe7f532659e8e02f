//! A test server and a minimal HTTP client.

use std::net::SocketAddr;

use axum::Router;
use axum::extract::Request;
use axum::routing::any;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tollgate::{MemoryBackend, RateLimiter, clock::ManualClock};
use tower::ServiceExt;

use super::answer::Answer;

pub(crate) fn limiter() -> (RateLimiter, ManualClock) {
    let clock = ManualClock::new();
    (RateLimiter::new(MemoryBackend::builder().clock(clock.clone()).build()), clock)
}

pub(crate) fn hello() -> Router {
    Router::new().route("/", any(|| async { "hello" }))
}

/// Serves `app` until the test's runtime shuts down.
pub(crate) async fn serve(app: Router) -> Client {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = Client(listener.local_addr().unwrap());
    tokio::spawn(async move {
        axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await.unwrap();
    });
    client
}

/// An HTTP/1.1 client that uses one connection per request.
#[derive(Clone, Copy)]
pub(crate) struct Client(pub(crate) SocketAddr);

impl Client {
    pub(crate) async fn get(&self) -> Answer {
        self.send("GET", &[]).await
    }

    pub(crate) async fn get_as(&self, user: &str) -> Answer {
        self.send("GET", &[&format!("x-user: {user}")]).await
    }

    /// Sends a request with the given header lines and no body, and reads until the server closes the connection.
    pub(crate) async fn send(&self, method: &str, lines: &[&str]) -> Answer {
        let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        let mut stream = TcpStream::connect(self.0).await.unwrap();
        let head = format!("{method} / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n{lines}\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).await.unwrap();
        Answer::parse(&bytes)
    }
}

/// Calls `app` directly, without a socket.
pub(crate) async fn oneshot(app: &Router, request: Request) -> Answer {
    let Ok(response) = app.clone().oneshot(request).await;
    Answer::read(response).await
}
