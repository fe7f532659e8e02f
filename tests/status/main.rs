//! The status endpoints: what they tell, to whom, and that telling costs nothing; by a clock that moves when told to.

#![allow(clippy::unwrap_used, clippy::expect_used)] // A test fails by panicking, its helpers too.

// The other tests' reader of responses: what is written once is read one way.
#[allow(dead_code)] // It reads more than is looked at here.
#[path = "../http/answer.rs"]
mod answer;
mod app;
mod barred;
mod errors;
mod follows;
mod http;
mod numbers;
mod own;
mod projection;
mod reading;
