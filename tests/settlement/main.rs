//! Costs of requests, and their settlement by the response or by a receipt once the actual cost is known.

#![cfg(feature = "axum")]
#![allow(clippy::unwrap_used, clippy::expect_used)] // Tests and their helpers fail by panicking.

#[allow(dead_code)] // Shared with `tests/http`; not all of it is used here.
#[path = "../http/answer.rs"]
mod answer;
#[allow(dead_code)]
#[path = "../http/client.rs"]
mod client;

mod app;
mod bound;
mod changes;
mod costs;
mod async_costs;
mod debts;
mod unanswered;
mod errors;
mod histories;
mod logins;
mod remote;
mod rules;
mod uncharged;
mod remote_backend;
mod streams;
mod settle_once;
