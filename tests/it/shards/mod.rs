//! Tests of quotas that are divided into shards.

mod calls;
mod checks;
mod files;
mod histories;

mod threads;
