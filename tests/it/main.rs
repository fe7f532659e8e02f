//! Tests of the public API in one process, one folder for each public module. They start no other process.

#![allow(clippy::unwrap_used, clippy::expect_used)] // Panicking is how tests and their helpers fail.

mod faults;
