//! Tests of quotas that are divided into shards.

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
mod checks;
#[cfg(feature = "redis")]
#[allow(dead_code)]
#[path = "../redis/cluster_server.rs"]
mod cluster_server;
#[cfg(feature = "serde")]
mod files;
mod histories;
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
mod threads;
