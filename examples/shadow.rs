//! How to try a limit on live traffic: count the requests that it would refuse, then enforce the limit for some
//! clients, then for all.
//!
//! ```text
//! cargo run --example shadow          # refuses no requests
//! cargo run --example shadow -- 0.5   # enforces the limit for half of the clients
//! cargo run --example shadow -- 1.0   # enforces the limit for all clients
//! ```
//!
//! The limit is three per hour for each API key (`k0` to `k99` exist) or address. In shadow mode, the fourth request
//! passes, and its response has a header for the access log:
//! ```text
//! $ for i in $(seq 4); do curl -si -H 'x-api-key: k1' http://127.0.0.1:3000 | grep -E 'HTTP|ratelimit'; done
//! HTTP/1.1 200 OK
//! HTTP/1.1 200 OK
//! HTTP/1.1 200 OK
//! HTTP/1.1 200 OK
//! x-ratelimit-shadow: denied
//! $ curl http://127.0.0.1:3000/shadowed
//! 1 request would have been refused
//! ```
//!
//! With 0.5, half of the keys get the responses above. For the other half, responses have headers such as
//! `ratelimit-policy: "api";q=3;w=3600`, and the fourth request gets a 429. The halves depend on the limiter's secret,
//! so they differ at each start.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::get;
use tokio::net::TcpListener;
use tollgate::key::{self, Extraction, KeyExtractor};
use tollgate::policy::Enforce;
use tollgate::{HOUR, Policy, Quota, RateLimitLayer, RateLimitStatus};

const API: Policy = Policy::new("api", Quota::token_bucket(3, HOUR));

/// The number of requests that would have been refused. In production, use a metric.
type Shadowed = Arc<AtomicU64>;

/// Uses the API key of a customer, or the address of any other caller, as the key. The API key must be checked first,
/// because a client that invented one for each request would never be refused.
fn caller(request: &Parts) -> Extraction {
    let key = request.headers.get("x-api-key").and_then(|key| key.to_str().ok());
    let number = key.and_then(|key| key.strip_prefix('k')?.parse::<u8>().ok()); // in production, ask a database
    match number {
        Some(..100) => key::header("x-api-key").extract(request), // a checked key
        _ => key::client_ip().extract(request),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let enforce = match std::env::args().nth(1) {
        None => Enforce::Never,
        Some(share) => Enforce::Share(share.parse()?),
    };
    let api = API.try_enforce(enforce)?;
    let limits = RateLimitLayer::new(api, caller).shadow_header("x-ratelimit-shadow").with_status(); // for `count`

    let shadowed = Shadowed::default();
    let app = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .layer(from_fn_with_state(Arc::clone(&shadowed), count)) // inside the limiter, which provides the status
        .layer(limits)
        .route("/shadowed", get(report)) // not limited, because it is added after the layer
        .with_state(shadowed);

    let port = std::env::var("PORT").unwrap_or_else(|_| "3000".into());
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    println!("shadow: 3 requests per hour for each API key, on http://{}", listener.local_addr()?);
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}

async fn count(State(shadowed): State<Shadowed>, status: RateLimitStatus, request: Request, next: Next) -> Response {
    if status.decisions().is_shadowed() {
        shadowed.fetch_add(1, Ordering::Relaxed);
    }
    next.run(request).await
}

async fn report(State(shadowed): State<Shadowed>) -> String {
    let number = shadowed.load(Ordering::Relaxed);
    format!("{number} request{} would have been refused\n", if number == 1 { "" } else { "s" })
}
