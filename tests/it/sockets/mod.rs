//! Tests over real sockets: HTTP/1.1 and HTTP/2, axum and plain hyper, tonic's server and client, and gRPC frames.

mod broken;
mod bursts;
mod chat;
mod echo;
mod grpc;
mod grpc_limits;
mod plain;
mod retry_info;
mod wire;
