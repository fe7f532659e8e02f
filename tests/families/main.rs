//! The headers that tell clients about their limits, family by family, to the letter: what the layer sends over HTTP, read as
//! clients of each family read it.

#![cfg(feature = "axum")]
#![allow(clippy::unwrap_used, clippy::expect_used)] // A test fails by panicking, its helpers too.

// The other tests' reader of responses: what is written once is read one way.
#[allow(dead_code)] // It reads more than is looked at here.
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
