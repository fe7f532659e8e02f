//! Configurations from files: what is read, what is refused and how that is said, what a reload changes and what not.

#![allow(clippy::unwrap_used, clippy::expect_used)] // A test fails by panicking, its helpers too.

// The other tests' reader of responses: what is written once is read one way.
#[allow(dead_code)] // It reads more than is looked at here.
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
mod shared;
