//! Tests for the known threats to a rate limiter in front of a service.
//!
//! Tests whose names begin with `t05_` cover threat 5 in `list.txt`, and so on. The list also names tests in other
//! targets. `make threats` runs all listed tests and writes `THREATS.md`.

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
