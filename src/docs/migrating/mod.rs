#![doc = include_str!("index.md")]

#[doc = include_str!("tower_governor.md")]
pub mod tower_governor {}

#[doc = include_str!("governor.md")]
pub mod governor {}

#[doc = include_str!("axum_gcra.md")]
pub mod axum_gcra {}

#[doc = include_str!("tower_rate_limiter.md")]
pub mod tower_rate_limiter {}

#[doc = include_str!("actix_extensible_rate_limit.md")]
pub mod actix_extensible_rate_limit {}

#[doc = include_str!("express_rate_limit.md")]
pub mod express_rate_limit {}

#[doc = include_str!("upstash.md")]
pub mod upstash {}

#[doc = include_str!("convex.md")]
pub mod convex {}
