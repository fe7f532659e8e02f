//! The other side: a client that keeps to a third party's limit, by waiting instead of being refused.
//!
//! ```text
//! cargo run --example outgoing
//! ```
//!
//! The third party allows 200 calls in 2 seconds, counted from the first, and answers 429 to the others. We have 500
//! calls, all at once. At 100 a second they take 5 seconds at best. It prints, and fails if there is a refusal or it
//! takes over 5 % longer:
//!
//! ```text
//! outgoing: a third party that allows 200 calls in 2 s, on http://127.0.0.1:3000
//! through the layer: 500 calls in 5.15 s, 0 refused
//! the latest turn: 2 ms late, 51 ms would do no harm
//! without it: 500 calls in 0.02 s, 300 refused
//! ```
//!
//! Why it holds: with capacity 1 there are no bursts, turns are 1/97 s apart. In any 2 seconds there are at most
//! 97 * 2 + 1 = 195 of them, whenever the server's window begins. But timers are late, and networks: of calls that are up to
//! L seconds late, a window may see those of 2 + L seconds. That is at most 97 * (2 + L) + 1, and within 200 up to L = 51 ms.
//! This is what the 3 % below the server's 100 a second are for.

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

/// What the third party allows, and how many calls we have.
const LIMIT: u32 = 200;
const WINDOW: Duration = Duration::from_secs(2);
const CALLS: u32 = 500;

/// What we allow ourselves. All calls may be in the queue.
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

    // Any client that is a `Service` of `http::Request`. reqwest's has requests of its own, and becomes one so:
    //     tower::service_fn(move |request: http::Request<reqwest::Body>| {
    //         let response = request.try_into().map(|request| client.execute(request));
    //         async { response?.await.map(http::Response::<reqwest::Body>::from) }
    //     })
    let client = Client::builder(TokioExecutor::new()).build_http::<Body>();
    // Fifty connections. Whoever waits for a turn outside of this holds none of them.
    let client = ServiceBuilder::new().concurrency_limit(50).service(client);
    let limits = RateLimitLayer::new(THEIRS, key::host()) // each server by itself
        .wait_up_to(10 * SECOND)
        .on_response(OnResponse::pause_on_retry_after) // if they refuse all the same, requests that wait are held
        .headers(HeaderFamily::None); // the response is theirs, and so are its headers
    let limited = ServiceBuilder::new().layer(limits).service(client.clone());

    let through = call_all(limited, &url).await?;
    println!("through the layer: {through}");
    let harmless = Duration::from_secs_f64(f64::from(LIMIT - 1) / RATE as f64).saturating_sub(WINDOW);
    let late = through.lateness().as_millis();
    println!("the latest turn: {late} ms late, {} ms would do no harm", harmless.as_millis());

    tokio::time::sleep(WINDOW).await; // the server's last one ends
    println!("without it: {}", call_all(client, &url).await?);

    let ideal = WINDOW * CALLS / LIMIT;
    let kept = through.refused == 0 && through.took() <= ideal + ideal / 20;
    Ok(if kept { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// When the third party's window began, and the calls in it.
type Window = Arc<Mutex<Option<(Instant, u32)>>>;

/// The third party.
async fn count(State(window): State<Window>) -> StatusCode {
    let mut window = window.lock().unwrap();
    let (began, calls) = window.filter(|(began, _)| began.elapsed() < WINDOW).unwrap_or((Instant::now(), 0));
    *window = Some((began, calls + 1));
    if calls < LIMIT { StatusCode::OK } else { StatusCode::TOO_MANY_REQUESTS }
}

/// All calls at once, and what became of them. A refusal is a response with 429, be it theirs or (had we waited for too
/// long) our own: `response.body().is_refusal()` tells.
async fn call_all<S, B>(service: S, url: &str) -> Result<Outcome, Box<dyn Error>>
where
    S: Service<Request<Body>, Response = Response<B>, Error = ClientError> + Clone + Send + 'static,
    S::Future: Send,
    B: Send + 'static,
{
    let began = Instant::now();
    let mut calls = JoinSet::new();
    for _ in 0..CALLS {
        let answer = service.clone().oneshot(Request::get(url).body(Body::empty())?);
        calls.spawn(async move { answer.await.map(|response| (began.elapsed(), response.status())) });
    }
    let mut outcome = Outcome { answered: Vec::new(), refused: 0 };
    for call in calls.join_all().await {
        let (at, status) = call?;
        outcome.answered.push(at);
        outcome.refused += u32::from(status == StatusCode::TOO_MANY_REQUESTS);
    }
    outcome.answered.sort();
    Ok(outcome)
}

/// When calls were answered, in that order, and how many with 429.
struct Outcome {
    answered: Vec<Duration>,
    refused: u32,
}

impl Outcome {
    fn took(&self) -> Duration {
        self.answered.last().copied().unwrap_or_default()
    }

    /// By how much, at most, the answer came after the turn.
    fn lateness(&self) -> Duration {
        let turns = (0..).map(|turn| Duration::from_secs_f64(f64::from(turn) / RATE as f64));
        self.answered.iter().zip(turns).map(|(at, turn)| at.saturating_sub(turn)).max().unwrap_or_default()
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} calls in {:.2} s, {} refused", self.answered.len(), self.took().as_secs_f64(), self.refused)
    }
}
