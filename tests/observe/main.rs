//! Observers: their notifications, log events, metrics, and the dashboard.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod afterwards;
mod backends;
mod counters;
mod dashboard;
mod events;
mod exporter;
mod load;
mod log;
mod mistakes;
mod notified;
mod recorders;
mod sampling;

#[path = "../support/mod.rs"]
mod support;
