//! Which limit a route has, for whom, and for whom not: over HTTP, in axum, by a clock that moves when told to.

#![cfg(feature = "axum")]
#![allow(clippy::unwrap_used, clippy::expect_used)] // A test fails by panicking, its helpers too.

// The other tests' reader of responses: what is written once is read one way.
#[allow(dead_code)] // It reads more than is looked at here.
#[path = "../http/answer.rs"]
mod answer;
mod app;
mod broken;
mod chosen;
mod exempt;
mod keys;
mod mistakes;
mod names;
mod nested;
mod point_3;
mod shadow;
mod share;
mod stacked;
mod table;
mod tiers;
