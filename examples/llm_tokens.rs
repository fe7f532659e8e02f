//! A gateway to a language model. Each request is charged an estimate, which is adjusted to the actual cost after
//! streaming.
//!
//! Run it with `cargo run --example llm_tokens`. Each team has 1000 tokens and 20 calls per day. The model returns the
//! requested number of words, and each word costs one token. The request below is charged 50 tokens, its answer has 12
//! words, and 38 tokens are refunded:
//! ```text
//! $ curl -si -H 'x-team: blue' -d 12 http://127.0.0.1:3000/complete | grep -E '^(ratelimit:|word)'
//! ratelimit: "tokens";r=950;t=82080
//! ratelimit: "calls";r=19;t=66306
//! word1 word2 word3 word4 word5 word6 word7 word8 word9 word10 word11 word12
//! $ curl -H 'x-team: blue' http://127.0.0.1:3000/balance
//! 988 tokens, 19 calls
//! ```
//!
//! An answer that is longer than the estimate is charged in full. If the client disconnects early, the estimate stays
//! charged. If the model is down, neither tokens nor a call is charged:
//! ```text
//! $ curl -s -o /dev/null -H 'x-team: blue' -d 60 http://127.0.0.1:3000/complete
//! $ curl -H 'x-team: blue' http://127.0.0.1:3000/balance
//! 928 tokens, 18 calls
//! $ curl -s -o /dev/null -m 0.3 -H 'x-team: blue' -d 40 http://127.0.0.1:3000/complete
//! $ curl -H 'x-team: blue' http://127.0.0.1:3000/balance
//! 878 tokens, 17 calls
//! $ curl -H 'x-team: blue' -d fail http://127.0.0.1:3000/complete
//! the model is down
//! $ curl -H 'x-team: blue' http://127.0.0.1:3000/balance
//! 878 tokens, 17 calls
//! ```
//!
//! Batches have a separate limit of 50 tokens per second, and each batch waits for up to three seconds. If five batches
//! arrive together, the first starts immediately and three more start at intervals of one second. The fifth is refused,
//! because it would have to wait too long:
//! ```text
//! $ for i in $(seq 5); do curl -s -o /dev/null -w '%{http_code} after %{time_starttransfer} s\n' -H 'x-team: blue' \
//!       -d 50 http://127.0.0.1:3000/batch & done; wait
//! 429 after 0.000549 s
//! 200 after 0.000538 s
//! 200 after 0.991809 s
//! 200 after 1.991611 s
//! 200 after 2.989102 s
//! ```

use std::convert::Infallible;
use std::error::Error;
use std::time::Duration;

use axum::http::{StatusCode, request::Parts};
use axum::routing::{get, post};
use axum::{Router, body::Body, extract::State};
use futures_util::stream;
use tokio::net::TcpListener;
use tollgate::key::KeyExtractor;
use tollgate::{DAY, OnResponse, Policy, Quota, RateLimitLayer, RateLimiter, Receipt, Rule, SECOND};

const TOKENS: Policy = Policy::new("tokens", Quota::token_bucket(1000, DAY));
const CALLS: Policy = Policy::new("calls", Quota::fixed_window(20, DAY));
const BATCH: Policy = Policy::new("batch", Quota::token_bucket(50, SECOND).max_reserved(150));

/// The estimate charged per request. In production, use the size of the prompt (its `content-length` or, without that
/// header, the maximum you accept) plus the longest answer.
const ESTIMATE: u64 = 50;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let limiter = RateLimiter::default();
    let limits = RateLimitLayer::from(Rule::new(TOKENS, team.or_reject()).cost(|_| ESTIMATE))
        .rule(Rule::new(CALLS, team.or_reject()))
        // This closure applies to both rules. A rule that should also count failures needs a separate `on_response`.
        .on_response(|response| if response.status.is_server_error() { OnResponse::Refund } else { OnResponse::Keep })
        .with_receipt() // for `complete`
        .limiter(&limiter); // shared with `balance`
    let app = Router::new()
        .route("/complete", post(complete).layer(limits))
        .route("/batch", post(batch))
        .route("/balance", get(balance))
        .with_state(limiter);

    let port = std::env::var("PORT").unwrap_or_else(|_| "3000".into());
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    println!("llm_tokens: 1000 tokens and 20 calls a day for each team, on http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}

/// Returns the team as the key. In production, take the team from your authentication.
fn team(request: &Parts) -> Option<String> {
    request.headers.get("x-team")?.to_str().ok().map(String::from)
}

async fn complete(usage: Receipt, prompt: String) -> Result<Body, (StatusCode, &'static str)> {
    // Only the tokens are settled, so the call stays charged.
    Ok(streamed(Model::ask(&prompt)?, usage.of("tokens")))
}

/// Calls the limiter directly, waits for the due time and gets a receipt. A batch that fails stays charged unless the
/// handler calls `usage.refund()`.
async fn batch(State(limiter): State<RateLimiter>, request: Parts, prompt: String) -> axum::response::Result<Body> {
    let usage = limiter.acquire(&BATCH, team(&request)).cost(ESTIMATE).wait_up_to(3 * SECOND).await?;
    Ok(streamed(Model::ask(&prompt)?, Some(usage)))
}

/// Streams the answer and settles its actual cost before the end of the stream. If the client disconnects early, the
/// stream and its receipt are dropped, and the estimate stays charged.
fn streamed(model: Model, usage: Option<Receipt>) -> Body {
    Body::from_stream(stream::unfold((model, usage), |(mut model, usage)| async move {
        if let Some(word) = model.next().await {
            return Some((Ok::<_, Infallible>(word), (model, usage)));
        }
        if let Some(usage) = usage {
            let _ = usage.settle(model.sent).await; // if the backend is down, the estimate stays charged
        }
        None
    }))
}

async fn balance(State(limiter): State<RateLimiter>, request: Parts) -> axum::response::Result<String> {
    let tokens = limiter.remaining(&TOKENS, team(&request)).await?;
    let calls = limiter.remaining(&CALLS, team(&request)).await?;
    Ok(format!("{tokens} tokens, {calls} calls\n"))
}

/// A model that returns as many words as the prompt requests.
struct Model {
    words: u64,
    sent: u64,
}

impl Model {
    fn ask(prompt: &str) -> Result<Model, (StatusCode, &'static str)> {
        let words = prompt.parse().map_err(|_| (StatusCode::SERVICE_UNAVAILABLE, "the model is down\n"))?;
        Ok(Model { words, sent: 0 })
    }

    async fn next(&mut self) -> Option<String> {
        if self.sent == self.words {
            return None;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        self.sent += 1;
        Some(format!("word{}{}", self.sent, if self.sent == self.words { "\n" } else { " " }))
    }
}
