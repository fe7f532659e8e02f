//! Tests of the layer in axum, as clients see it. Most tests use a socket and a manual clock.

#![cfg(feature = "axum")]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod addresses;
mod answer;
mod callers;
mod client;
mod counting;
mod handler_errors;
mod handlers;
mod headers;
mod keys;
mod quickstart;
mod random_limits;
mod refusals;
