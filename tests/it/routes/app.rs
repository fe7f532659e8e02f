//! Limiters, policies and clients that the tests share.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::request::Parts;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tollgate::{MemoryBackend, Policy, Quota, RateLimiter, clock::ManualClock};
use tower::ServiceExt;

use crate::support::answer::Answer;

pub(crate) fn limiter() -> (RateLimiter, ManualClock) {
    let clock = ManualClock::new();
    (RateLimiter::new(MemoryBackend::builder().clock(clock.clone()).build()), clock)
}

pub(crate) const fn policy(name: &'static str, rate: u64) -> Policy {
    Policy::new(name, Quota::token_bucket(rate, tollgate::MINUTE))
}

/// Returns the user named in the `x-user` header, which stands in for an extension inserted by an authentication layer.
pub(crate) fn user(req: &Parts) -> Option<String> {
    header(req, "x-user")
}

pub(crate) fn header(req: &Parts, name: &str) -> Option<String> {
    req.headers.get(name).map(|value| value.to_str().unwrap().to_owned())
}

/// Sends a request without a body directly to the router. `line` is a method and a target, as in `"GET /todos"`.
pub(crate) async fn call(app: &Router, line: &str, lines: &[&str]) -> Answer {
    let (method, target) = line.split_once(' ').unwrap();
    let mut request = Request::builder().method(method).uri(target);
    for line in lines {
        let (name, value) = line.split_once(": ").unwrap();
        request = request.header(name, value);
    }
    send(app, request.body(Body::empty()).unwrap()).await
}

pub(crate) async fn send(app: &Router, request: Request) -> Answer {
    let Ok(response) = app.clone().oneshot(request).await;
    Answer::read(response).await
}

/// Returns the policy's name, limit and remaining tokens from the headers of a response. Panics unless the headers
/// describe exactly one policy.
pub(crate) fn quota_headers(answer: &Answer) -> (String, u64, u64) {
    let (policies, limits) = (answer.policies(), answer.limits());
    assert_eq!((policies.len(), limits.len(), &policies[0].0), (1, 1, &limits[0].0), "{policies:?} {limits:?}");
    (policies[0].0.clone(), policies[0].1, limits[0].1)
}

/// Serves `app` on a local socket until the test's runtime shuts down.
pub(crate) async fn serve(app: Router) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = Server(listener.local_addr().unwrap());
    tokio::spawn(async move {
        axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await.unwrap();
    });
    server
}

/// A server that the tests call over HTTP/1.1, with one connection per request.
pub(crate) struct Server(SocketAddr);

impl Server {
    pub(crate) async fn call(&self, line: &str, lines: &[&str]) -> Answer {
        let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        let mut stream = TcpStream::connect(self.0).await.unwrap();
        let head = format!("{line} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n{lines}\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).await.unwrap();
        Answer::parse(&bytes)
    }
}
