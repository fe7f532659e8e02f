//! Limits on outgoing requests: a client that waits in order to stay within a third party's limit.
//!
//! Run it with `cargo run --example outgoing`. The third party allows 200 calls in each window of 2 seconds, and
//! responds with 429 to further calls. A window starts with its first call. The example starts 500 calls together,
//! which take at least 5 seconds. It fails if a call is refused, or if the calls take more than 5 % longer than that:
//! ```text
//! outgoing: a third party that allows 200 calls in 2 s, on http://127.0.0.1:3000
//! through the layer: 500 calls in 5.15 s, 0 refused
//! largest delay: 2 ms, up to 51 ms is harmless
//! without it: 500 calls in 0.02 s, 300 refused
//! ```
//!
//! With a capacity of 1, there are no bursts and the due times are 1/97 s apart, so any 2 seconds contain at most 195
//! due times (97 * 2 + 1). But timers and networks add delays. If calls arrive up to L seconds late, a window can
//! contain the calls that are due within 2 + L seconds: at most 97 * (2 + L) + 1 calls. Because the rate is 3 % below
//! 100 per second, this bound does not exceed 200 for delays of up to 51 ms.

use std::error::Error;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::{Request, Response, StatusCode};
use axum::{Router, body::Body, routing::get};
use hyper_util::client::legacy::{Client, Error as ClientError};
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tollgate::{HeaderFamily, OnResponse, Policy, Quota, RateLimitLayer, SECOND, key};
use tower::{Service, ServiceBuilder, ServiceExt};

/// The third party's limit, and the number of calls to make.
const LIMIT: u32 = 200;
const WINDOW: Duration = Duration::from_secs(2);
const CALLS: u32 = 500;

/// The number of outgoing calls per second.
const RATE: u64 = 97;
const THEIRS: Policy =
    Policy::new("their API", Quota::token_bucket(RATE, SECOND).capacity(1).max_reserved(CALLS as u64));

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let port = std::env::var("PORT").unwrap_or_else(|_| "3000".into());
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    let url = format!("http://{}", listener.local_addr()?);
    let third_party = Router::new().route("/", get(count)).with_state(Window::default());
    tokio::spawn(axum::serve(listener, third_party).into_future());
    println!("outgoing: a third party that allows {LIMIT} calls in {} s, on {url}", WINDOW.as_secs());

    // The client can be any `Service` of `http::Request`. To use reqwest, write:
    //     tower::service_fn(move |request: http::Request<reqwest::Body>| {
    //         let response = request.try_into().map(|request| client.execute(request));
    //         async { response?.await.map(http::Response::<reqwest::Body>::from) }
    //     })
    let client = Client::builder(TokioExecutor::new()).build_http::<Body>();
    // The client opens at most fifty connections. Calls that wait in the rate-limit layer do not hold a connection.
    let client = ServiceBuilder::new().concurrency_limit(50).service(client);
    let limits = RateLimitLayer::new(THEIRS, key::host()) // a separate limit per server
        .wait_up_to(10 * SECOND)
        .on_response(OnResponse::pause_on_retry_after) // if the server still refuses a call, delay the waiting calls
        .headers(HeaderFamily::None); // keep the third party's headers
    let limited = ServiceBuilder::new().layer(limits).service(client.clone());

    let through = call_all(limited, &url).await?;
    println!("through the layer: {through}");
    let harmless = Duration::from_secs_f64(f64::from(LIMIT - 1) / RATE as f64).saturating_sub(WINDOW);
    let late = through.lateness().as_millis();
    println!("largest delay: {late} ms, up to {} ms is harmless", harmless.as_millis());

    tokio::time::sleep(WINDOW).await; // until the third party's last window has ended
    println!("without it: {}", call_all(client, &url).await?);

    let ideal = WINDOW * CALLS / LIMIT;
    let kept = through.refused == 0 && through.took() <= ideal + ideal / 20;
    Ok(if kept { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The start of the third party's window, and the number of calls in the window.
type Window = Arc<Mutex<Option<(Instant, u32)>>>;

/// The third party's handler, which counts calls and refuses those over the limit.
async fn count(State(window): State<Window>) -> StatusCode {
    let mut window = window.lock().unwrap();
    let (began, calls) = window.filter(|(began, _)| began.elapsed() < WINDOW).unwrap_or((Instant::now(), 0));
    *window = Some((began, calls + 1));
    if calls < LIMIT { StatusCode::OK } else { StatusCode::TOO_MANY_REQUESTS }
}

/// Starts all calls together. A 429 comes from the third party or, if the wait would be too long, from the layer;
/// `response.body().is_refusal()` distinguishes the two cases.
async fn call_all<S, B>(service: S, url: &str) -> Result<Outcome, Box<dyn Error>>
where
    S: Service<Request<Body>, Response = Response<B>, Error = ClientError> + Clone + Send + 'static,
    S::Future: Send,
    B: Send + 'static,
{
    let began = Instant::now();
    let mut calls = JoinSet::new();
    for _ in 0..CALLS {
        let response = service.clone().oneshot(Request::get(url).body(Body::empty())?);
        calls.spawn(async move { response.await.map(|response| (began.elapsed(), response.status())) });
    }
    let mut outcome = Outcome { finished_at: Vec::new(), refused: 0 };
    for call in calls.join_all().await {
        let (at, status) = call?;
        outcome.finished_at.push(at);
        outcome.refused += u32::from(status == StatusCode::TOO_MANY_REQUESTS);
    }
    outcome.finished_at.sort();
    Ok(outcome)
}

/// The sorted times of all responses, and the number of 429 responses.
struct Outcome {
    finished_at: Vec<Duration>,
    refused: u32,
}

impl Outcome {
    fn took(&self) -> Duration {
        self.finished_at.last().copied().unwrap_or_default()
    }

    /// The maximum time between the due time of a call and its response.
    fn lateness(&self) -> Duration {
        let due_times = (0..).map(|call| Duration::from_secs_f64(f64::from(call) / RATE as f64));
        self.finished_at.iter().zip(due_times).map(|(at, due)| at.saturating_sub(due)).max().unwrap_or_default()
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} calls in {:.2} s, {} refused", self.finished_at.len(), self.took().as_secs_f64(), self.refused)
    }
}
