//! Requests that end without a response stay charged.

use std::convert::Infallible;
use std::future::{Future, pending};
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use axum::Router;
use axum::http::{Request, Response};
use axum::routing::get;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tollgate::{OnResponse, RateLimitLayer, RateLimiter, Receipt};
use tower::{Layer, ServiceExt, service_fn};

use super::app::{TEN, left, team};
use crate::support::client::{limiter, serve};

/// Creates layers that could settle a charge through the response, through a receipt, or through both.
fn layers(limiter: &RateLimiter) -> [RateLimitLayer; 3] {
    let layer = RateLimitLayer::new(TEN, team).limiter(limiter);
    let reset = layer.clone().on_response(|_| OnResponse::Reset).with_receipt();
    [layer.clone().on_response(|_| OnResponse::Refund), layer.with_receipt(), reset]
}

type ResponseFuture = Pin<Box<dyn Future<Output = Result<Response<()>, &'static str>> + Send>>;

/// Calls `serve` inside each layer, ends the request with `end` and asserts that the request stays charged.
async fn assert_charge_kept<F>(serve: fn(Request<()>) -> ResponseFuture, end: impl Fn(ResponseFuture) -> F)
where
    F: Future<Output = ()>,
{
    let (limiter, _clock) = limiter();
    for (layer, remaining) in layers(&limiter).into_iter().zip([9, 8, 7]) {
        let service = layer.layer(service_fn(serve)).map_response(|response| response.map(|_| ()));
        end(Box::pin(service.oneshot(Request::new(())))).await;
        assert_eq!(left(&limiter, &TEN).await, remaining);
    }
}

#[tokio::test]
async fn a_request_stays_charged_if_the_handler_panics() {
    fn immediately(_: Request<()>) -> ResponseFuture {
        panic!("panic requested by the test")
    }
    fn later(request: Request<()>) -> ResponseFuture {
        Box::pin(async move {
            tokio::task::yield_now().await;
            let _until_here = request;
            panic!("panic requested by the test")
        })
    }
    for serve in [immediately, later] {
        assert_charge_kept(serve, |answer| async { assert!(tokio::spawn(answer).await.unwrap_err().is_panic()) }).await;
    }
}

#[tokio::test]
async fn a_request_stays_charged_if_the_service_fails() {
    fn fails(_: Request<()>) -> ResponseFuture {
        Box::pin(async { Err("inner error") })
    }
    assert_charge_kept(fails, |answer| async { assert_eq!(answer.await.unwrap_err(), "inner error") }).await;
}

#[tokio::test]
async fn a_request_stays_charged_if_an_outer_timeout_elapses() {
    fn never(request: Request<()>) -> ResponseFuture {
        Box::pin(async move {
            let _until_here = request;
            pending().await
        })
    }
    let timeout = |answer| async { assert!(tokio::time::timeout(Duration::ZERO, answer).await.is_err()) };
    assert_charge_kept(never, timeout).await;
    assert_charge_kept(never, |mut answer| async move {
        assert!(answer.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    })
    .await;
}

#[tokio::test]
async fn a_request_stays_charged_if_the_client_disconnects() {
    let (limiter, _clock) = limiter();
    for (layer, remaining) in layers(&limiter).into_iter().zip([9, 8, 7]) {
        let (started, mut handler) = mpsc::channel::<()>(1);
        let never = move || async move {
            started.send(()).await.unwrap();
            pending::<()>().await
        };
        let client = serve(Router::new().route("/", get(never)).layer(layer)).await;
        let mut stream = TcpStream::connect(client.0).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n").await.unwrap();
        handler.recv().await.expect("the handler did not start");
        drop(stream);
        // The server drops the handler and its sender when it notices the disconnect.
        assert!(tokio::time::timeout(Duration::from_secs(20), handler_dropped(handler)).await.is_ok());
        assert_eq!(left(&limiter, &TEN).await, remaining);
    }
}

/// Waits until only the route's clone of the handler is left.
async fn handler_dropped(handler: mpsc::Receiver<()>) {
    while handler.sender_strong_count() > 1 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_request_stays_charged_if_its_receipt_is_dropped() {
    let (limiter, _clock) = limiter();
    let layer = RateLimitLayer::new(TEN, team).cost(|_| 4).with_receipt().limiter(&limiter);
    let inner = service_fn(|request: Request<()>| async move {
        let receipt = request.extensions().get::<Receipt>().cloned().unwrap();
        drop((receipt.clone(), request));
        assert!(!receipt.is_settled());
        drop(receipt);
        Ok::<_, Infallible>(Response::new(()))
    });
    layer.layer(inner).oneshot(Request::new(())).await.unwrap();
    drop(limiter.acquire(&TEN, "team").cost(3).hold().await.unwrap().into_receipt());
    assert_eq!(left(&limiter, &TEN).await, 3);
}
