//! Tests of Tower's contract with immediate and delayed backends: readiness, permits, cancellation and clones.

#![allow(clippy::unwrap_used, clippy::expect_used)] // Tests and their helpers fail by panicking.

mod backends;
mod cancellation;
mod contract_service;
mod readiness;
mod shadow;
mod sharing;
mod unavailable;
