//! A gRPC server with a limit, and a client that exceeds it. They use tonic, but not protoc.
//!
//! Run it with `cargo run --example grpc --features tonic`. For each client address, the server allows three calls to
//! the `Hello` method, then one every three seconds. The client prints the results, waits for the time in
//! `grpc-retry-pushback-ms`, and then calls again:
//! ```text
//! call 1: Ok "hello, ada"
//! call 2: Ok "hello, ada"
//! call 3: Ok "hello, ada"
//! call 4: ResourceExhausted
//!     grpc-retry-pushback-ms: 2999
//!     grpc-status-details-bin: type.googleapis.com/google.rpc.RetryInfo
//! call 5: Ok "hello, ada"
//! ```

use std::convert::Infallible;
use std::error::Error;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use tokio::net::TcpListener;
use tollgate::{Policy, Quota, RouteLimits, SECOND, key};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::{BoxFuture, Context, Poll, Service, http};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Endpoint, Server};
use tonic::{Request, Response, Status};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let port = std::env::var("PORT").unwrap_or_else(|_| "3000".into());
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    let url = format!("http://{}", listener.local_addr()?);

    let hello = Policy::new("hello", Quota::token_bucket(1, 3 * SECOND).capacity(3));
    // With the `tonic` feature, the client's address comes from the connection.
    let limits = RouteLimits::new(key::client_ip()).policy(hello).table([("/demo.Greeter/Hello", "hello")]).grpc();
    let server = Server::builder().layer(limits).add_service(Greeter);
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));

    let channel = Endpoint::from_shared(url)?.connect().await?;
    let mut client = tonic::client::Grpc::new(channel);
    for call in 1..=5 {
        client.ready().await?;
        let path = http::uri::PathAndQuery::from_static("/demo.Greeter/Hello");
        match client.unary(Request::new(Bytes::from("ada")), path, Plain).await {
            Ok(greeting) => println!("call {call}: Ok {:?}", String::from_utf8_lossy(greeting.get_ref())),
            Err(status) => {
                println!("call {call}: {:?}", status.code());
                let pushback = status.metadata().get("grpc-retry-pushback-ms").ok_or("no pushback")?.to_str()?;
                println!("    grpc-retry-pushback-ms: {pushback}");
                // The details are an encoded google.rpc.Status. With tonic-types, use
                // `status.get_details_retry_info()`.
                let details = String::from_utf8_lossy(status.details());
                let info = "type.googleapis.com/google.rpc.RetryInfo";
                println!("    grpc-status-details-bin: {}", if details.contains(info) { info } else { "no RetryInfo" });
                tokio::time::sleep(Duration::from_millis(pushback.parse()?)).await;
            }
        }
    }
    Ok(())
}

/// The service that tonic-build would generate for `service Greeter { rpc Hello(..) returns (..); }` in package `demo`.
#[derive(Clone)]
struct Greeter;

impl tonic::server::NamedService for Greeter {
    const NAME: &'static str = "demo.Greeter";
}

impl Service<http::Request<tonic::body::Body>> for Greeter {
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        Box::pin(async move {
            Ok(match request.uri().path() {
                "/demo.Greeter/Hello" => tonic::server::Grpc::new(Plain).unary(tower::service_fn(hello), request).await,
                _ => Status::unimplemented("no such method").into_http(),
            })
        })
    }
}

async fn hello(name: Request<Bytes>) -> Result<Response<Bytes>, Status> {
    Ok(Response::new([b"hello, ", &name.into_inner()[..]].concat().into()))
}

/// A codec for plain bytes instead of protobuf messages.
#[derive(Clone, Copy)]
struct Plain;

impl Codec for Plain {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Plain;
    type Decoder = Plain;

    fn encoder(&mut self) -> Plain {
        Plain
    }

    fn decoder(&mut self) -> Plain {
        Plain
    }
}

impl Encoder for Plain {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(message);
        Ok(())
    }
}

impl Decoder for Plain {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}
