//! Scrapes a server under load and checks that the counters match the responses that the clients received.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::{TcpListener, TcpStream};
use tollgate::observe::{Metrics, Tracing, names};
use tollgate::policy::Enforce;
use tollgate::{HOUR, MemoryBackend, Policy, Quota, RateLimitLayer, RateLimiter, key};

mod support;
use support::exporter::{Page, builder};

static LOAD: Policy = Policy::new("load", Quota::token_bucket(150, HOUR));
static SHADOW: Policy = Policy::new("load-shadow", Quota::token_bucket(50, HOUR)).enforce(Enforce::Never);

const CLIENTS: usize = 8;
const REQUESTS: usize = 500;

type MetricsState = (PrometheusHandle, Arc<Metrics>, RateLimiter);

async fn metrics_page(State((prometheus, metrics, limiter)): State<MetricsState>) -> String {
    metrics.sample(&limiter);
    prometheus.render()
}

async fn serve() -> SocketAddr {
    let prometheus = builder().install_recorder().expect("another test has installed a global recorder");
    let metrics = Arc::new(Metrics::new());
    let limiter = RateLimiter::builder(MemoryBackend::new());
    let limiter = limiter.observer(Tracing::new()).observer(Arc::clone(&metrics)).build();
    let layer = |policy| RateLimitLayer::new(policy, key::header("x-client")).limiter(&limiter);
    let app = Router::new()
        .route("/", get(|| async { "hello" }))
        .layer(layer(&LOAD))
        .layer(layer(&SHADOW))
        .route("/metrics", get(metrics_page))
        .with_state((prometheus, metrics, limiter.clone()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    address
}

async fn connect(address: SocketAddr) -> SendRequest<Empty<Bytes>> {
    let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (sender, connection) = handshake(stream).await.unwrap();
    tokio::spawn(connection);
    sender
}

async fn ask(sender: &mut SendRequest<Empty<Bytes>>, path: &str, client: usize) -> (u16, Bytes) {
    let request = Request::builder().uri(path).header("host", "test").header("x-client", client.to_string());
    sender.ready().await.unwrap();
    let response = sender.send_request(request.body(Empty::new()).unwrap()).await.unwrap();
    let status = response.status().as_u16();
    (status, response.into_body().collect().await.unwrap().to_bytes())
}

async fn scrape(sender: &mut SendRequest<Empty<Bytes>>) -> Page {
    let (status, body) = ask(sender, "/metrics", 0).await;
    assert_eq!(status, 200);
    Page::read(std::str::from_utf8(&body).unwrap())
}

fn decided(page: &Page, policy: &str, outcome: &str) -> u64 {
    page.sum(names::DECISIONS, &[("policy", policy), ("outcome", outcome)]).unwrap_or(0.0) as u64
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn counters_match_the_responses_to_all_clients() {
    let address = serve().await;
    let done = Arc::new(AtomicBool::new(false));
    let scraper = tokio::spawn({
        let done = Arc::clone(&done);
        async move {
            let mut sender = connect(address).await;
            let (mut scrapes, mut last) = (0, 0);
            while !done.load(Ordering::Relaxed) {
                let page = scrape(&mut sender).await;
                let count = decided(&page, "load", "allowed") + decided(&page, "load", "denied");
                assert!(count >= last, "a counter decreased from {last} to {count}");
                (scrapes, last) = (scrapes + 1, count);
            }
            scrapes
        }
    });
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            tokio::spawn(async move {
                let mut sender = connect(address).await;
                let (mut allowed, mut denied) = (0u64, 0u64);
                for _ in 0..REQUESTS {
                    match ask(&mut sender, "/", client).await.0 {
                        200 => allowed += 1,
                        429 => denied += 1,
                        other => panic!("{other}"),
                    }
                }
                (allowed, denied)
            })
        })
        .collect();
    let (mut allowed, mut denied) = (0, 0);
    for client in clients {
        let seen = client.await.unwrap();
        allowed += seen.0;
        denied += seen.1;
    }
    done.store(true, Ordering::Relaxed);
    assert!(scraper.await.unwrap() > 1, "expected several scrapes under load");
    assert!(allowed >= 150 * CLIENTS as u64 && denied > 0, "{allowed} {denied}");

    let page = scrape(&mut connect(address).await).await;
    let all = (CLIENTS * REQUESTS) as u64;
    assert_eq!((decided(&page, "load", "allowed"), decided(&page, "load", "denied")), (allowed, denied));
    assert_eq!(allowed + denied, all);
    let shadow = ["allowed", "denied"].map(|outcome| decided(&page, "load-shadow", outcome));
    assert!(shadow[0] >= 50 * CLIENTS as u64 && shadow[1] > 0 && shadow[0] + shadow[1] == all, "{shadow:?}");
    assert_eq!(page.sum(names::DECISIONS, &[("policy", "load-shadow"), ("enforced", "false")]), Some(all as f64));
    for policy in ["load", "load-shadow"] {
        let timed = page.sum(&format!("{}_count", names::DECISION_DURATION), &[("policy", policy)]);
        assert_eq!(timed, None, "the duration of local decisions must not be recorded");
    }
    assert_eq!(page.sum(names::ROWS, &[]), Some(2.0 * CLIENTS as f64));
}
