//! Limits that depend on the route and the tier: a default policy, and a tighter policy for creating todos.
//!
//! ```text
//! cargo run --example routes            # limits beside the handlers
//! cargo run --example routes -- table   # the same limits as one table around all routes
//! ```
//!
//! Both variants allow these numbers of requests per minute:
//! ```text
//!               public (by address)   free   premium
//! default                        30     60       200
//! todo/create                     5     10        40
//! ```
//!
//! ```text
//! $ curl -si http://127.0.0.1:3000/todos | grep ratelimit-policy
//! ratelimit-policy: "default";q=30;w=60
//! $ curl -si -H 'authorization: Bearer ada-is-free' http://127.0.0.1:3000/todos | grep ratelimit-policy
//! ratelimit-policy: "default";q=60;w=60
//! $ curl -si -H 'authorization: Bearer eve-is-premium' -X POST http://127.0.0.1:3000/todos | grep ratelimit-policy
//! ratelimit-policy: "todo/create";q=40;w=60
//! ```
//!
//! After an address has created five todos, it can create no more, but listing todos still works:
//! ```text
//! $ for i in $(seq 6); do curl -s -o /dev/null -w '%{http_code} ' -X POST http://127.0.0.1:3000/todos; done
//! 201 201 201 201 201 429
//! $ curl -s -o /dev/null -w '%{http_code}\n' http://127.0.0.1:3000/todos
//! 200
//! ```

use std::error::Error;
use std::net::SocketAddr;

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::{AUTHORIZATION, HeaderValue};
use axum::http::request::Parts;
use axum::routing::{get, post};
use tokio::net::TcpListener;
use tollgate::key::{self, KeyExtractor};
use tollgate::{MINUTE, Policy, Quota, RouteLimits, Subject};

/// Returns all limits of the service. The quota in `Policy::new` is for callers without a tier.
fn limits() -> RouteLimits {
    let default = Policy::new("default", Quota::token_bucket(30, MINUTE))
        .tier("free", Quota::token_bucket(60, MINUTE))
        .tier("premium", Quota::token_bucket(200, MINUTE));
    let create = Policy::new("todo/create", Quota::token_bucket(5, MINUTE))
        .tier("free", Quota::token_bucket(10, MINUTE))
        .tier("premium", Quota::token_bucket(40, MINUTE));
    // The key is the user's id or, for all other callers, the address.
    RouteLimits::new(user.or(key::client_ip())).default_policy(default).policy(create)
}

/// Names the policy beside each handler. An unknown name panics here, before the first request.
fn beside_the_handlers(limits: &RouteLimits) -> Router {
    Router::new()
        .route("/todos", get(list).layer(limits.route("default")))
        .route("/todos", post(create).layer(limits.route("todo/create")))
}

/// Adds one layer around all routes, which looks up the policy of each request in a table. The default policy applies
/// to requests that match no line of the table, including requests that match no route.
fn in_a_table(limits: &RouteLimits) -> Router {
    Router::new().route("/todos", get(list).post(create)).layer(limits.table([("POST /todos", "todo/create")]))
}

/// Stands in for your user lookup. Never take the tier from the request.
fn user(request: &Parts) -> Subject {
    match request.headers.get(AUTHORIZATION).map(HeaderValue::as_bytes) {
        Some(b"Bearer ada-is-free") => Subject::new("ada").tier("free"),
        Some(b"Bearer eve-is-premium") => Subject::new("eve").tier("premium"),
        _ => Subject::anonymous(),
    }
}

async fn list() -> &'static str {
    "milk\n"
}

async fn create() -> (StatusCode, &'static str) {
    (StatusCode::CREATED, "created\n")
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let limits = limits();
    let (how, app) = match std::env::args().nth(1).as_deref() {
        None => ("beside the handlers", beside_the_handlers(&limits)),
        Some("table") => ("in a table", in_a_table(&limits)),
        Some(other) => return Err(format!("unknown argument {other:?}; expected \"table\" or nothing").into()),
    };

    let port = std::env::var("PORT").unwrap_or_else(|_| "3000".into());
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    println!("routes: limits {how}, on http://{}", listener.local_addr()?);
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
