//! What the two mixing harnesses share: the terms of a history, the adapter to the crate, and the runner.

pub(crate) mod adapter;
pub(crate) mod known;
#[cfg(feature = "redis")]
#[allow(dead_code)] // Only the harness on a server uses it.
pub(crate) mod remote;
pub(crate) mod run;
pub(crate) mod terms;

pub(crate) use crate::support::random;
