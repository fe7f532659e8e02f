//! Tower's contract: readiness, permits, cancellation and clones of the layer, with a backend that responds immediately
//! and with a delayed one.

#![allow(clippy::unwrap_used, clippy::expect_used)] // Panicking is how tests and their helpers fail.

mod backends;
mod cancellation;
mod readiness;
mod shadow;
mod sharing;
mod contract_service;
mod unavailable;
