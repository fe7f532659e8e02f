//! Tests of observers: notifications, log events, metrics, and the dashboard.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[cfg(feature = "admin")]
mod audits;
mod backends;
mod counters;
mod dashboard;
mod events;
mod exporter;
mod load;
mod log;
mod mistakes;
mod near_limit;
mod notifications;
mod recorders;
mod sampling;
mod settlements;
mod tiers;
mod top;

#[path = "../support/mod.rs"]
mod support;
