//! One policy for anonymous callers, a free plan and a premium plan. An upgrade takes effect immediately.
//!
//! Run it with `cargo run --example tiers`.
//! Ada is on the free plan with 5 requests per hour. Her sixth request is refused:
//! ```text
//! $ for i in $(seq 6); do curl -s -o /dev/null -w '%{http_code} ' -H 'authorization: Bearer ada' http://127.0.0.1:3000; done
//! 200 200 200 200 200 429
//! ```
//!
//! After an upgrade, her five requests count against a limit of 20, and her next request is allowed:
//! ```text
//! $ curl -X POST -H 'authorization: Bearer ada' http://127.0.0.1:3000/upgrade
//! ada is premium now
//! $ curl -i -H 'authorization: Bearer ada' http://127.0.0.1:3000
//! HTTP/1.1 200 OK
//! ratelimit-policy: "api";q=20;w=3600
//! ratelimit: "api";r=14;t=2520
//! ...
//! ```
//!
//! All callers without a valid token share 3 requests per hour:
//! ```text
//! $ curl -i http://127.0.0.1:3000
//! HTTP/1.1 200 OK
//! ratelimit-policy: "api";q=3;w=3600
//! ratelimit: "api";r=2;t=2400
//! ...
//! ```

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex};

use axum::extract::{Request, State};
use axum::http::header::AUTHORIZATION;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Extension, Router};
use tokio::net::TcpListener;
use tollgate::{HOUR, Policy, Quota, RateLimitLayer, Subject, key};

#[derive(Clone)]
struct User {
    name: &'static str,
    plan: &'static str,
}

/// Maps tokens to users. In production, use a database.
type Users = Arc<Mutex<HashMap<&'static str, User>>>;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let users = Users::default();
    users.lock().unwrap().insert("ada", User { name: "ada", plan: "free" });

    let api = Policy::new("api", Quota::token_bucket(3, HOUR)) // callers without a tier
        .tier("free", Quota::token_bucket(5, HOUR))
        .tier("premium", Quota::token_bucket(20, HOUR));
    let limits = RateLimitLayer::new(api, key::extension(|user: &User| Subject::new(user.name).tier(user.plan)));

    let app = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .layer(limits)
        .route("/upgrade", post(upgrade)) // not limited, because it is added after the layer
        .layer(from_fn_with_state(Arc::clone(&users), authenticate)) // this layer is added last, so it runs first
        .with_state(users);

    let port = std::env::var("PORT").unwrap_or_else(|_| "3000".into());
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    println!("tiers: one policy with a quota for each plan, on http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}

/// Inserts the user into the request's extensions, for the layer and the handlers.
async fn authenticate(State(users): State<Users>, mut request: Request, next: Next) -> Response {
    let header = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = header.and_then(|value| value.strip_prefix("Bearer "));
    let user = token.and_then(|token| users.lock().unwrap().get(token).cloned());
    if let Some(user) = user {
        request.extensions_mut().insert(user);
    }
    next.run(request).await
}

async fn upgrade(State(users): State<Users>, Extension(user): Extension<User>) -> String {
    if let Some(user) = users.lock().unwrap().get_mut(user.name) {
        user.plan = "premium";
    }
    format!("{} is premium now\n", user.name)
}
