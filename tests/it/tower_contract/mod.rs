//! Tests of Tower's contract with immediate and delayed backends: readiness, permits, cancellation and clones.

mod backends;
mod cancellation;
mod contract_service;
mod readiness;
mod shadow;
mod sharing;
mod unavailable;
