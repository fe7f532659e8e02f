//! Layers that wrap HTTP clients and limit the requests to a remote server.

use std::future::IntoFuture;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tollgate::{MINUTE, Policy, Quota, RateLimitLayer, SECOND, key};
use tower::{Layer, ServiceExt};

use super::queue::ms;

type Arrivals = Arc<Mutex<Vec<Instant>>>;

/// Starts a server that records arrivals at `/` and responds with 429 at `/busy`. Returns the arrivals and the URL.
async fn serve() -> (Arrivals, String) {
    let arrivals = Arrivals::default();
    let recorder = Arc::clone(&arrivals);
    let record = move || {
        recorder.lock().unwrap().push(Instant::now());
        std::future::ready("hello")
    };
    let app = Router::new().route("/", get(record)).route("/busy", get(|| async { StatusCode::TOO_MANY_REQUESTS }));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(axum::serve(listener, app).into_future());
    (arrivals, base)
}

fn to(uri: String) -> Request<Empty<Bytes>> {
    Request::builder().uri(uri).body(Empty::new()).unwrap()
}

/// This test runs in real time, because it uses sockets.
#[tokio::test]
async fn a_client_layer_sends_requests_at_the_configured_rate() {
    const REMOTE: Policy = Policy::new("remote", Quota::token_bucket(20, SECOND).capacity(1).max_reserved(50));
    let (arrivals, base) = serve().await;
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let client = RateLimitLayer::new(REMOTE, key::global()).wait_up_to(MINUTE).layer(client);
    let begin = Instant::now();
    let calls: Vec<_> = (0..10).map(|_| tokio::spawn(client.clone().oneshot(to(format!("{base}/"))))).collect();
    for call in calls {
        let response = call.await.unwrap().unwrap();
        assert_eq!((response.status(), response.body().is_refusal()), (StatusCode::OK, false));
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "hello");
    }
    let mut arrivals = arrivals.lock().unwrap().clone();
    arrivals.sort();
    assert_eq!(arrivals.len(), 10);
    for (index, arrival) in (0..).zip(&arrivals) {
        let after = arrival.duration_since(begin);
        assert!(after + ms(2) >= ms(50 * index), "request {index} arrived after {after:?}");
    }
}

#[tokio::test]
async fn is_refusal_is_true_for_a_429_from_the_layer_but_not_from_the_server() {
    const THREE: Policy = Policy::new("three", Quota::token_bucket(3, MINUTE).max_reserved(3));
    let (arrivals, base) = serve().await;
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let client = RateLimitLayer::new(THREE, key::global()).wait_up_to(ms(1)).layer(client);
    for (path, status, by_layer) in [("/", 200, false), ("/busy", 429, false), ("/", 200, false), ("/", 429, true)] {
        let response = client.clone().oneshot(to(format!("{base}{path}"))).await.unwrap();
        assert_eq!((response.status().as_u16(), response.body().is_refusal()), (status, by_layer), "{path}");
    }
    assert_eq!(arrivals.lock().unwrap().len(), 2);
}
