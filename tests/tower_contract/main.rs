//! Tower's contract: readiness, permits, cancellation and clones, with immediate and delayed backends.

#![allow(clippy::unwrap_used, clippy::expect_used)] // Tests and their helpers fail by panicking.

mod backends;
mod cancellation;
mod contract_service;
mod readiness;
mod shadow;
mod sharing;
mod unavailable;
