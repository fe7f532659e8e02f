//! Requests that end without a response keep their charges, whoever might have settled them.

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

use crate::app::{TEN, left, team};
use crate::client::{limiter, serve};

/// Layers that would settle if they could: by the response, and by a handle that is dropped with the request.
fn layers(limiter: &RateLimiter) -> [RateLimitLayer; 3] {
    let layer = RateLimitLayer::new(TEN, team).limiter(limiter);
    let reset = layer.clone().on_response(|_| OnResponse::Reset).with_receipt();
    [layer.clone().on_response(|_| OnResponse::Refund), layer.with_receipt(), reset]
}

type Answer = Pin<Box<dyn Future<Output = Result<Response<()>, &'static str>> + Send>>;

/// What becomes of a request whose service does `serve`, under each of the layers: three tokens are gone.
async fn keeps<F>(serve: fn(Request<()>) -> Answer, end: impl Fn(Answer) -> F)
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
async fn a_handler_that_panics_keeps_the_charge() {
    fn at_once(_: Request<()>) -> Answer {
        panic!("as the test wants it")
    }
    fn later(request: Request<()>) -> Answer {
        Box::pin(async move {
            tokio::task::yield_now().await;
            let _until_here = request;
            panic!("as the test wants it")
        })
    }
    for serve in [at_once, later] {
        keeps(serve, |answer| async { assert!(tokio::spawn(answer).await.unwrap_err().is_panic()) }).await;
    }
}

#[tokio::test]
async fn a_service_that_fails_keeps_the_charge() {
    fn fails(_: Request<()>) -> Answer {
        Box::pin(async { Err("of its own") })
    }
    keeps(fails, |answer| async { assert_eq!(answer.await.unwrap_err(), "of its own") }).await;
}

#[tokio::test]
async fn a_timeout_outside_keeps_the_charge() {
    fn never(request: Request<()>) -> Answer {
        Box::pin(async move {
            let _until_here = request;
            pending().await
        })
    }
    let timeout = |answer| async { assert!(tokio::time::timeout(Duration::ZERO, answer).await.is_err()) };
    keeps(never, timeout).await;
    keeps(never, |mut answer| async move {
        assert!(answer.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    })
    .await;
}

#[tokio::test]
async fn a_client_that_leaves_keeps_the_charge() {
    let (limiter, _clock) = limiter();
    for (layer, remaining) in layers(&limiter).into_iter().zip([9, 8, 7]) {
        let (signs, mut handler) = mpsc::channel::<()>(1);
        let never = move || async move {
            signs.send(()).await.unwrap();
            pending::<()>().await
        };
        let client = serve(Router::new().route("/", get(never)).layer(layer)).await;
        let mut stream = TcpStream::connect(client.0).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n").await.unwrap();
        handler.recv().await.expect("the request is there");
        drop(stream);
        // The handler is dropped with its sign when the server finds out.
        assert!(tokio::time::timeout(Duration::from_secs(20), gone(handler)).await.is_ok());
        assert_eq!(left(&limiter, &TEN).await, remaining);
    }
}

/// Until only the route holds a clone of the handler, and no request another one.
async fn gone(handler: mpsc::Receiver<()>) {
    while handler.sender_strong_count() > 1 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_handle_that_is_dropped_keeps_the_charge() {
    let (limiter, _clock) = limiter();
    let layer = RateLimitLayer::new(TEN, team).cost(|_| 4).with_receipt().limiter(&limiter);
    let inner = service_fn(|request: Request<()>| async move {
        let usage = request.extensions().get::<Receipt>().cloned().unwrap();
        drop((usage.clone(), request));
        assert!(!usage.is_settled());
        drop(usage);
        Ok::<_, Infallible>(Response::new(()))
    });
    layer.layer(inner).oneshot(Request::new(())).await.unwrap();
    drop(limiter.acquire(&TEN, "team").cost(3).hold().await.unwrap().into_receipt());
    assert_eq!(left(&limiter, &TEN).await, 3);
}
