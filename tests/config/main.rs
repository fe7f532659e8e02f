//! Configuration files: formats, errors and reloads.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[allow(dead_code)] // Shared with other tests.
#[path = "../http/answer.rs"]
mod answer;
mod app;
mod bounds;
mod faults;
mod formats;
mod keys;
mod messages;
mod quotas;
mod reload;
mod restart;
mod routes;
mod rules;
mod schema;
mod shared;
