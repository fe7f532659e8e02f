//! Tests of waiting for reserved tokens: due times, cancellation, and resources that waiting requests must not hold.

#![allow(clippy::unwrap_used, clippy::expect_used)] // Tests and their helpers fail by panicking.

mod calls;
mod cancelled;
mod clients;
mod delayed_backend;
mod dropped;
mod due_times;
mod extensions;
mod histories;
mod history;
mod jitter;
mod max_waiting;
mod pauses;
mod queue;
mod readiness;
mod rules;
mod upstream;

#[path = "../model/admitted.rs"]
#[allow(dead_code)] // These tests do not use `AdmittedCharge::of`.
mod admitted;
#[path = "../model/mod.rs"]
mod model;
#[path = "../model/random.rs"]
#[allow(dead_code)] // Other tests use the rest of this module.
mod random;
