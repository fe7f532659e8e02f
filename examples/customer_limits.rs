//! Limits of ten requests per second and 1000 per day, and individual limits from a database for some customers.
//!
//! Run it with `cargo run --example customer_limits`.
//! Bert has no limits in the database, so both quotas of the policy apply to him:
//! ```text
//! $ curl -si -H 'authorization: Bearer bert' http://127.0.0.1:3000 | grep ratelimit
//! ratelimit-policy: "api;1s";q=10;w=1
//! ratelimit-policy: "api;1d";q=1000;w=86400
//! ratelimit: "api;1s";r=9;t=1
//! ratelimit: "api;1d";r=999;t=86314
//! ```
//!
//! Ada's row in the database contains individual limits:
//! ```text
//! $ curl -si -H 'authorization: Bearer ada' http://127.0.0.1:3000 | grep ratelimit-policy
//! ratelimit-policy: "api;1s";q=50;w=1
//! ratelimit-policy: "api;1d";q=20000;w=86400
//! ```
//!
//! Changed limits in the database apply from the next request on. Ada's earlier request still counts:
//! ```text
//! $ curl -d '2/s; 3/d' http://127.0.0.1:3000/customers/ada
//! ada: 2/s; 3/d
//! $ for i in $(seq 3); do sleep 1; curl -s -o /dev/null -w '%{http_code} ' -H 'authorization: Bearer ada' http://127.0.0.1:3000; done
//! 200 200 429
//! ```
//!
//! Text that is not a list of quotas is rejected:
//! ```text
//! $ curl -d '2/s; 3/fortnight' http://127.0.0.1:3000/customers/ada
//! quota "3/fortnight": expected a period such as "min" or "30s", found "fortnight"; units: us ms s min h d w
//! ```

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Path, State};
use axum::http::request::Parts;
use axum::http::{StatusCode, header::AUTHORIZATION};
use axum::routing::{get, post};
use tokio::net::TcpListener;
use tollgate::key::{Extraction, KeyError};
use tollgate::policy::{ParseQuotaError, Quotas};
use tollgate::{Policy, Quota, RateLimitLayer, Subject};

/// The policy for customers without limits in the database.
const API: Policy = Policy::new("api", Quota::per_second(10)).and(Quota::per_day(1000));

/// The column `limits` of each customer. In production, use a database, and perhaps a cache in front of it.
type Database = Arc<Mutex<HashMap<String, Option<Quotas>>>>;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let customers = [("ada", Some("50/s; 20000/d".parse()?)), ("bert", None)];
    let database: Database = Arc::new(Mutex::new(customers.map(|(name, limits)| (name.to_owned(), limits)).into()));

    let rows = Arc::clone(&database);
    let customer = move |request: &Parts| {
        let (token, rows) = (token(request), Arc::clone(&rows));
        Extraction::later(async move { subject(token, &rows).await })
    };
    let app = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .layer(RateLimitLayer::new(API, customer))
        .route("/customers/{name}", post(set_limits)) // not limited, because it is added after the layer
        .with_state(database);

    let port = std::env::var("PORT").unwrap_or_else(|_| "3000".into());
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    println!("customer_limits: limits from a database, on http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}

fn token(request: &Parts) -> Option<String> {
    let header = request.headers.get(AUTHORIZATION)?.to_str().ok()?;
    Some(header.strip_prefix("Bearer ")?.to_owned())
}

/// Returns the customer with this token. The token is used as the key only if it is in the database.
async fn subject(token: Option<String>, rows: &Database) -> Result<Subject, KeyError> {
    let row = token.and_then(|name| Some((rows.lock().unwrap().get(&name).copied()?, name)));
    match row {
        Some((Some(limits), name)) => Ok(Subject::new(name).quota(limits)),
        Some((None, name)) => Ok(Subject::new(name)),
        None => Err(KeyError::new("unknown token").with_status(StatusCode::UNAUTHORIZED)),
    }
}

async fn set_limits(
    State(database): State<Database>,
    Path(name): Path<String>,
    limits: String,
) -> Result<String, (StatusCode, String)> {
    let limits: Quotas =
        limits.parse().map_err(|error: ParseQuotaError| (StatusCode::BAD_REQUEST, format!("{error}\n")))?;
    database.lock().unwrap().insert(name.clone(), Some(limits));
    Ok(format!("{name}: {limits}\n"))
}
