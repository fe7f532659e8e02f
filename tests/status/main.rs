//! Tests of the status endpoints: what they report, who can read them, and that reading them spends nothing.

#![allow(clippy::unwrap_used, clippy::expect_used)] // Tests and their helpers fail by panicking.

mod access;
#[allow(dead_code)] // This file is shared with `tests/http`, and not all of it is used here.
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
