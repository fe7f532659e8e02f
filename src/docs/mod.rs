//! Pages about the crate: how it is built and why.

#[doc = include_str!("design.md")]
pub mod design {}

#[cfg(feature = "axum")]
#[doc = include_str!("axum.md")]
pub mod axum {}

#[doc = include_str!("testing.md")]
pub mod testing {}

#[doc = include_str!("proxies.md")]
pub mod proxies {}

#[cfg(feature = "redis")]
#[doc = include_str!("redis.md")]
pub mod redis {}

#[doc = include_str!("limitations.md")]
pub mod limitations {}
