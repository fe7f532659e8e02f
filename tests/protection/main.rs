//! Deny lists, automatic blocking, the block cache, and quotas that change while in use.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../support/mod.rs"]
mod support;

#[allow(dead_code)] // Shared with other tests.
#[path = "../http/answer.rs"]
mod answer;
#[allow(dead_code)]
#[path = "../http/client.rs"]
mod client;
#[allow(dead_code)]
#[path = "../model/random.rs"]
mod random;

mod agents;
mod app;
mod blocking;
mod cache;
mod cache_histories;
mod cache_races;
mod credits;
mod deny;
mod disclosure;
mod enforcement;
mod lists;
mod manual_blocks;
mod naive;
mod quotas;
mod spoofing;
mod test_backend;
mod threads;
mod unmatched;
