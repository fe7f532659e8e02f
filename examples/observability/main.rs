//! Observability: log events, metrics for Prometheus, and a dashboard for Grafana.
//!
//! ```text
//! $ cargo run --example observability --features metrics,tracing
//! observability: 3 requests per minute for each API key, on http://127.0.0.1:3000
//! try it:
//!   for i in 1 2 3 4 5; do curl -s -H 'x-api-key: k1' http://127.0.0.1:3000; done
//!   curl -s http://127.0.0.1:3000/metrics | grep tollgate
//! ```
//! The first three of the five requests pass. The others are logged with a digest of the key, not the key itself:
//! ```text
//! INFO tollgate: denied policy="api" outcome="denied" reason="quota_exceeded" decided_by="backend" cost=1 remaining=0 ...
//! ```
//! At most ten lines are logged per second. Each line counts the lines suppressed before it. The metrics count every
//! denial:
//! ```text
//! tollgate_decisions_total{policy="api",outcome="denied",reason="quota_exceeded",decided_by="backend",enforced="true"} 2
//! ```
//! For graphs, let Prometheus scrape `/metrics`, and import `dashboard.json` into Grafana (Dashboards > New > Import).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::response::IntoResponse;
use axum::routing::get;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::net::TcpListener;
use tollgate::key::{self, Extraction, KeyExtractor};
use tollgate::observe::{Metrics, Tracing, names};
use tollgate::{MINUTE, MemoryBackend, Policy, Quota, RateLimitLayer, RateLimiter};

static API: Policy = Policy::new("api", Quota::token_bucket(3, MINUTE));

type AppState = (PrometheusHandle, Arc<Metrics>, RateLimiter);

/// Limits customers by API key and all other callers by address. In production, look up the API key in a database.
fn caller(request: &Parts) -> Extraction {
    match request.headers.get("x-api-key") {
        Some(key) if key == "k1" => key::header("x-api-key").extract(request), // a checked API key
        _ => key::client_ip().extract(request),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().init();
    let prometheus = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Full(names::DECISION_DURATION.into()), &names::DURATION_BUCKETS)?
        .install_recorder()?;
    tokio::spawn(tidy_up(prometheus.clone()));

    let metrics = Arc::new(Metrics::new());
    let limiter =
        RateLimiter::builder(MemoryBackend::new()).observer(Tracing::new()).observer(Arc::clone(&metrics)).build();
    let app = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .layer(RateLimitLayer::new(&API, caller).limiter(&limiter))
        // This route is added after the layer, so it is not limited.
        .route("/metrics", get(show))
        .with_state((prometheus, metrics, limiter));

    let port = std::env::var("PORT").unwrap_or_else(|_| "3000".into());
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    let url = format!("http://{}", listener.local_addr()?);
    println!("observability: 3 requests per minute for each API key, on {url}");
    println!("try it:\n  for i in 1 2 3 4 5; do curl -s -H 'x-api-key: k1' {url}; done");
    println!("  curl -s {url}/metrics | grep tollgate");
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}

/// The page that Prometheus scrapes. In production, serve it on a separate port.
async fn show(State((prometheus, metrics, limiter)): State<AppState>) -> impl IntoResponse {
    metrics.sample(&limiter);
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], prometheus.render())
}

/// Keeps the exporter from using more and more memory for recorded durations while nothing scrapes it.
async fn tidy_up(prometheus: PrometheusHandle) {
    let mut every = tokio::time::interval(Duration::from_secs(5));
    loop {
        every.tick().await;
        prometheus.run_upkeep();
    }
}
