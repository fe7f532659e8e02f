//! A server of hyper's own, without axum: any body type, and the peer's address from whoever accepts the connections.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tollgate::key::PeerAddr;
use tollgate::{MINUTE, Policy, Quota, RateLimitLayer, key};
use tower::{Layer, service_fn};

use crate::connections::{get, http1, http2, limiter, listen, text};

const TWO: Policy = Policy::new("two", Quota::token_bucket(2, MINUTE));

/// A body of the service's own: neither `Default` nor `Clone`, made of what is left of a text, with trailers after it.
struct Words(Vec<&'static str>);

impl Body for Words {
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

async fn words(request: Request<Incoming>) -> Result<Response<Words>, Infallible> {
    // The request's body comes through unread.
    let body = request.into_body().collect().await.unwrap().to_bytes();
    Ok(Response::new(Words(vec!["", " plain hyper", if body.is_empty() { "hello" } else { "thanks" }])))
}

/// Serves until the test's runtime ends. `peer` tells whom a connection is from.
async fn serve(layer: RateLimitLayer, peer: fn(SocketAddr) -> Option<PeerAddr>) -> SocketAddr {
    let (listener, address) = listen().await;
    // One service for all connections: clones share the layer's rows, and need not be made by the layer again.
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
async fn a_body_of_its_own_and_a_refusal_go_over_both_protocols() {
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
async fn the_address_is_what_the_acceptor_says() {
    // Whoever accepts may know better than the socket: a PROXY protocol line, say.
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
async fn an_acceptor_that_says_nothing_is_told_what_to_write() {
    let address = serve(RateLimitLayer::new(TWO, key::client_ip()), |_| None).await;
    let answer = http1(address).await.send_request(get(address, "/")).await.unwrap();
    assert_eq!(answer.status(), 500);
    let body = text(answer).await;
    assert!(body.contains("PeerAddr"), "{body}");
}

#[tokio::test]
async fn a_hyper_service_can_be_called_through_the_layer_by_hand() {
    // Without hyper-util's adaptor: a service function that drives the tower service itself.
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
