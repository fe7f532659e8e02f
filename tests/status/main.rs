//! The status endpoints: contents, access, and that reading costs nothing.

#![allow(clippy::unwrap_used, clippy::expect_used)] // Tests and their helpers fail by panicking.

mod access;
#[allow(dead_code)] // Shared with `tests/http`; not all of it is used here.
#[path = "../http/answer.rs"]
mod answer;
mod app;
mod blocked;
mod errors;
mod http;
mod matches_layer;
mod numbers;
mod projection;
mod reading;
