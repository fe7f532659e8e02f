//! Tests that start Redis or Valkey servers.

#![allow(clippy::unwrap_used, clippy::expect_used)] // Panicking is how tests and their helpers fail.

#[allow(dead_code)] // Other tests use the rest of these helpers.
#[path = "../redis/cluster_server.rs"]
mod cluster_server;
mod faults;
#[path = "../redis/ports.rs"]
mod ports;
#[allow(dead_code)]
#[path = "../redis/proxy.rs"]
mod proxy;
#[allow(dead_code)]
#[path = "../redis/server.rs"]
mod server;
