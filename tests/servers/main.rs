//! Tests that start Redis or Valkey servers, or the examples.

#![allow(clippy::unwrap_used, clippy::expect_used)] // Panicking is how tests and their helpers fail.

mod examples;
mod faults;
mod mixing;
mod redis;
mod shards;
mod windows;

#[path = "../support/mod.rs"]
mod support;
