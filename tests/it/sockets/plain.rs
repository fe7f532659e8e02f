//! A plain hyper server without axum. It uses custom body types and gets peer addresses from its accept loop.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use axum::body::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tollgate::key::PeerAddr;
use tollgate::{
    MINUTE, MemoryBackend, Policy, Quota, RateLimitLayer, RateLimiter, RouteLimits, key,
    observe::{Decided, Mistake, MistakeKind, Observer},
};
use tower::{Layer, service_fn};

use crate::support::connections::{get, http1, http2, limiter, listen, text};

const TWO: Policy = Policy::new("two", Quota::token_bucket(2, MINUTE));

/// A custom body with trailers. It is neither `Default` nor `Clone`. The frames are stored in reverse order.
struct WordsBody(Vec<&'static str>);

impl Body for WordsBody {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
        Poll::Ready(match self.0.pop() {
            Some("") => {
                let mut trailers = http::HeaderMap::new();
                trailers.insert("x-end", 1.into());
                Some(Ok(Frame::trailers(trailers)))
            }
            word => word.map(|word| Ok(Frame::data(Bytes::from_static(word.as_bytes())))),
        })
    }
}

async fn words(request: Request<Incoming>) -> Result<Response<WordsBody>, Infallible> {
    let body = request.into_body().collect().await.unwrap().to_bytes();
    Ok(Response::new(WordsBody(vec!["", " plain hyper", if body.is_empty() { "hello" } else { "thanks" }])))
}

/// Runs a server behind `layer` until the test's runtime shuts down. `peer` returns the address to record for a
/// connection.
async fn serve(layer: RateLimitLayer, peer: fn(SocketAddr) -> Option<PeerAddr>) -> SocketAddr {
    let (listener, address) = listen().await;
    let service = layer.layer(service_fn(words));
    tokio::spawn(async move {
        loop {
            let (stream, remote) = listener.accept().await.unwrap();
            let peer = peer(remote);
            let service = tower::util::MapRequest::new(service.clone(), move |mut request: Request<Incoming>| {
                if let Some(peer) = peer {
                    request.extensions_mut().insert(peer);
                }
                request
            });
            tokio::spawn(async move {
                let server = auto::Builder::new(TokioExecutor::new());
                server.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service)).await.unwrap();
            });
        }
    });
    address
}

#[tokio::test]
async fn custom_bodies_and_refusals_work_over_http_1_and_http_2() {
    let (limiter, clock) = limiter();
    let address =
        serve(RateLimitLayer::new(TWO, key::client_ip()).limiter(&limiter), |peer| Some(PeerAddr(peer))).await;
    let (mut one, mut two) = (http1(address).await, http2(address).await);
    for round in 0..2 {
        clock.advance(round * MINUTE);
        let first = one.send_request(get(address, "/")).await.unwrap();
        assert_eq!(
            (first.status().as_u16(), &first.headers()["ratelimit"]),
            (200, &r#""two";r=1;t=30"#.parse().unwrap())
        );
        assert_eq!(text(first).await, "hello plain hyper");

        let second = two.send_request(get(address, "/")).await.unwrap();
        assert_eq!(second.status(), 200);
        let body = second.into_body().collect().await.unwrap();
        assert_eq!(body.trailers().map(|trailers| trailers["x-end"].clone()), Some(1.into()));
        assert_eq!(body.to_bytes(), "hello plain hyper");

        let refusals =
            [one.send_request(get(address, "/")).await.unwrap(), two.send_request(get(address, "/")).await.unwrap()];
        for refused in refusals {
            assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (429, &30.into()));
            assert_eq!(refused.headers()["content-type"], "application/problem+json");
            let length = refused.headers()["content-length"].to_str().unwrap().parse::<usize>().unwrap();
            let body = text(refused).await;
            assert!(body.len() == length && body.contains("quota-exceeded"), "{body}");
        }
    }
}

#[tokio::test]
async fn the_accept_loop_can_override_the_peer_address() {
    // An accept loop can replace the socket's address, for example with the address in a PROXY protocol header.
    let address = serve(RateLimitLayer::new(TWO, key::client_ip()), |peer| {
        static NEXT: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(1);
        let last = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Some(PeerAddr(SocketAddr::new([203, 0, 113, last].into(), peer.port())))
    })
    .await;
    for _connection in 0..3 {
        let mut sender = http2(address).await;
        let mut statuses = Vec::new();
        for _ in 0..3 {
            statuses.push(sender.send_request(get(address, "/")).await.unwrap().status().as_u16());
        }
        assert_eq!(statuses, [200, 200, 429]);
    }
}

