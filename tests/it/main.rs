//! Tests of the public API in one process, one module for each part of it. They start no Redis server.

#![allow(clippy::unwrap_used, clippy::expect_used)] // Panicking is how tests and their helpers fail.

mod admin;
mod architecture;
mod bodies;
mod config;
mod errors;
mod families;
mod faults;
mod http;
mod memory;
mod migrating;
mod msrv;
mod observe;
mod protection;
mod routes;
mod saved;
mod settlement;
mod shards;
mod sockets;
mod status;
mod threads;
mod threats;
mod tower_contract;
mod waiting;
mod windows;

#[path = "../support/mod.rs"]
mod support;
