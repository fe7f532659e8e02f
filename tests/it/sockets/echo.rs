//! A handwritten gRPC service, `test.Echo`. Its messages are raw bytes, so the tests do not need a protobuf compiler.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use axum::body::Bytes;
use bytes::{Buf, BufMut};
use http::uri::PathAndQuery;
use tollgate::RateLimitLayer;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status};
use tower::Service;

use crate::support::connections::listen;

pub(crate) const METHOD: &str = "/test.Echo/Say";

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RawCodec;

impl Codec for RawCodec {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = RawCodec;
    type Decoder = RawCodec;

    fn encoder(&mut self) -> RawCodec {
        RawCodec
    }

    fn decoder(&mut self) -> RawCodec {
        RawCodec
    }
}

impl Encoder for RawCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(item);
        Ok(())
    }
}

impl Decoder for RawCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

/// Equivalent to the output of `tonic-build` for a service whose only method echoes its message.
#[derive(Clone, Debug, Default)]
pub(crate) struct Echo {
    pub(crate) calls: Arc<AtomicUsize>,
}

impl Service<http::Request<tonic::body::Body>> for Echo {
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        let calls = Arc::clone(&self.calls);
        Box::pin(async move {
            let say = tower::service_fn(move |request: Request<Bytes>| {
                calls.fetch_add(1, Ordering::Relaxed);
                async move { Ok::<_, Status>(Response::new(request.into_inner())) }
            });
            Ok(tonic::server::Grpc::new(RawCodec).unary(say, request).await)
        })
    }
}

/// Runs the service behind `layer.grpc()` until the test's runtime shuts down.
pub(crate) async fn serve(layer: RateLimitLayer) -> (SocketAddr, Echo) {
    serve_with(layer.grpc()).await
}

/// Like [`serve`], but does not call `grpc()` on the layer.
pub(crate) async fn serve_with(layer: RateLimitLayer) -> (SocketAddr, Echo) {
    let (listener, address) = listen().await;
    let echo = Echo::default();
    let service = echo.clone();
    tokio::spawn(async move {
        let server = Server::builder().accept_http1(true).layer(layer);
        server.serve_with_incoming(service, TcpIncoming::from(listener)).await.unwrap();
    });
    (address, echo)
}

pub(crate) struct Client(tonic::client::Grpc<Channel>);

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Client {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        Client(tonic::client::Grpc::new(endpoint.connect().await.unwrap()))
    }

    pub(crate) async fn say(&mut self, text: &'static str) -> Result<Response<Bytes>, Status> {
        self.0.ready().await.unwrap();
        let message = Request::new(Bytes::from_static(text.as_bytes()));
        self.0.unary(message, PathAndQuery::from_static(METHOD), RawCodec).await
    }
}
