//! Deny lists, automatic blocking, the block cache, and quotas that change while in use.

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
mod threads;
mod unmatched;
