//! The memory backend through the public API: exact for any number of quotas, fair under a flood.

#[path = "../support/mod.rs"]
mod support;

mod fairness;
mod identity;
mod overflow;
mod quotas;
