//! What an attacker would try, one test or more for each threat to a rate limiter in front of a service.
//!
//! A test's name begins with the number of its threat: 1 forged client addresses, 2 parser confusion, 3 IPv4-mapped
//! addresses, 4 IPv6 rotation, 5 key collision, 6 keys that break a store, 7 secrets in keys, 9 hash flooding, 16 path
//! variants, 17 route cardinality, 18 methods, 19 layer placement, 20 fan-out, 21 header injection, 22 information leak,
//! 23 lockout of others, 25 retry storms, 26 the cost of a refusal, 27 log flooding, 28 caching, 30 panics, 31 invented keys. The numbers
//! between are threats to stores and to the arithmetic, which other tests are about: `list.txt` says which, of all of
//! them. `make threats` runs exactly those and writes `THREATS.md`.

#![cfg(feature = "axum")]
#![allow(clippy::unwrap_used, clippy::expect_used)] // A test fails by panicking, its helpers too.

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
