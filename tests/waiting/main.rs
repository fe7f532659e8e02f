//! Waiting for a turn: when it comes, who gets it if its owner leaves, and what nobody may keep.

#![allow(clippy::unwrap_used, clippy::expect_used)] // A test fails by panicking, its helpers too.

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
#[allow(dead_code)] // A turn is made in another way here.
mod admitted;
#[path = "../model/mod.rs"]
mod model;
#[path = "../model/random.rs"]
#[allow(dead_code)] // Of its quotas and histories, some are for the algebra alone.
mod random;
