//! Policies and callers with several quotas that apply together.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../support/mod.rs"]
mod support;

#[allow(dead_code)] // Shared with other tests.
#[path = "../http/answer.rs"]
mod answer;
#[allow(dead_code)]
#[path = "../http/client.rs"]
mod client;

mod calls;
mod choosing;
#[cfg(feature = "serde")]
mod files;
mod headers;
mod histories;
mod own_quotas;
#[cfg(feature = "redis")]
#[allow(dead_code)]
#[path = "../redis/ports.rs"]
mod ports;

#[path = "../support/random.rs"]
mod random;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "redis")]
#[allow(dead_code)]
#[path = "../redis/server.rs"]
mod server;
mod tiers;
