//! All limits in a file, `limits.toml`, which can be reloaded while the server runs.
//!
//! ```text
//! cargo run --example config_file --features serde                    # with examples/config_file/limits.toml
//! cargo run --example config_file --features serde -- my_limits.toml  # with another file
//! ```
//!
//! ```text
//! $ curl -si -X POST http://127.0.0.1:3000/todos | grep ratelimit-policy
//! ratelimit-policy: "create";q=5;w=60
//! $ curl -si http://127.0.0.1:3000/todos | grep ratelimit-policy
//! ratelimit-policy: "default";q=60;w=60
//! ```
//!
//! Change `quota = "5/min"` to `quota = "3/min"` in the file, and reload it on the second port, which is for operators.
//! The reload does not refill tokens:
//! ```text
//! $ curl -X POST http://127.0.0.1:3001/reload
//! policies.create.quota: 5/min → 3/min
//! $ curl -si -X POST http://127.0.0.1:3000/todos | grep ratelimit:
//! ratelimit: "create";r=1;t=40
//! ```
//!
//! If the file has errors or a change requires a restart, the reload changes nothing. All errors are listed:
//! ```text
//! $ curl -X POST http://127.0.0.1:3001/reload
//! limits.toml: policies.create.quota: quota "3/mim": expected a period such as "min" or "30s", found "mim"; units: us ms s min h d w
//! limits.toml: routes."/search": unknown policy "saerch" (did you mean "search"?); known policies: "create", "default", "search"
//! The limits are unchanged.
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

/// The file, the configuration that the server started with, and the limiter.
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

    /// Applies the current content of the file, completely or not at all.
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

/// Serves operators only, on a separate port that proxies must not expose. A signal (SIGHUP) would work too, but
/// cannot return errors.
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
            println!("{error}\nThe limits are unchanged.");
            (StatusCode::UNPROCESSABLE_ENTITY, format!("{error}\nThe limits are unchanged.\n"))
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let ours = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/config_file/limits.toml");
    let file = std::env::args().nth(1).unwrap_or_else(|| ours.into());
    let limits = match Limits::read(file.into()) {
        Ok(limits) => Arc::new(limits),
        // `Display` prints one error per line; returning the error would print it with `Debug`.
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
