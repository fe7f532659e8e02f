//! Limits that survive a restart without Redis: the state is saved on shutdown and loaded on start.
//!
//! Run it with `cargo run --example save_and_load`, and spend three of its five tokens:
//! ```text
//! $ for i in $(seq 3); do curl -s -o /dev/null -w '%{http_code} ' http://127.0.0.1:3000; done
//! 200 200 200
//! ```
//!
//! Stop the program with Ctrl-C or SIGTERM. It finishes the requests in progress and prints:
//! ```text
//! saved 1 row
//! ```
//!
//! Start it again. It prints `loaded 1 row`, and only two tokens are left:
//! ```text
//! $ for i in $(seq 3); do curl -s -o /dev/null -w '%{http_code} ' http://127.0.0.1:3000; done
//! 200 200 429
//! ```
//!
//! The files are in `tollgate-example` in the system's temporary directory, or in the directory that the environment
//! variable `STATE_DIR` names.

use std::error::Error;
use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use axum::{Router, routing::get};
use tokio::net::TcpListener;
use tollgate::key::Secret;
use tollgate::{HOUR, MemoryBackend, Policy, Quota, RateLimitLayer, RateLimiter, key};

const HELLO: Policy = Policy::new("hello", Quota::token_bucket(5, HOUR));

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory =
        std::env::var_os("STATE_DIR").map_or_else(|| std::env::temp_dir().join("tollgate-example"), PathBuf::from);
    fs::create_dir_all(&directory)?;
    let state = directory.join("limits.state");

    let secret = secret(&directory.join("limits.secret"))?;
    let limiter = RateLimiter::new(MemoryBackend::builder().secret(secret).build());
    match limiter.load_from_file(&state) {
        Ok(Some(loaded)) => println!("loaded {}", rows(loaded.rows)),
        Ok(None) => println!("no saved state"),
        // Nothing was loaded, so all callers have their full quotas.
        Err(error) => {
            eprintln!("starting without the saved state: {error}");
            // Without this, saving on shutdown would replace the file.
            fs::rename(&state, state.with_extension("unreadable"))?;
        }
    }

    let layer = RateLimitLayer::new(HELLO, key::client_ip()).limiter(&limiter);
    let app = Router::new().route("/", get(|| async { "hello\n" })).layer(layer);

    let port = std::env::var("PORT").unwrap_or_else(|_| "3000".into());
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    println!("save_and_load: 5 requests per hour for each client address, on http://{}", listener.local_addr()?);
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>())
        .with_graceful_shutdown(shutdown())
        .await?;

    // All requests are finished, so nothing is charged while the state is saved.
    println!("saved {}", rows(limiter.save_to_file(&state)?.rows));
    Ok(())
}

/// Reads the secret, or creates a secret on the first run. In production, keep it where you keep passwords.
fn secret(path: &Path) -> Result<Secret, Box<dyn Error>> {
    if !path.exists() {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)?;
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        options.open(path)?.write_all(&bytes)?;
    }
    let bytes: [u8; 16] = fs::read(path)?.try_into().map_err(|_| format!("{}: expected 16 bytes", path.display()))?;
    Ok(Secret::new(bytes))
}

/// Completes when the process is asked to stop.
async fn shutdown() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        match signal(SignalKind::terminate()) {
            Ok(mut terminate) => tokio::select! {
                _ = terminate.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            },
            Err(error) => {
                eprintln!("stop with Ctrl-C only: cannot listen for SIGTERM: {error}");
                let _ = tokio::signal::ctrl_c().await;
            }
        }
    }
    #[cfg(not(unix))]
    let _ = tokio::signal::ctrl_c().await;
}

fn rows(number: usize) -> String {
    if number == 1 { "1 row".to_owned() } else { format!("{number} rows") }
}
