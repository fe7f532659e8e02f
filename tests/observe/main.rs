//! Those who watch a limiter: what they are told, the events they log, the metrics they count, and the dashboard that
//! shows them.

#![allow(clippy::unwrap_used, clippy::expect_used)] // A test fails by panicking, its helpers too.

mod afterwards;
mod backends;
mod counters;
mod dashboard;
mod events;
mod exporter;
mod load;
mod log;
mod mistakes;
mod recorders;
mod sampling;
mod told;

#[path = "../support/mod.rs"]
mod support;
