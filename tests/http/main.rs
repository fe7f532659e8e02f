//! The layer in axum, as its clients see it: a real server on a real socket, a clock that moves when told to.

#![cfg(feature = "axum")]
#![allow(clippy::unwrap_used, clippy::expect_used)] // A test fails by panicking, its helpers too.

mod addresses;
mod answer;
mod callers;
mod client;
mod counting;
mod handlers;
mod headers;
mod keys;
mod point_3;
mod promises;
mod quickstart;
mod refusals;
