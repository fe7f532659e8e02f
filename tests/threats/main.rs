//! Tests of the threats to a rate limiter in front of a service.
//!
//! A test's name begins with the number of its threat in `list.txt`, which also names the tests in other targets, such
//! as those of threats to backends and to the arithmetic. `make threats` runs the listed tests and writes `THREATS.md`.

#![cfg(feature = "axum")]
#![allow(clippy::unwrap_used, clippy::expect_used)] // Tests and their helpers fail by panicking.

mod addresses;
mod client;
mod collisions;
mod cookies;
mod disclosure;
mod fan_out;
mod hashing;
mod injection;
mod listed;
mod lockout;
mod methods;
mod nat64;
mod panics;
mod parsers;
mod paths;
mod placement;
mod refusals;
mod retries;
mod secrets;
mod spoofing;
mod unverified;
