//! Bursts of requests over different kinds of connections. The number of admitted requests must equal the limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tollgate::{MINUTE, Policy, Quota, RateLimitLayer, key};

use crate::support::connections::{self, http1, http2, limiter, serve, text};

const LIMIT: usize = 37;
const REQUESTS: usize = 200;
const POLICY: Policy = Policy::new("burst", Quota::token_bucket(LIMIT as u64, MINUTE));

/// Creates an app whose handler counts its calls and yields so that requests overlap.
fn app() -> (Router, Arc<AtomicUsize>) {
    let reached = Arc::new(AtomicUsize::new(0));
    let handler = {
        let reached = Arc::clone(&reached);
        move || async move {
            reached.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            "hello"
        }
    };
    // The clock does not advance, so no tokens are refilled.
    let layer = RateLimitLayer::new(POLICY, key::client_ip()).limiter(&limiter().0);
    (Router::new().route("/", get(handler)).layer(layer), reached)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_on_one_http_2_connection_admits_exactly_the_limit() {
    let (app, reached) = app();
    let address = serve(app).await;
    let sender = http2(address).await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..REQUESTS {
        let mut sender = sender.clone();
        tasks.spawn(async move {
            sender.ready().await.unwrap();
            let response = sender.send_request(connections::get(address, "/")).await.unwrap();
            let status = response.status().as_u16();
            let left = response.headers()["ratelimit"].to_str().unwrap().to_owned();
            let body = text(response).await;
            assert_eq!(body == "hello", status == 200, "{body}");
            (status, left)
        });
    }
    let answers = tasks.join_all().await;
    let mut passed: Vec<_> = answers.iter().filter(|(status, _)| *status == 200).map(|(_, left)| left).collect();
    assert_eq!((passed.len(), reached.load(Ordering::Relaxed)), (LIMIT, LIMIT));
    assert_eq!(answers.iter().filter(|(status, _)| *status == 429).count(), REQUESTS - LIMIT);
    // Each allowed response reports a different number of remaining tokens.
    passed.sort_unstable();
    passed.dedup();
    assert_eq!(passed.len(), LIMIT);
    let mut other = http2(address).await;
    assert_eq!(other.send_request(connections::get(address, "/")).await.unwrap().status(), 429);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pipelined_burst_on_one_http_1_connection_admits_exactly_the_limit() {
    let (app, reached) = app();
    let mut stream = TcpStream::connect(serve(app).await).await.unwrap();
    let one = "GET / HTTP/1.1\r\nhost: test\r\n\r\n".repeat(REQUESTS - 1);
    let last = "GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n";
    stream.write_all(format!("{one}{last}").as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let statuses: Vec<_> = text.match_indices("HTTP/1.1 ").map(|(at, _)| &text[at + 9..at + 12]).collect();
    let expected: Vec<_> = (0..REQUESTS).map(|i| if i < LIMIT { "200" } else { "429" }).collect();
    assert_eq!(statuses, expected);
    assert_eq!(reached.load(Ordering::Relaxed), LIMIT);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_on_http_1_and_http_2_connections_admits_exactly_the_limit() {
    let (app, reached) = app();
    let address = serve(app).await;
    let mut tasks = tokio::task::JoinSet::new();
    for i in 0..20 {
        tasks.spawn(async move {
            let mut passed = 0;
            if i % 2 == 0 {
                let mut sender = http1(address).await;
                for _ in 0..REQUESTS / 20 {
                    sender.ready().await.unwrap();
                    let response = sender.send_request(connections::get(address, "/")).await.unwrap();
                    passed += usize::from(response.status() == 200);
                    text(response).await;
                }
            } else {
                let mut sender = http2(address).await;
                for _ in 0..REQUESTS / 20 {
                    let response = sender.send_request(connections::get(address, "/")).await.unwrap();
                    passed += usize::from(response.status() == 200);
                }
            }
            passed
        });
    }
    let passed: usize = tasks.join_all().await.into_iter().sum();
    assert_eq!((passed, reached.load(Ordering::Relaxed)), (LIMIT, LIMIT));
}
