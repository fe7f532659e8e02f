//! Two processes that share one limit through Redis.
//!
//! ```text
//! $ REDIS_URL=redis://127.0.0.1 cargo run --example redis --features redis
//! two processes, one limit of 10 per minute for each user:
//! process 1 on http://127.0.0.1:3001
//! process 2 on http://127.0.0.1:3002
//! 6 requests to each, alternating: 200 200 200 200 200 200 200 200 200 200 429 429
//! process 1: 0 remaining. process 2: 0 remaining.
//! try it: curl -i -H 'x-user: ada' http://127.0.0.1:3001
//! ```
//!
//! Each user has a separate limit. While the Redis server is unreachable, each process enforces half of the limit
//! independently of the other process (`x-decided-by: Fallback`).

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use axum::Router;
use axum::extract::{Path, State};
use axum::response::IntoResponse;
use axum::routing::get;
use http::request::Parts;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tollgate::backend::RedisBackend;
use tollgate::{FailureMode, Key, LimitError, MINUTE, Policy, Quota, RateLimitLayer, RateLimitStatus, RateLimiter};

static API: Policy = Policy::new("api", Quota::token_bucket(10, MINUTE));

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    match std::env::args().nth(1) {
        Some(process) => serve(&process).await,
        None => start_two().await,
    }
}

async fn serve(process: &str) -> Result<(), Box<dyn std::error::Error>> {
    end_with_parent();
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1".into());
    let limiter =
        RateLimiter::builder(RedisBackend::connect(&url).await?).on_failure(FailureMode::fallback(0.5)).build();
    let app = Router::new()
        .route("/", get(hello))
        .layer(RateLimitLayer::new(&API, user).limiter(&limiter).with_status())
        .route("/left/{user}", get(left))
        .with_state(limiter);
    let port = match std::env::var("PORT").as_deref() {
        Ok("0") => 0,
        _ => 3000 + process.parse::<u16>()?,
    };
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    println!("process {process} on http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}

fn user(request: &Parts) -> Option<Key> {
    request.headers.get("x-user").map(|name| Key::from(name.as_bytes()))
}

async fn hello(status: RateLimitStatus) -> impl IntoResponse {
    let decided_by = status.tightest().map_or_else(String::new, |decision| format!("{:?}", decision.decided_by()));
    ([("x-decided-by", decided_by)], "hello\n")
}

async fn left(State(limiter): State<RateLimiter>, Path(user): Path<String>) -> Result<String, LimitError> {
    let left = limiter.remaining(&API, user.as_bytes()).await?;
    Ok(left.to_string())
}

/// Exits when the parent process exits, which closes the pipe to this process's standard input.
fn end_with_parent() {
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(0);
    });
}

/// Starts two processes and sends requests to them alternately.
async fn start_two() -> Result<(), Box<dyn std::error::Error>> {
    println!("two processes, one limit of 10 per minute for each user:");
    let processes = [Process::start("1")?, Process::start("2")?];
    // Use a new user, who has not spent any tokens yet.
    let user = format!("user-{}-{:?}", std::process::id(), std::time::UNIX_EPOCH.elapsed()?.as_micros());
    let mut statuses = Vec::new();
    for _ in 0..6 {
        for process in &processes {
            let response = send(&process.address, &format!("GET / HTTP/1.1\r\nx-user: {user}")).await?;
            statuses.push(response.split(' ').nth(1).unwrap_or("?").to_owned());
        }
    }
    println!("6 requests to each, alternating: {}", statuses.join(" "));
    let mut remaining = Vec::new();
    for (i, process) in processes.iter().enumerate() {
        let response = send(&process.address, &format!("GET /left/{user} HTTP/1.1")).await?;
        remaining.push(format!("process {}: {} remaining.", i + 1, response.lines().last().unwrap_or("?")));
    }
    println!("{}", remaining.join(" "));
    println!("try it: curl -i -H 'x-user: ada' http://{}", processes[0].address);
    // Wait for an interrupt, after which the child processes exit too.
    std::future::pending::<()>().await;
    Ok(())
}

struct Process {
    child: Child,
    address: String,
}

impl Process {
    fn start(number: &str) -> Result<Process, Box<dyn std::error::Error>> {
        let mut child =
            Command::new(std::env::current_exe()?).arg(number).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let printed = child.stdout.take().ok_or("no output")?;
        let mut line = String::new();
        BufReader::new(printed).read_line(&mut line)?;
        print!("{line}");
        let Some((_, address)) = line.trim_end().split_once("http://") else {
            return Err(format!("process {number} did not start; check that a Redis server runs at REDIS_URL").into());
        };
        Ok(Process { child, address: address.to_owned() })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
    }
}

async fn send(address: &str, request: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(format!("{request}\r\nhost: example\r\nconnection: close\r\n\r\n").as_bytes()).await?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await?;
    Ok(response)
}
