//! Real sockets: HTTP/1.1 and HTTP/2, axum and plain hyper, tonic's server and client, and what is on the wire of gRPC.

#![cfg(all(feature = "axum", feature = "tonic"))]
#![allow(clippy::unwrap_used, clippy::expect_used)] // A test fails by panicking, its helpers too.

mod broken;
mod bursts;
mod chat;
mod connections;
mod echo;
mod grpc;
mod plain;
mod point_3;
mod retry_info;
mod wire;
