//! What a request costs, and what becomes of that: by the response, or by a handle that knows the true cost in the end.

#![cfg(feature = "axum")]
#![allow(clippy::unwrap_used, clippy::expect_used)] // A test fails by panicking, its helpers too.

// The other tests' client and reader of responses: what is written once is read one way.
#[allow(dead_code)] // It reads more than is looked at here.
#[path = "../http/answer.rs"]
mod answer;
#[allow(dead_code)]
#[path = "../http/client.rs"]
mod client;

mod app;
mod bound;
mod changes;
mod costs;
mod costs_later;
mod debts;
mod ends;
mod errors;
mod histories;
mod logins;
mod remote;
mod rules;
mod shadow;
mod store;
mod streams;
mod twice;
