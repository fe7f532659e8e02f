//! Tests of the memory backend through the public API.

#[path = "../support/mod.rs"]
mod support;

mod fairness;
mod identity;
mod overflow;
mod quotas;
