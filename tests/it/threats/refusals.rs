//! Threats 26 and 27: refusals that are as expensive as the work they prevent, and logs that fill the disk.

use std::convert::Infallible;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::request::Parts;
use axum::routing::post;
use http_body::Frame;
use tollgate::key::Extraction;
use tollgate::{
    RateLimitLayer,
    key::{self, KeyExtractor},
};

use super::client::{ONE, limiter, request, send};

/// A body that panics when it is read.
struct Untouchable;

impl http_body::Body for Untouchable {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        panic!("the body of a refused request was read");
    }
}

fn upload(body: Body) -> Request {
    let mut request = request::<&str, &str>("198.51.100.1", &[]);
    *request.method_mut() = axum::http::Method::POST;
    *request.body_mut() = body;
    request
}

#[tokio::test]
async fn t26_bodies_of_refused_requests_are_not_read_and_the_service_is_not_called() {
    let by_layer: [fn() -> RateLimitLayer; 4] = [
        || RateLimitLayer::new(ONE, key::client_ip()),
        || RateLimitLayer::new(ONE, |_: &Parts| Extraction::later(async { Some(7) })),
        || RateLimitLayer::new(ONE, key::client_ip()).on_refusal(|refusal| refusal.default_response()),
        || RateLimitLayer::new(ONE, key::client_ip()).cost(|_| 1).retry_jitter(tollgate::MINUTE).with_status(),
    ];
    for layer in by_layer {
        let called = Arc::new(AtomicUsize::new(0));
        let handler = {
            let called = Arc::clone(&called);
            move |_body: Bytes| async move { called.fetch_add(1, Ordering::Relaxed).to_string() }
        };
        let (limiter, _backend, _clock) = limiter();
        let app = Router::new().route("/", post(handler)).layer(layer().limiter(&limiter));
        assert_eq!(send(&app, upload(Body::from("a small one"))).await.status, 200);
        for _ in 0..100 {
            assert_eq!(send(&app, upload(Body::new(Untouchable))).await.status, 429);
        }
        assert_eq!(called.load(Ordering::Relaxed), 1);
    }
    let app = Router::new()
        .route("/", post(|_body: Bytes| async {}))
        .layer(RateLimitLayer::new(ONE, key::header("x-missing").or_reject()));
    assert_eq!(send(&app, upload(Body::new(Untouchable))).await.status, 400);
}

#[tokio::test]
async fn t26_a_refusal_is_small_even_if_the_request_is_large() {
    let (limiter, _backend, _clock) = limiter();
    let layer = RateLimitLayer::new(ONE, key::header("x-api-key").or(key::client_ip())).limiter(&limiter);
    let app = Router::new().route("/", post(|_body: Bytes| async {})).layer(layer);
    let mut sizes = Vec::new();
    for value in ["k".to_owned(), "k".repeat(1_000_000)] {
        for _ in 0..2 {
            let mut request = upload(Body::empty());
            request.headers_mut().insert("x-api-key", value.parse().unwrap());
            let answer = send(&app, request).await;
            let head: usize = answer.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
            sizes.push((answer.status, head + answer.body.len()));
        }
    }
    assert_eq!((sizes[1].0, sizes[1]), (429, sizes[3]));
    assert!(sizes[1].1 < 600, "{sizes:?}");
}

#[test]
fn t27_only_the_tracing_observer_writes_to_a_log() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut files, mut offending_lines) = (0, Vec::new());
    visit(&source, &mut |path, text| {
        files += 1;
        // Skip tests, and skip comments because they contain examples.
        let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        for (number, line) in code.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//")) {
            // The tracing observer is opt-in and samples its events (`tests/it/observe/sampling.rs`).
            let is_observer = path.starts_with(source.join("observe")) && line.contains("tracing::");
            // The model runner for `proof/` and the lease simulation may print.
            let is_model =
                path == source.join("sync/model.rs") || path.starts_with(source.join("limiter/leases/tests"));
            if writes(line) && !is_observer && !is_model {
                offending_lines.push(format!("{}:{}: {}", path.display(), number + 1, line.trim()));
            }
        }
    });
    assert!(files > 40, "only {files} files found");
    assert!(offending_lines.is_empty(), "{}", offending_lines.join("\n"));
}

fn writes(line: &str) -> bool {
    ["println!", "print!", "dbg!", "log::", "tracing::", "stdout()", "stderr()"].iter().any(|word| {
        // Count `eprintln!` as `println!`, but not `catalog::` as `log::`.
        line.match_indices(word).any(|(at, _)| !line[..at].ends_with(|c: char| c.is_alphanumeric() && c != 'e'))
    })
}

#[test]
fn t27_lines_that_write_to_a_log_are_detected() {
    for line in
        ["println!(\"x\")", "  eprintln!()", "tracing::info!(x)", "log::warn!()", "dbg!(x)", "std::io::stderr()"]
    {
        assert!(writes(line), "{line}");
    }
    assert!(!writes("writeln!(f, \"x\")") && !writes("catalog::open()"));
}

fn visit(folder: &Path, visitor: &mut impl FnMut(&Path, &str)) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            visit(&path, visitor);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            visitor(&path, &std::fs::read_to_string(&path).unwrap());
        }
    }
}
