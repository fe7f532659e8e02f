//! Properties of the algorithms over random histories, checked against a slow and simple model that uses exact
//! integers.
//!
//! Set `PROPTEST_CASES` to run more cases, and `PROPTEST_RNG_SEED` to run different cases.

#![allow(clippy::expect_used)] // Panicking is how tests and their helpers fail.

#[path = "model/admitted.rs"]
mod admitted;
#[path = "model/mod.rs"]
mod model;
#[path = "support/random.rs"]
mod numbers;
#[path = "model/random.rs"]
mod random;

#[path = "properties/bound.rs"]
mod bound;
#[path = "properties/changes.rs"]
mod changes;
#[path = "properties/clocks.rs"]
mod clocks;
#[path = "properties/credits.rs"]
mod credits;
#[path = "properties/decisions.rs"]
mod decisions;
#[path = "properties/exhaustive.rs"]
mod exhaustive;
#[path = "properties/extremes.rs"]
mod extremes;
#[path = "properties/give_backs.rs"]
mod give_backs;
#[path = "properties/lease_model.rs"]
mod lease_model;
#[path = "properties/leases.rs"]
mod leases;
#[path = "properties/regressions.rs"]
mod regressions;
#[path = "properties/together.rs"]
mod together;
