//! A handwritten gRPC service, `test.Chat`, and its client. The service has one method of each kind and charges every
//! message. The messages are raw bytes.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Bytes;
use http::uri::PathAndQuery;
use tokio_stream::{Stream, StreamExt};
use tollgate::{HOUR, Key, LimitError, Policy, Quota, RateLimitLayer, RateLimiter, key};
use tonic::body::Body;
use tonic::server::{Grpc, NamedService};
use tonic::service::Routes;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status, Streaming};
use tower::{Service, service_fn};

use super::echo::RawCodec;
use crate::support::connections::listen;

/// The methods: one unary method, and one for each kind of stream.
pub(crate) const UNARY: &str = "/test.Chat/Say";
pub(crate) const UPLOAD: &str = "/test.Chat/Upload";
pub(crate) const DOWNLOAD: &str = "/test.Chat/Download";
pub(crate) const TALK: &str = "/test.Chat/Talk";

/// The limit on a client's messages, shared by all methods.
pub(crate) const MESSAGES: Policy = Policy::new("messages", Quota::token_bucket(5, HOUR));

#[derive(Clone, Debug, Default)]
pub(crate) struct Chat {
    pub(crate) limiter: RateLimiter,
}

impl Chat {
    async fn say(self, request: Request<Bytes>) -> Result<Response<Bytes>, Status> {
        self.limiter.limit(&MESSAGES, client(&request)?).await?;
        Ok(Response::new(request.into_inner()))
    }

    async fn upload(self, request: Request<Streaming<Bytes>>) -> Result<Response<Bytes>, Status> {
        let client = client(&request)?;
        let mut messages = request.into_inner();
        let mut last = Bytes::new();
        while let Some(message) = messages.message().await? {
            self.limiter.limit(&MESSAGES, &client).await?;
            last = message;
        }
        Ok(Response::new(last))
    }

    async fn download(self, request: Request<Bytes>) -> Result<Response<Messages>, Status> {
        let client = client(&request)?;
        let count = request.get_ref().len();
        let messages = tokio_stream::iter(vec![request.into_inner(); count]);
        Ok(Response::new(Box::pin(messages.then(move |message| self.clone().limited(client.clone(), message)))))
    }

    async fn talk(self, request: Request<Streaming<Bytes>>) -> Result<Response<Messages>, Status> {
        let client = client(&request)?;
        let messages = request.into_inner();
        Ok(Response::new(Box::pin(messages.then(move |message| {
            let (chat, client) = (self.clone(), client.clone());
            async move { chat.limited(client, message?).await }
        }))))
    }

    async fn limited(self, client: Key, message: Bytes) -> Result<Bytes, Status> {
        self.limiter.limit(&MESSAGES, client).await?;
        Ok(message)
    }
}

type Messages = Pin<Box<dyn Stream<Item = Result<Bytes, Status>> + Send>>;

/// Returns the key that a layer with `key::client_ip()` would use.
fn client<T>(request: &Request<T>) -> Result<Key, LimitError> {
    let address = request.remote_addr().ok_or(tollgate::key::KeyError::new("no address"))?;
    Ok(key::client_ip().key(address.ip()))
}

impl NamedService for Chat {
    const NAME: &'static str = "test.Chat";
}

impl Service<http::Request<Body>> for Chat {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let chat = self.clone();
        let mut grpc = Grpc::new(RawCodec);
        Box::pin(async move {
            Ok(match request.uri().path() {
                UNARY => grpc.unary(service_fn(|request| chat.clone().say(request)), request).await,
                UPLOAD => grpc.client_streaming(service_fn(|request| chat.clone().upload(request)), request).await,
                DOWNLOAD => grpc.server_streaming(service_fn(|request| chat.clone().download(request)), request).await,
                TALK => grpc.streaming(service_fn(|request| chat.clone().talk(request)), request).await,
                _ => Status::unimplemented("no such method").into_http(),
            })
        })
    }
}

/// Serves `routes` with `layer` around tonic's router until the test's runtime shuts down. Returns a client.
pub(crate) async fn serve(layer: RateLimitLayer, routes: impl Into<Routes>) -> Client {
    let (listener, address) = listen().await;
    let server = Server::builder().layer(layer).add_routes(routes.into());
    tokio::spawn(async move { server.serve_with_incoming(TcpIncoming::from(listener)).await.unwrap() });
    Client::connect(address).await
}

impl From<Chat> for Routes {
    fn from(chat: Chat) -> Routes {
        Routes::new(chat)
    }
}

/// Creates a layer that limits nothing.
pub(crate) fn no_limits() -> RateLimitLayer {
    RateLimitLayer::new(MESSAGES, key::global()).skip(|_| true)
}

pub(crate) struct Client(tonic::client::Grpc<Channel>);

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Client {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        Client(tonic::client::Grpc::new(endpoint.connect().await.unwrap()))
    }

    /// Calls a method with `count` messages per stream. Returns the number of messages received and the result.
    pub(crate) async fn call(&mut self, method: &'static str, count: usize) -> (usize, Result<(), Status>) {
        self.0.ready().await.unwrap();
        let path = PathAndQuery::from_static(method);
        let messages = tokio_stream::iter(vec![Bytes::from_static(b"m"); count]);
        let answer = match method {
            UPLOAD => return one(self.0.client_streaming(Request::new(messages), path, RawCodec).await),
            DOWNLOAD => self.0.server_streaming(Request::new(vec![b'm'; count].into()), path, RawCodec).await,
            TALK => self.0.streaming(Request::new(messages), path, RawCodec).await,
            _ => return one(self.0.unary(Request::new(Bytes::from_static(b"m")), path, RawCodec).await),
        };
        let mut messages: Streaming<Bytes> = match answer {
            Ok(response) => response.into_inner(),
            Err(status) => return (0, Err(status)),
        };
        for received in 0.. {
            match messages.message().await {
                Ok(Some(_)) => {}
                end => return (received, end.map(|_| ())),
            }
        }
        unreachable!()
    }
}

fn one(answer: Result<Response<Bytes>, Status>) -> (usize, Result<(), Status>) {
    (answer.is_ok().into(), answer.map(|_| ()))
}
