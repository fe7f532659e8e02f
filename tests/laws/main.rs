//! Random histories that are compared with slow, obvious models.

#![allow(clippy::unwrap_used, clippy::expect_used)] // Panicking is how tests and their helpers fail.

mod linear;
mod mixing;
mod properties;
mod vectors;

#[path = "../support/mod.rs"]
mod support;
