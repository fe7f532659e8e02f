//! Deny lists, automatic blocking, the block cache, and limits that are changed while they are in use.

#![allow(clippy::unwrap_used, clippy::expect_used)] // A test fails by panicking, its helpers too.

#[path = "../support/mod.rs"]
mod support;

// The other tests' client and reader of responses: what is written once is read one way.
#[allow(dead_code)] // It reads more than is looked at here.
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
mod by_hand;
mod cache;
mod cache_histories;
mod cache_races;
mod deny;
mod disclosure;
mod lists;
mod naive;
mod quotas;
mod spoofing;
mod store;
mod threads;
mod unmatched;
