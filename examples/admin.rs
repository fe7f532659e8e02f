//! A service with a router and a page for operators, who can see which callers are limited and reset their limits.
//!
//! ```text
//! ADMIN_TOKEN=correct-horse-battery cargo run --example admin --features admin
//! ```
//!
//! Each name has five requests per minute. Exceed Ada's limit, list the limited callers, and reset her limit:
//! ```text
//! $ for i in $(seq 6); do curl -s http://127.0.0.1:3000/hello/ada -o /dev/null -w '%{http_code}\n'; done
//! 200
//! 200
//! 200
//! 200
//! 200
//! 429
//! $ alias ask='curl -s -H "authorization: Bearer correct-horse-battery" -H "content-type: application/json"'
//! $ ask http://127.0.0.1:3000/admin/limits/limited
//! $ ask http://127.0.0.1:3000/admin/limits/reset -d '{"policy":"hello","key":"path(name):ada"}'
//! {"scope":"this_process","found":true}
//! ```
//!
//! The page is at `http://127.0.0.1:3000/admin/limits/page`. In production, serve the router over HTTPS or on a port
//! that only operators can reach.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use tokio::net::TcpListener;
use tollgate::admin::{self, Admin, Operator};
use tollgate::observe::Top;
use tollgate::{MINUTE, MemoryBackend, Policy, Quota, RateLimitLayer, RateLimiter, key};

static HELLO: Policy = Policy::new("hello", Quota::token_bucket(5, MINUTE));

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let token = std::env::var("ADMIN_TOKEN").map_err(|_| "set ADMIN_TOKEN to a text of at least 16 characters")?;

    // The names in the path are not secret, so operators may see them.
    let top = Arc::new(Top::new().show_keys([&HELLO]));
    let limiter = RateLimiter::builder(MemoryBackend::new()).observer(Arc::clone(&top)).build();
    // `client_ip` lets the layer apply blocks of addresses.
    let layer = RateLimitLayer::new(&HELLO, key::path("name")).client_ip(key::client_ip()).limiter(&limiter);

    let authorize = admin::bearer_tokens([(token, Operator::editor("ops"))]);
    let admin = Admin::new(&limiter, authorize).layer(&layer).top(&top);

    let app = Router::new()
        .route("/hello/{name}", get(|Path(name): Path<String>| async move { format!("hello, {name}\n") }).layer(layer))
        .nest("/admin/limits", admin.into_router());

    let port = std::env::var("PORT").unwrap_or_else(|_| "3000".into());
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    println!("admin: 5 requests per minute for each name, on http://{}", listener.local_addr()?);
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
