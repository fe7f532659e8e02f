//! The server under attack: axum on hyper, limited by tollgate, with the timeouts and bounds that a limiter cannot set.
//!
//! tollgate limits requests, but it does not see requests whose headers never end or are too large, or responses that
//! clients do not read. Against these, a server needs the following settings, which `axum::serve` does not have:
//!
//! - HTTP/1: a timeout and a maximum size for headers;
//! - HTTP/2: maximums for concurrent streams, the header list and unsent data per stream; pings to detect dead peers;
//! - connections: a maximum number; an idle timeout in both directions; a fixed send buffer, which the kernel would
//!   otherwise grow to megabytes for clients that do not read;
//! - handlers that read a body: a timeout.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener as AdminListener};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::StatusCode;
use axum::routing::{get, post};
use bytes::Bytes;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::RuntimeMetrics;
use tokio::sync::Semaphore;
use tokio_io_timeout::TimeoutStream;
use tollgate::key::{self, PeerAddr};
use tollgate::{DAY, MINUTE, MemoryBackend, Policy, Quota, RateLimitLayer, RateLimiter, SECOND, protection::AutoBlock};
use tower::ServiceExt;

use crate::Result;
use crate::args::Args;

/// A limit for each API key. The window is so long that the flood's rows do not expire, so the table must evict rows.
/// Honest clients spend 600 tokens per window.
pub const KEY: Policy = Policy::new("key", KEY_QUOTA);
const KEY_QUOTA: Quota = Quota::fixed_window(KEY_LIMIT, KEY_WINDOW);
pub const KEY_LIMIT: u64 = 1_000;
pub const KEY_WINDOW: Duration = Duration::from_secs(300);

/// A limit for each address, for callers without a valid key.
pub const CLIENT: Policy = Policy::new("client", Quota::token_bucket(CLIENT_RATE, SECOND).capacity(CLIENT_CAPACITY));
pub const CLIENT_RATE: u64 = 10;
pub const CLIENT_CAPACITY: u64 = 20;

/// A daily limit for each API key. Attackers flood this policy with invented keys, and exhaust the quota of each key.
const TRIAL: Policy = Policy::new("trial", Quota::token_bucket(3, DAY));

/// A limit for each API key that delays requests instead of refusing them.
const WAIT: Policy = Policy::new("wait", Quota::token_bucket(5, SECOND).capacity(5).max_reserved(50));

/// A response that is larger than the kernel's buffers.
const LARGE: usize = 1 << 20;
const SEND_BUFFER: u32 = 128 * 1024;

/// The addresses of the trusted proxies.
const PROXIES: &str = "127.9.0.0/16";

const MAX_CONNECTIONS: usize = 4_096;
const HEADER_TIME: Duration = Duration::from_secs(5);
const BODY_TIME: Duration = Duration::from_secs(10);
/// The idle timeout, which is longer than any honest request waits.
const IDLE_TIME: Duration = Duration::from_secs(15);
const LARGEST_HEAD: usize = 64 * 1024;
const LARGEST_HEADER_LIST: u32 = 16 * 1024;

/// Serves until standard input ends, so that the server does not outlive its parent process.
///
/// The first line of the output contains the addresses of the server and of its status page.
pub fn serve(args: &Args) -> Result<()> {
    let backend = MemoryBackend::builder().max_rows(args.max_rows).build();
    let blocks = AutoBlock::new([&KEY, &CLIENT]).threshold(200).within(MINUTE).block_for(10 * SECOND);
    let limiter = RateLimiter::builder(backend).max_waiting(1_000).auto_block(blocks).build();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let listener = runtime.block_on(async { listen() })?;
    let admin = AdminListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    println!("{} {}", listener.local_addr()?, admin.local_addr()?);

    let (metrics, seen) = (runtime.handle().metrics(), limiter.clone());
    std::thread::spawn(move || serve_status(&admin, &metrics, &seen));
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    runtime.block_on(accept(listener, app(&limiter)));
    Ok(())
}

