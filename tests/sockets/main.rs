//! Tests over real sockets: HTTP/1.1 and HTTP/2, axum and plain hyper, tonic's server and client, and gRPC frames.

#![cfg(all(feature = "axum", feature = "tonic"))]
#![allow(clippy::unwrap_used, clippy::expect_used)] // Tests and their helpers fail by panicking.

mod broken;
mod bursts;
mod chat;
mod connections;
mod echo;
mod grpc;
mod grpc_limits;
mod plain;
mod retry_info;
mod wire;
