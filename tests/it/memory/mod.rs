//! Tests of the memory backend through the public API.

mod fairness;
mod identity;
mod overflow;
mod quotas;
