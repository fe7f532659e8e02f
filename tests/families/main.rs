//! The exact rate-limit headers of each family, as sent over HTTP and as read by clients.

#![cfg(feature = "axum")]
#![allow(clippy::unwrap_used, clippy::expect_used)] // Panicking is how tests and their helpers fail.

#[allow(dead_code)] // Shared with other tests.
#[path = "../http/answer.rs"]
mod answer;
mod app;
mod clients;
mod draft11;
mod grammar;
mod older;
mod parsed;
mod refusals;
mod stacked;
