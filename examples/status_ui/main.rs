//! A page with a send button. While the user is limited, the button is disabled and shows a countdown. The page also
//! compares how the three algorithms refill after the same clicks.
//!
//! Run it with `cargo run --example status_ui`. The program prints the page's address:
//! ```text
//! status_ui: 6 messages in 30 seconds, under three algorithms, on http://127.0.0.1:3000
//! ```
//!
//! The page reads the status of its limits once and then predicts the server's decisions:
//! ```text
//! $ curl http://127.0.0.1:3000/limits/bucket
//! {"policy":"bucket","algorithm":"token_bucket","rate":6,"period":30000000,"capacity":6,"start":0,"max_reserved":0,"spent":0,...}
//! $ for i in $(seq 7); do curl -s -o /dev/null -w '%{http_code} ' -X POST http://127.0.0.1:3000/send/bucket; done
//! 200 200 200 200 200 200 429
//! $ curl http://127.0.0.1:3000/time
//! {"now":...}
//! ```
//!
//! The page is plain HTML, CSS and JavaScript, with a content security policy that allows only this origin. It
//! predicts decisions with the browser package in `client/`, bundled into `tollgate-client.js`. To rebuild the bundle:
//! ```text
//! (cd client && npm ci)
//! client/scripts/bundle.sh
//! ```
//!
//! To use a port other than 3000, set the environment variable `PORT`; with `PORT=0`, any free port is used.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use tokio::net::TcpListener;
use tollgate::{MINUTE, Policy, Quota, RateLimitLayer, RateLimiter, RouteLimits, key, status};

const HALF_A_MINUTE: Duration = Duration::from_secs(30);

/// Each algorithm has the same average rate, but refills at different times.
const POLICIES: [Policy; 3] = [
    Policy::new("bucket", Quota::token_bucket(6, HALF_A_MINUTE)),
    Policy::new("fixed", Quota::fixed_window(6, HALF_A_MINUTE)),
    Policy::new("sliding", Quota::sliding_window(6, HALF_A_MINUTE)),
];

/// The limit on requests to `/limits/...` and `/time`.
const STATUS: Policy = Policy::new("status", Quota::token_bucket(300, MINUTE));

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let port = std::env::var("PORT").unwrap_or_else(|_| "3000".into());
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    println!("status_ui: 6 messages in 30 seconds, under three algorithms, on http://{}", listener.local_addr()?);
    axum::serve(listener, app().into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}

fn app() -> Router {
    let limiter = RateLimiter::default();
    // The example uses the address as the key. In production, use the user.
    let limits = RouteLimits::new(key::client_ip()).limiter(&limiter);
    let limits = POLICIES.into_iter().fold(limits, RouteLimits::policy);

    let mut sending = Router::new();
    let mut reading = Router::new().route("/time", status::time(&limiter));
    for policy in &POLICIES {
        let name = policy.name();
        let layer = limits.route(name.as_str());
        // The endpoint uses the limiter, key and policy of the layer.
        reading = reading.route(&format!("/limits/{name}"), status::of_layer(&layer));
        sending = sending.route(&format!("/send/{name}"), post(|| async { "sent\n" }).layer(layer));
    }
    let status_limit = RateLimitLayer::new(STATUS, key::client_ip()).limiter(&limiter);

    Router::new()
        .route("/", file("text/html; charset=utf-8", include_str!("index.html")))
        .route("/page.css", file("text/css; charset=utf-8", include_str!("page.css")))
        .route("/page.js", file("text/javascript; charset=utf-8", include_str!("page.js")))
        .route("/plot.js", file("text/javascript; charset=utf-8", include_str!("plot.js")))
        .route("/tollgate-client.js", file("text/javascript; charset=utf-8", include_str!("tollgate-client.js")))
        .merge(sending)
        .merge(reading.layer(status_limit))
}

fn file(content_type: &'static str, text: &'static str) -> MethodRouter {
    get(move || async move { page(content_type, text) })
}

fn page(content_type: &'static str, text: &'static str) -> Response {
    let headers = [
        (CONTENT_TYPE, content_type),
        (CONTENT_SECURITY_POLICY, SAME_ORIGIN_ONLY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (CACHE_CONTROL, "no-cache"),
    ];
    (headers, text).into_response()
}

/// Allows nothing inline, nothing from other origins, and no embedding in frames.
const SAME_ORIGIN_ONLY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
     img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
