//! A service with users, plans, teams, anonymous callers and an expensive route. All limits are in one file,
//! `limits.toml`; the program only registers the key extractors that the file names.
//!
//! ```text
//! cargo run --example service --features serde                    # with examples/service/limits.toml
//! cargo run --example service --features serde -- my_limits.toml  # with another file
//! ```
//!
//! The tokens are `ada` and `bob` (plan "free", same team), `eve` (plan "pro") and `kim` (an admin without limits):
//! ```text
//! $ curl -H 'authorization: Bearer ada' http://127.0.0.1:3000/export
//! all of it
//! $ curl -H 'authorization: Bearer ada' http://127.0.0.1:3000/me
//! 20 left
//! $ for i in 1 2; do curl http://127.0.0.1:3000/export; done
//! all of it
//! {"error":"rate limit exceeded: \"api\"; retry after 2400s","retry_in":2400}
//! ```
//!
//! A client can try about a hundred wrong tokens from one address. If it keeps trying, unknown callers at that address
//! are blocked for an hour.

use std::error::Error;
use std::net::SocketAddr;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::{Response, StatusCode, header, request::Parts};
use axum::middleware::{Next, from_fn};
use axum::routing::get;
use tokio::net::TcpListener;
use tollgate::config::{Config, ConfigError, ConfigReader};
use tollgate::key::{self, Extraction, Found, KeyExtractor};
use tollgate::{MemoryBackend, RateLimiter, Refusal, Subject};

#[derive(Clone)]
struct User {
    id: u64,
    team: u64,
    plan: &'static str,
}

#[derive(Clone)]
struct WrongToken;

/// A stand-in for your database.
fn user_of(token: &[u8]) -> Option<User> {
    match token {
        b"Bearer ada" => Some(User { id: 1, team: 1, plan: "free" }),
        b"Bearer bob" => Some(User { id: 2, team: 1, plan: "free" }),
        b"Bearer eve" => Some(User { id: 3, team: 2, plan: "pro" }),
        b"Bearer kim" => Some(User { id: 4, team: 3, plan: "admin" }),
        _ => None,
    }
}

async fn authenticate(mut request: Request, next: Next) -> axum::response::Response {
    let user = request.headers().get(header::AUTHORIZATION).map(|token| user_of(token.as_bytes()));
    match user {
        Some(Some(user)) => drop(request.extensions_mut().insert(user)),
        Some(None) => drop(request.extensions_mut().insert(WrongToken)), // the request is charged and then refused
        None => {}                                                       // an anonymous caller
    }
    next.run(request).await
}

async fn refuse_wrong_tokens(request: Request, next: Next) -> Result<axum::response::Response, StatusCode> {
    if request.extensions().get::<WrongToken>().is_some() {
        return Err(StatusCode::UNAUTHORIZED);
    }
    Ok(next.run(request).await)
}

/// Finds the user or, for anonymous callers, the address. Requests with wrong tokens are charged only as strangers.
fn caller(request: &Parts) -> Extraction {
    match (request.extensions.get::<User>(), request.extensions.get::<WrongToken>()) {
        (Some(User { plan: "admin", .. }), _) | (_, Some(_)) => Extraction::skip(),
        (Some(user), _) => Subject::new(user.id).tier(user.plan).into(),
        (None, None) => key::client_ip().extract(request),
    }
}

/// Finds the address of a caller who is not a known user.
fn stranger(request: &Parts) -> Extraction {
    match request.extensions.get::<User>() {
        Some(_) => Extraction::skip(),
        None => key::client_ip().extract(request),
    }
}

/// Finds the user's team. Admins are skipped.
fn team(request: &Parts) -> Found {
    match request.extensions.get::<User>() {
        Some(user) if user.plan != "admin" => user.team.into(),
        _ => Found::Skip,
    }
}

fn refuse(refusal: &Refusal<'_>) -> Response<Bytes> {
    let body = serde_json::json!({ "error": refusal.message(), "retry_in": refusal.retry_after_secs() });
    refusal.respond("application/json", body.to_string() + "\n")
}

#[derive(Clone)]
struct App {
    config: Config,
    limiter: RateLimiter,
}

fn read(file: &str) -> Result<Config, ConfigError> {
    let reader = ConfigReader::new().key("caller", caller).key("stranger", stranger).key("team", team);
    reader.read(file, |text| toml::from_str(text))
}

async fn me(State(App { config, limiter }): State<App>, parts: Parts) -> axum::response::Result<String> {
    let (Some(caller), Some(api)) = (caller.subject(&parts).await?, config.policy("api")) else {
        return Ok("no limit\n".into());
    };
    Ok(format!("{} left\n", limiter.remaining(api, caller).await?))
}

fn router(app: App) -> Router {
    let limits = app.config.layer(&app.limiter, caller).client_ip(key::client_ip()).on_refusal(refuse);
    Router::new()
        .route("/", get(|| async { "hello\n" }))
        .route("/export", get(|| async { "all of it\n" }))
        .route("/search", get(|| async { "found\n" }))
        .route("/me", get(me))
        .layer(from_fn(refuse_wrong_tokens))
        .layer(limits)
        .layer(from_fn(authenticate)) // outermost
        .with_state(app)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let ours = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/service/limits.toml");
    let config = match read(&std::env::args().nth(1).unwrap_or_else(|| ours.into())) {
        Ok(config) => config,
        // `Display` prints one error per line; returning the error would print it with `Debug`.
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(1);
        }
    };
    let limiter = config.limiter(MemoryBackend::new()).build();

    let port = std::env::var("PORT").unwrap_or_else(|_| "3000".into());
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    println!("service: on http://{}", listener.local_addr()?);
    let app = router(App { config, limiter });
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