#[tokio::test]
async fn only_the_observer_gets_advice_about_a_missing_peer_address() {
    #[derive(Default)]
    struct Log(Mutex<Vec<(MistakeKind, String)>>);

    impl Observer for Log {
        fn decided(&self, _: &Decided<'_>) {}

        fn mistake(&self, mistake: &Mistake) {
            self.0.lock().unwrap().push((mistake.kind(), mistake.to_string()));
        }
    }

    let log = Arc::new(Log::default());
    let limiter = RateLimiter::builder(MemoryBackend::new()).observer(Arc::clone(&log)).build();
    let layer = RateLimitLayer::new(TWO, key::client_ip()).limiter(&limiter).grpc();
    let address = serve(layer, |_| None).await;
    let mut sender = http1(address).await;
    for content_type in ["text/plain", "application/grpc", "application/grpc"] {
        let mut request = get(address, "/");
        request.headers_mut().insert("content-type", content_type.parse().unwrap());
        let answer = sender.send_request(request).await.unwrap();
        let (status, grpc) = (answer.status().as_u16(), answer.headers().get("grpc-message").cloned());
        let message = "the request has no peer address to limit by";
        let body = text(answer).await;
        if let Some(grpc) = grpc {
            assert_eq!((status, grpc.to_str().unwrap(), &*body), (200, message, ""));
        } else {
            assert_eq!((status, content_type), (500, "text/plain"));
            assert!(body.contains(message) && !body.contains("axum") && !body.contains("tollgate"), "{body}");
        }
    }
    assert_eq!(limiter.stats().mistakes.missing_peers, 3);
    let log = log.0.lock().unwrap();
    let [(MistakeKind::MissingPeer, advice)] = &log[..] else {
        panic!("expected exactly one report of a missing peer, found {log:?}")
    };
    for remedy in ["`tonic` feature", "into_make_service_with_connect_info", "key::PeerAddr"] {
        assert!(advice.contains(remedy), "{advice}");
    }
}

#[tokio::test]
async fn a_route_table_wrapping_a_plain_hyper_service_matches_by_path() {
    let limits = RouteLimits::new(key::client_ip())
        .policy(TWO)
        .policy(Policy::new("files", Quota::token_bucket(3, MINUTE)))
        .policy(Policy::new("pictures", Quota::token_bucket(4, MINUTE)))
        .default_policy(Policy::new("rest", Quota::token_bucket(9, MINUTE)));
    let layer = limits.limiter(&limiter().0).table([
        ("GET /words", "two"),
        ("/files/{*path}", "files"),
        ("/files/pictures/{*path}", "pictures"),
        ("POST /files/a", "two"),
        ("/users/{id}", "two"),
    ]);
    let address = serve(layer.clone(), |peer| Some(PeerAddr(peer))).await;
    let mut sender = http2(address).await;
    for (path, expected) in [
        ("/words", r#""two";r=1;t=30"#),
        ("/words?many=7", r#""two";r=0;t=30"#),
        ("/files/a", r#""files";r=2;t=40"#),
        ("/files/pictures/a/b", r#""pictures";r=3;t=45"#),
        ("/files/pictures", r#""files";r=1;t=20"#),
        // Wildcards match one or more characters, paths are not decoded, and parameters match only in a router.
        ("/files/", r#""rest";r=8;t=54"#),
        ("/%77ords", r#""rest";r=7;t=47"#),
        ("/users/7", r#""rest";r=6;t=40"#),
    ] {
        let response = sender.send_request(get(address, path)).await.unwrap();
        assert_eq!(
            (response.status().as_u16(), &response.headers()["ratelimit"]),
            (200, &expected.parse().unwrap()),
            "{path}"
        );
    }
    assert_eq!(sender.send_request(get(address, "/words")).await.unwrap().status(), 429);
    assert_eq!((layer.unused_routes(), layer.unmatched_requests()), (vec!["POST /files/a", "/users/{id}"], 3));
}

#[tokio::test]
async fn the_layer_works_in_a_hyper_service_fn_without_an_adapter() {
    // This service function calls the tower service without hyper-util's adapter.
    let (listener, address) = listen().await;
    let limited = RateLimitLayer::new(TWO, key::global()).layer(service_fn(words));
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let service = hyper::service::service_fn(move |request| tower::ServiceExt::oneshot(limited.clone(), request));
        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await.unwrap();
    });
    let mut sender = http1(address).await;
    for status in [200, 200, 429] {
        let response = sender.send_request(get(address, "/")).await.unwrap();
        assert_eq!(response.status(), status);
        text(response).await;
    }
}
