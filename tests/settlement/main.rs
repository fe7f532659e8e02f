//! Costs of requests, and how a response or a receipt settles a charge once the actual cost is known.

#![cfg(feature = "axum")]
#![allow(clippy::unwrap_used, clippy::expect_used)] // Tests and their helpers fail by panicking.

#[allow(dead_code)] // `tests/http` uses the rest of this module.
#[path = "../http/answer.rs"]
mod answer;
#[allow(dead_code)]
#[path = "../http/client.rs"]
mod client;

mod app;
mod async_keys;
mod bound;
mod changes;
mod costs;
mod debts;
mod errors;
mod histories;
mod logins;
mod remote;
mod remote_backend;
mod rules;
mod settle_once;
mod streams;
mod unanswered;
mod uncharged;
