//! Custom refusals: a page for browsers, JSON for programs, older header names, and jitter so that clients do not all
//! retry at the same time.
//!
//! Run it with `cargo run --example custom_response`.
//! Three requests are allowed, then one every 20 seconds. These are the first and the fourth response to a program:
//! ```text
//! $ for i in $(seq 4); do curl -i http://127.0.0.1:3000; done
//! HTTP/1.1 200 OK
//! x-ratelimit-limit: 3
//! x-ratelimit-remaining: 2
//! x-ratelimit-reset: 1767225620
//! ...
//! HTTP/1.1 429 Too Many Requests
//! content-type: application/json
//! vary: accept
//! x-ratelimit-limit: 3
//! x-ratelimit-remaining: 0
//! x-ratelimit-reset: 1767225620
//! retry-after: 26
//! cache-control: no-store
//! ...
//! {"error":"too_many_requests","policies":["api"],"retry_after":26}
//! ```
//!
//! `x-ratelimit-reset` is a Unix time. The layer adds up to ten random seconds to `retry-after`, so its value is
//! between 20 and 30. A browser gets a page:
//! ```text
//! $ curl -i -H 'accept: text/html' http://127.0.0.1:3000
//! HTTP/1.1 429 Too Many Requests
//! content-type: text/html; charset=utf-8
//! ...
//! <!doctype html><title>One moment</title><h1>One moment, please</h1><p>That was a bit fast. Try again in a minute.</p>
//! ```

use std::error::Error;
use std::net::SocketAddr;

use axum::Router;
use axum::body::Bytes;
use axum::http::header::{ACCEPT, HeaderValue, VARY};
use axum::http::{HeaderMap, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tollgate::{HeaderFamily, MINUTE, Policy, Quota, RateLimitLayer, Refusal, SECOND, key, middleware::ResetUnit};

const API: Policy = Policy::new("api", Quota::token_bucket(3, MINUTE));

const PAGE: &str = "<!doctype html><title>One moment</title><h1>One moment, please</h1>\
    <p>That was a bit fast. Try again in a minute.</p>\n";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let limits = RateLimitLayer::new(API, key::client_ip())
        .headers(HeaderFamily::XRateLimit(ResetUnit::Epoch))
        .retry_jitter(10 * SECOND)
        .on_refusal(refuse);
    let app = Router::new().route("/", get(|| async { "hello\n" })).layer(limits);

    let port = std::env::var("PORT").unwrap_or_else(|_| "3000".into());
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    println!("custom_response: 3 requests per minute for each client address, on http://{}", listener.local_addr()?);
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}

/// Creates the response to a refused request. The layer then adds `Retry-After`, `Cache-Control` and the rate-limit
/// headers.
fn refuse(refusal: &Refusal<'_>) -> Response<Bytes> {
    // There are no decisions if the limiter could not decide, or if the server is misconfigured.
    let Some(decisions) = refusal.decisions() else { return refusal.default_response() };

    let (content_type, body) = if wants_html(&refusal.request().headers) {
        ("text/html; charset=utf-8", PAGE.into())
    } else {
        let policies: Vec<_> = decisions.violated().map(|decision| decision.policy().as_str()).collect();
        let wait = refusal.retry_after_secs();
        let body = serde_json::json!({"error": "too_many_requests", "policies": policies, "retry_after": wait});
        ("application/json", format!("{body}\n"))
    };
    let mut response = refusal.respond(content_type, body);
    response.headers_mut().insert(VARY, HeaderValue::from_static("accept"));
    response
}

fn wants_html(headers: &HeaderMap) -> bool {
    headers.get_all(ACCEPT).iter().any(|value| value.to_str().is_ok_and(|value| value.contains("text/html")))
}
