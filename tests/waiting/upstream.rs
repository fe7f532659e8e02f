//! Around a real HTTP client, in real time: a server that enforces its limit, and one that answers 429 once.

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

use crate::queue::ms;

/// Serves an application; where it is.
async fn serve(app: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(axum::serve(listener, app).into_future());
    url
}

/// Sends all requests at once through a layer around a client: how many were answered with 429 by the server, and how many
/// by the layer.
async fn send_all(layer: &RateLimitLayer, urls: &[String], calls: usize) -> (u64, u64) {
    let client = layer.layer(Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>());
    let mut answers = JoinSet::new();
    for url in urls.iter().cycle().take(calls) {
        answers.spawn(client.clone().oneshot(Request::get(url).body(Empty::new()).unwrap()));
    }
    let (mut theirs, mut own) = (0, 0);
    for response in answers.join_all().await {
        let response = response.unwrap();
        let refused = u64::from(response.status() == StatusCode::TOO_MANY_REQUESTS);
        *if response.body().is_refusal() { &mut own } else { &mut theirs } += refused;
    }
    (theirs, own)
}

/// Each of the servers allows 20 requests a second and bursts of five, counted by another implementation than ours: the
/// instant at which everything is paid back.
async fn strict(servers: usize) -> Vec<String> {
    const EACH: Duration = Duration::from_millis(50);
    let mut urls = Vec::new();
    for _ in 0..servers {
        let paid: Arc<Mutex<Option<Instant>>> = Arc::default();
        let handler = move || {
            let (now, mut paid) = (Instant::now(), paid.lock().unwrap());
            let next = paid.map_or(now, |paid| paid.max(now)) + EACH;
            let fits = next <= now + 5 * EACH;
            if fits {
                *paid = Some(next);
            }
            std::future::ready(if fits { StatusCode::OK } else { StatusCode::TOO_MANY_REQUESTS })
        };
        urls.push(serve(Router::new().route("/", get(handler))).await);
    }
    urls
}

/// The refusals of 1,000 requests that are sent at once to so many of these servers.
async fn refusals(quota: Quota, servers: usize) -> (u64, u64) {
    let theirs = Policy::try_new("theirs", quota.max_reserved(1000)).unwrap();
    let layer = RateLimitLayer::new(theirs, key::host()).wait_up_to(2 * MINUTE);
    send_all(&layer, &strict(servers).await, 1000).await
}

/// Below the servers' numbers, as `docs::outgoing` finds it.
const BELOW: Quota = Quota::token_bucket(19, SECOND).capacity(4);

/// Asserts it of one of three runs: a machine that stands still for longer than a token, 50 ms, sends requests together.
async fn in_one_of_three(quota: Quota, servers: usize, is_so: fn((u64, u64)) -> bool) {
    let mut seen = Vec::new();
    while seen.len() < 3 {
        let refused = refusals(quota, servers).await;
        if is_so(refused) {
            return;
        }
        seen.push(refused);
        eprintln!("{refused:?} were refused; once more");
    }
    panic!("{quota:?}: by the server and by the layer were refused {seen:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn point_4_with_19_a_second_and_bursts_of_4_no_server_of_20_and_5_refuses_one_of_1000_requests() {
    let began = Instant::now();
    in_one_of_three(BELOW, 10, |refused| refused == (0, 0)).await;
    assert!(began.elapsed() >= ms(5000), "96 turns after the burst: {:?}", began.elapsed());
    // By their own numbers, about one request of each is early.
    in_one_of_three(Quota::token_bucket(20, SECOND).capacity(5), 20, |(theirs, own)| theirs > 0 && own == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes 53 seconds"]
async fn point_4_one_server_of_20_a_second_refuses_none_of_1000_requests_in_53_seconds() {
    in_one_of_three(BELOW, 1, |refused| refused == (0, 0)).await;
}

/// A server that refuses its tenth request: none of the others is sent for the second that it asks for, but for what is
/// under way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn point_4_one_429_of_a_server_holds_the_queue_until_its_retry_after() {
    const RATE: u64 = 100;
    let (count, refused_at) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(None)));
    let arrivals: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let (noted, refused) = (Arc::clone(&arrivals), Arc::clone(&refused_at));
    let handler = move || {
        let now = Instant::now();
        noted.lock().unwrap().push(now);
        let refuses = count.fetch_add(1, Ordering::Relaxed) == 9;
        if refuses {
            *refused.lock().unwrap() = Some(now);
        }
        let status = if refuses { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::OK };
        std::future::ready((status, [("retry-after", "1")]))
    };
    let url = serve(Router::new().route("/", get(handler))).await;
    let theirs = Policy::new("theirs", Quota::token_bucket(RATE, SECOND).capacity(1).max_reserved(100));
    let layer =
        RateLimitLayer::new(theirs, key::host()).wait_up_to(MINUTE).on_response(OnResponse::pause_on_retry_after);
    // Of another server, whose requests share the layer, none is held.
    let other_arrivals: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let noted = Arc::clone(&other_arrivals);
    let other = move || {
        noted.lock().unwrap().push(Instant::now());
        std::future::ready(())
    };
    let other = serve(Router::new().route("/", get(other))).await;

    assert_eq!(send_all(&layer, &[url, other], 120).await, (1, 0));
    let refused_at = refused_at.lock().unwrap().expect("one was refused");
    let (arrivals, others) = (arrivals.lock().unwrap(), other_arrivals.lock().unwrap());
    assert_eq!((arrivals.len(), others.len()), (60, 60));
    let within = |all: &[Instant]| all.iter().filter(|at| **at > refused_at && **at < refused_at + SECOND).count();
    // What was sent before the answer was there: a turn every 10 ms.
    assert!(within(&arrivals) <= 3, "{} of {:?}", within(&arrivals), arrivals.len());
    assert!(within(&others) >= 40, "{}", within(&others));
}
