//! What the two mixing harnesses share: the terms of a history, the adapter to the crate, and the runner.

pub(crate) mod adapter;
pub(crate) mod known;
#[path = "../support/random.rs"]
pub(crate) mod random;
pub(crate) mod run;
pub(crate) mod terms;
