//! Concurrency models of the Redis backend. `proof/README.md` lists the mutations that each model detects.

mod batcher;
mod breaker;