/// Accepted connections inherit the size of the send buffer.
fn listen() -> std::io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_send_buffer_size(SEND_BUFFER)?;
    socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
    socket.listen(1024)
}

fn app(limiter: &RateLimiter) -> Router {
    let client_ip = || key::client_ip().trust([PROXIES]);
    let by_key = RateLimitLayer::new(KEY, key::header("x-api-key")).limiter(limiter).client_ip(client_ip());
    let by_address = RateLimitLayer::new(CLIENT, client_ip()).limiter(limiter);
    let waiting = RateLimitLayer::new(WAIT, key::header("x-api-key")).limiter(limiter).wait_up_to(5 * SECOND);
    let trial = RateLimitLayer::new(TRIAL, key::header("x-api-key")).limiter(limiter);
    let large = Bytes::from(vec![b'x'; LARGE]);
    Router::new()
        .route("/api", get(|| async { "ok" }).layer(by_key))
        .route("/page", get(|| async { "ok" }).layer(by_address.clone()))
        .route("/large", get(|| async { large }).layer(by_address.clone()))
        .route("/upload", post(upload).layer(by_address))
        .route("/trial", get(|| async { "ok" }).layer(trial))
        .route("/wait", get(|| async { "ok" }).layer(waiting))
}

async fn upload(body: Body) -> StatusCode {
    match tokio::time::timeout(BODY_TIME, to_bytes(body, 1 << 20)).await {
        Ok(Ok(_)) => StatusCode::OK,
        Ok(Err(_)) => StatusCode::BAD_REQUEST,
        Err(_) => StatusCode::REQUEST_TIMEOUT,
    }
}

async fn accept(listener: TcpListener, app: Router) {
    let http = http();
    let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(permit) = Arc::clone(&connections).acquire_owned().await else { return };
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(_) => {
                // Usually, the process has no descriptors left. Retry when some are free.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let _ = stream.set_nodelay(true);
        let mut stream = TimeoutStream::new(stream);
        stream.set_read_timeout(Some(IDLE_TIME));
        stream.set_write_timeout(Some(IDLE_TIME));
        let service = app.clone().map_request(move |mut request: http::Request<hyper::body::Incoming>| {
            request.extensions_mut().insert(PeerAddr(peer));
            request.map(Body::new)
        });
        let http = http.clone();
        tokio::spawn(async move {
            let _permit = permit;
            let io = TokioIo::new(Box::pin(stream));
            // Ignore connection errors.
            let _ = http.serve_connection(io, TowerToHyperService::new(service)).await;
        });
    }
}

fn http() -> Builder<TokioExecutor> {
    let mut http = Builder::new(TokioExecutor::new());
    http.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIME).max_buf_size(LARGEST_HEAD);
    http.http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(128)
        .max_header_list_size(LARGEST_HEADER_LIST)
        .max_send_buf_size(64 * 1024)
        .keep_alive_interval(Duration::from_secs(10))
        .keep_alive_timeout(Duration::from_secs(5));
    http
}

/// Serves the status page, which can be read with `curl`. A separate thread serves it, so that it responds even under
/// load.
fn serve_status(admin: &AdminListener, metrics: &RuntimeMetrics, limiter: &RateLimiter) {
    for stream in admin.incoming() {
        let Ok(mut stream) = stream else { continue };
        let stats = limiter.stats();
        let text = format!(
            "HTTP/1.0 200 OK\r\n\r\ntasks {}\nrows {}\nwaiting {}\noffenders {}\nblocked {}\n",
            metrics.num_alive_tasks(),
            stats.rows.unwrap_or(0),
            stats.waiting,
            stats.offenders,
            stats.blocked,
        );
        let _ = stream.write_all(text.as_bytes());
    }
}

/// Parses the server's addresses from its first line.
pub fn parse_line(line: &str) -> Result<(SocketAddr, SocketAddr)> {
    let (server, admin) =
        line.trim().split_once(' ').ok_or_else(|| format!("unexpected first line of the server: {line:?}"))?;
    Ok((server.parse()?, admin.parse()?))
}
