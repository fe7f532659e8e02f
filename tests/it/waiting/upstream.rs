//! Layers that wrap a real HTTP client, tested in real time. In most tests, the servers enforce a limit. In one, a
//! server responds with 429 once.

use std::future::IntoFuture;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use bytes::Bytes;
use http::Request;
use http_body_util::Empty;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::task::JoinSet;
use tollgate::{MINUTE, OnResponse, Policy, Quota, RateLimitLayer, SECOND, key};
use tower::{Layer, ServiceExt};

use super::queue::ms;

async fn serve(app: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(axum::serve(listener, app).into_future());
    url
}

/// Sends `calls` requests concurrently through a client that is wrapped in the layer. Returns how many requests got a
/// 429 from a server, and how many got one from the layer.
async fn send_all(layer: &RateLimitLayer, urls: &[String], calls: usize) -> (u64, u64) {
    let client = layer.layer(Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>());
    let mut answers = JoinSet::new();
    for url in urls.iter().cycle().take(calls) {
        answers.spawn(client.clone().oneshot(Request::get(url).body(Empty::new()).unwrap()));
    }
    let (mut by_server, mut by_layer) = (0, 0);
    for response in answers.join_all().await {
        let response = response.unwrap();
        let refused = u64::from(response.status() == StatusCode::TOO_MANY_REQUESTS);
        *if response.body().is_refusal() { &mut by_layer } else { &mut by_server } += refused;
    }
    (by_server, by_layer)
}

/// Starts servers that each allow 20 requests per second and bursts of five. Their token buckets are implemented
/// without this crate.
async fn start_limited_servers(servers: usize) -> Vec<String> {
    const EACH: Duration = Duration::from_millis(50);
    let mut urls = Vec::new();
    for _ in 0..servers {
        let full_at: Arc<Mutex<Option<Instant>>> = Arc::default();
        let handler = move || {
            let (now, mut full_at) = (Instant::now(), full_at.lock().unwrap());
            let next = full_at.map_or(now, |full_at| full_at.max(now)) + EACH;
            let fits = next <= now + 5 * EACH;
            if fits {
                *full_at = Some(next);
            }
            std::future::ready(if fits { StatusCode::OK } else { StatusCode::TOO_MANY_REQUESTS })
        };
        urls.push(serve(Router::new().route("/", get(handler))).await);
    }
    urls
}

/// Sends 1,000 requests concurrently to `servers` limited servers. Returns how many requests the servers refused, and
/// how many the layer refused.
async fn refusals(quota: Quota, servers: usize) -> (u64, u64) {
    let policy = Policy::try_new("remote", quota.max_reserved(1000)).unwrap();
    let layer = RateLimitLayer::new(policy, key::host()).wait_up_to(2 * MINUTE);
    send_all(&layer, &start_limited_servers(servers).await, 1000).await
}

/// A quota below the servers' limit, as `docs::outgoing` recommends.
const QUOTA_BELOW_LIMIT: Quota = Quota::token_bucket(19, SECOND).capacity(4);

/// Asserts that `is_expected` is true for the result of at least one of three runs. A run can fail if the machine
/// stalls for more than 50 ms, because several requests are then sent together.
async fn assert_in_one_of_three_runs(quota: Quota, servers: usize, is_expected: fn((u64, u64)) -> bool) {
    let mut seen = Vec::new();
    while seen.len() < 3 {
        let refused = refusals(quota, servers).await;
        if is_expected(refused) {
            return;
        }
        seen.push(refused);
        eprintln!("unexpected refusals (by the servers, by the layer): {refused:?}");
    }
    panic!("{quota:?}: unexpected refusals (by the servers, by the layer) in all runs: {seen:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_server_refuses_requests_sent_at_a_rate_below_its_limit() {
    let began = Instant::now();
    assert_in_one_of_three_runs(QUOTA_BELOW_LIMIT, 10, |refused| refused == (0, 0)).await;
    assert!(began.elapsed() >= ms(5000), "expected 96 waits of 52 ms after the burst, took {:?}", began.elapsed());
    // At exactly the servers' limit, about one request per server arrives early.
    assert_in_one_of_three_runs(Quota::token_bucket(20, SECOND).capacity(5), 20, |(by_server, by_layer)| {
        by_server > 0 && by_layer == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes 53 seconds"]
async fn a_single_server_refuses_none_of_1000_requests_in_53_seconds() {
    assert_in_one_of_three_runs(QUOTA_BELOW_LIMIT, 1, |refused| refused == (0, 0)).await;
}

/// A server refuses its tenth request. For the next second, it receives only requests that were sent before the 429
/// arrived.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_429_pauses_requests_to_the_server_until_retry_after_has_passed() {
    const RATE: u64 = 100;
    let (count, refused_at) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(None)));
    let arrivals: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let (recorder, refused) = (Arc::clone(&arrivals), Arc::clone(&refused_at));
    let handler = move || {
        let now = Instant::now();
        recorder.lock().unwrap().push(now);
        let refuses = count.fetch_add(1, Ordering::Relaxed) == 9;
        if refuses {
            *refused.lock().unwrap() = Some(now);
        }
        let status = if refuses { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::OK };
        std::future::ready((status, [("retry-after", "1")]))
    };
    let url = serve(Router::new().route("/", get(handler))).await;
    let policy = Policy::new("remote", Quota::token_bucket(RATE, SECOND).capacity(1).max_reserved(100));
    let layer =
        RateLimitLayer::new(policy, key::host()).wait_up_to(MINUTE).on_response(OnResponse::pause_on_retry_after);
    let other_arrivals: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let recorder = Arc::clone(&other_arrivals);
    let other = move || {
        recorder.lock().unwrap().push(Instant::now());
        std::future::ready(())
    };
    let other = serve(Router::new().route("/", get(other))).await;

    assert_eq!(send_all(&layer, &[url, other], 120).await, (1, 0));
    let refused_at = refused_at.lock().unwrap().expect("no request was refused");
    let (arrivals, others) = (arrivals.lock().unwrap(), other_arrivals.lock().unwrap());
    assert_eq!((arrivals.len(), others.len()), (60, 60));
    let within = |all: &[Instant]| all.iter().filter(|at| **at > refused_at && **at < refused_at + SECOND).count();
    // Requests are sent 10 ms apart, so up to three of them could have been sent before the 429 arrived.
    assert!(within(&arrivals) <= 3, "{} of {:?} requests arrived during the pause", within(&arrivals), arrivals.len());
    assert!(within(&others) >= 40, "only {} requests reached the other server", within(&others));
}
