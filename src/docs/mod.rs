//! Pages about the crate: how it is built and why, and how to come to it from others.

#[doc = include_str!("design.md")]
pub mod design {}

#[doc = include_str!("proxies.md")]
pub mod proxies {}

#[cfg(feature = "redis")]
#[doc = include_str!("redis.md")]
pub mod redis {}

#[doc = include_str!("limitations.md")]
pub mod limitations {}

pub mod migrating;
