//! All limits in a file, `limits.toml`, which is read again while the server runs.
//!
//! ```text
//! cargo run --example config_file --features serde                    # with examples/config_file/limits.toml
//! cargo run --example config_file --features serde -- my_limits.toml  # with another one
//! ```
//!
//! ```text
//! $ curl -si -X POST http://127.0.0.1:3000/todos | grep ratelimit-policy
//! ratelimit-policy: "create";q=5;w=60
//! $ curl -si http://127.0.0.1:3000/todos | grep ratelimit-policy
//! ratelimit-policy: "default";q=60;w=60
//! ```
//!
//! Change `quota = "5/min"` to `quota = "3/min"` in the file, and tell the server on its other port, which is for
//! operators. What a caller has spent stays spent:
//!
//! ```text
//! $ curl -X POST http://127.0.0.1:3001/reload
//! policies.create.quota: 5/min → 3/min
//! $ curl -si -X POST http://127.0.0.1:3000/todos | grep ratelimit:
//! ratelimit: "create";r=1;t=40
//! ```
//!
//! A file that is broken changes nothing, and so does one that takes a restart. All that is wrong is told at once:
//!
//! ```text
//! $ curl -X POST http://127.0.0.1:3001/reload
//! limits.toml: policies.create.quota: quota "3/mim": expected a period such as "min" or "30s", found "mim"; units: us ms s min h d w
//! limits.toml: routes."/search": unknown policy "saerch" (did you mean "search"?); known policies: "create", "default", "search"
//! The limits are as they were.
//! ```

use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use tokio::net::TcpListener;
use tollgate::{Config, MemoryBackend, RateLimiter, config::ConfigError, key};

/// What a reload needs: the configuration that the server started with, and the limiter that runs by it.
struct Limits {
    file: PathBuf,
    config: Config,
    limiter: RateLimiter,
}

impl Limits {
    fn read(file: PathBuf) -> Result<Limits, ConfigError> {
        let config = Config::read(&file, |text| toml::from_str(text))?;
        let limiter = config.limiter(MemoryBackend::new()).build();
        Ok(Limits { file, config, limiter })
    }

    /// Puts in force what is in the file now: all of it, or nothing.
    async fn reload(&self) -> Result<String, ConfigError> {
        let new = Config::read(&self.file, |text| toml::from_str(text))?;
        let reloaded = self.config.reload(&self.limiter, &new).await?;
        Ok(reloaded.to_string())
    }
}

fn app(limits: &Limits) -> Router {
    Router::new()
        .route("/todos", get(|| async { "milk\n" }).post(|| async { (StatusCode::CREATED, "created\n") }))
        .route("/search", get(|| async { Json(["milk"]) }))
        .layer(limits.config.layer(&limits.limiter, key::client_ip()))
}

/// For operators only: on a port of its own, which no proxy in front of the server passes on. A signal (SIGHUP) would
/// do as well, but has no answer.
fn operators(limits: Arc<Limits>) -> Router {
    Router::new().route("/reload", post(reload)).with_state(limits)
}

async fn reload(State(limits): State<Arc<Limits>>) -> (StatusCode, String) {
    match limits.reload().await {
        Ok(changes) => {
            println!("{changes}");
            (StatusCode::OK, format!("{changes}\n"))
        }
        Err(error) => {
            println!("{error}\nThe limits are as they were.");
            (StatusCode::UNPROCESSABLE_ENTITY, format!("{error}\nThe limits are as they were.\n"))
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let ours = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/config_file/limits.toml");
    let file = std::env::args().nth(1).unwrap_or_else(|| ours.into());
    let limits = match Limits::read(file.into()) {
        Ok(limits) => Arc::new(limits),
        // As it is for reading, line by line.
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(1);
        }
    };

    let port: u16 = std::env::var("PORT").unwrap_or_else(|_| "3000".into()).parse()?;
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    let private = TcpListener::bind(("127.0.0.1", if port == 0 { 0 } else { port + 1 })).await?;
    println!("config_file: on http://{}", listener.local_addr()?);
    println!("config_file: POST /reload on http://{}", private.local_addr()?);

    let operators = operators(Arc::clone(&limits));
    tokio::spawn(async move { axum::serve(private, operators).await });
    axum::serve(listener, app(&limits).into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
