//! Waiting for reserved tokens: due times, cancellation, and resources that waiting requests must not hold.

#![allow(clippy::unwrap_used, clippy::expect_used)] // Tests and their helpers fail by panicking.

mod cancelled;
mod clients;
mod dropped;
mod equipped;
mod histories;
mod history;
mod jitter;
mod later;
mod pauses;
mod places;
mod point_1;
mod queue;
mod readiness;
mod rules;
mod turns;
mod upstream;

#[path = "../model/admitted.rs"]
#[allow(dead_code)] // These tests build a `Turn` differently.
mod admitted;
#[path = "../model/mod.rs"]
mod model;
#[path = "../model/random.rs"]
#[allow(dead_code)] // Some quotas and histories are used only by `tests/properties`.
mod random;
