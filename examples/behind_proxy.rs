//! A limit for each client address behind a reverse proxy. Only the entries of `X-Forwarded-For` that your proxy wrote
//! are trusted.
//!
//! Run it with `cargo run --example behind_proxy`. The program runs a proxy and an app behind it. The app allows three
//! requests per hour for each client address and trusts the proxy at 127.0.0.1. The clients below use other loopback
//! addresses, which exist on Linux; on other systems, you have to add them.
//!
//! A client gains nothing by forging a new address for each request, because the app uses the last address, which the
//! proxy appends:
//! ```text
//! $ for i in $(seq 4); do curl -s -o /dev/null -w '%{http_code} ' --interface 127.0.0.2 \
//!       -H "x-forwarded-for: 203.0.113.$i" http://127.0.0.1:3000; done
//! 200 200 200 429
//! ```
//!
//! Another client behind the same proxy has a separate bucket:
//! ```text
//! $ curl -i --interface 127.0.0.3 http://127.0.0.1:3000
//! HTTP/1.1 200 OK
//! ratelimit-policy: "app";q=3;w=3600
//! ratelimit: "app";r=2;t=2400
//! ...
//! ```
//!
//! The app ignores the header on requests that do not come through the proxy, so the first client is still refused.
//! (The second line that the program prints contains the app's port.)
//!
//! ```text
//! $ curl -s -o /dev/null -w '%{http_code}\n' --interface 127.0.0.2 -H 'x-forwarded-for: 203.0.113.9' http://127.0.0.1:$APP
//! 429
//! ```

use std::error::Error;
use std::net::SocketAddr;

use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use axum::{Router, routing::get};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tollgate::{HOUR, Policy, Quota, RateLimitLayer, key};

const APP: Policy = Policy::new("app", Quota::token_bucket(3, HOUR));

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // Trust only the proxy's address, because clients at a trusted address could forge the header.
    let limits = RateLimitLayer::new(APP, key::client_ip().trust(["127.0.0.1/32"]));
    let app = Router::new().route("/", get(|| async { "hello\n" })).layer(limits);
    let app_listener = TcpListener::bind("127.0.0.1:0").await?;
    let app_address = app_listener.local_addr()?;

    let proxy = Router::new().fallback(forward).with_state(app_address);
    let port = std::env::var("PORT").unwrap_or_else(|_| "3000".into());
    let proxy_listener = TcpListener::bind(format!("127.0.0.1:{port}")).await?;

    println!("behind_proxy: a proxy, on http://{}", proxy_listener.local_addr()?);
    println!("The app behind it: http://{app_address}");
    let app = axum::serve(app_listener, app.into_make_service_with_connect_info::<SocketAddr>());
    let proxy = axum::serve(proxy_listener, proxy.into_make_service_with_connect_info::<SocketAddr>());
    tokio::try_join!(app.into_future(), proxy.into_future())?;
    Ok(())
}

/// The proxy's handler. It appends the client's address, as nginx does with `$proxy_add_x_forwarded_for`.
async fn forward(
    State(app): State<SocketAddr>,
    ConnectInfo(client): ConnectInfo<SocketAddr>,
    mut request: Request,
) -> Result<Response, StatusCode> {
    let seen = HeaderValue::try_from(client.ip().to_string()).map_err(|_| StatusCode::BAD_GATEWAY)?;
    request.headers_mut().append("x-forwarded-for", seen);

    let stream = TcpStream::connect(app).await.map_err(|_| StatusCode::BAD_GATEWAY)?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|_| StatusCode::BAD_GATEWAY)?;
    tokio::spawn(connection);
    let response = sender.send_request(request).await.map_err(|_| StatusCode::BAD_GATEWAY)?;
    Ok(response.map(Body::new))
}
