//! Tests that start Redis or Valkey servers.

#![allow(clippy::unwrap_used, clippy::expect_used)] // Panicking is how tests and their helpers fail.

mod mixing;
#[path = "../redis/ports.rs"]
mod ports;
#[allow(dead_code)] // The harness uses only a part.
#[path = "../redis/server.rs"]
mod server;
