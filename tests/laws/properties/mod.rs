//! Properties of the algorithms over random histories, checked against a slow and simple model that uses exact
//! integers.
//!
//! Set `PROPTEST_CASES` to run more cases, and `PROPTEST_RNG_SEED` to run different cases.

mod bound;
mod changes;
mod clocks;
mod credits;
mod decisions;
mod exhaustive;
mod extremes;
mod give_backs;
mod lease_model;
mod leases;
mod regressions;
mod together;
