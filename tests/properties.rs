//! Properties of the algebra, against a slow, obvious model in exact whole numbers and over random histories.
//!
//! `PROPTEST_CASES` and `PROPTEST_RNG_SEED` ask for more cases, and others.

// Helpers outside of `#[test]` functions may say what they expect, too.
#![allow(clippy::expect_used)]

#[path = "model/admitted.rs"]
mod admitted;
#[path = "model/mod.rs"]
mod model;
#[path = "model/random.rs"]
mod random;

#[path = "properties/bound.rs"]
mod bound;
#[path = "properties/changes.rs"]
mod changes;
#[path = "properties/clocks.rs"]
mod clocks;
#[path = "properties/decisions.rs"]
mod decisions;
#[path = "properties/exhaustive.rs"]
mod exhaustive;
#[path = "properties/extremes.rs"]
mod extremes;
#[path = "properties/give_backs.rs"]
mod give_backs;
#[path = "properties/regressions.rs"]
mod regressions;
#[path = "properties/together.rs"]
mod together;
